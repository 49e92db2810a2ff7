"""Processes that outlive the command that starts them: started, found again, ended."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from longline.errors import StartFailed, StopFailed
from longline.lifecycle.logs import last_lines, open_log
from longline.lifecycle.record import Entry, RecordFile

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
