"""Processes that outlive the command that starts them: start, find and stop them, and signals."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from longline.services.base import ServiceStatus, last_lines, open_log
from longline.services.errors import StartFailed, StopFailed
from longline.services.state import ProcessEntry, StateFile

_CLOCK_SKEW = 5.0  # seconds; setting the clock moves start times, and no pid is reused so soon
_POLL_INTERVAL = 0.02  # seconds
_KILL_TIMEOUT = 10.0  # seconds in which the system ends a killed process
MARK = "LONGLINE_UP"  # an environment variable that descendants inherit; its value is the home
# The shell waits until its pid is recorded and then becomes the program. If this process is killed
# before that, the closed pipe ends the shell, and nothing is left behind.
_GATE = 'read -r _ || exit 1; exec "$@" </dev/null'
_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_ALL_SIGNALS = (signal.SIGINT, *_EXIT_SIGNALS)
_KILLED_BY = 128  # a shell adds the number of the signal to it

StopSignals = tuple[tuple[signal.Signals, float], ...]
"""How a process is stopped: signals in order, each with the seconds to wait after it."""
PRIVATE = 0o077
"""The umask of a server, whose files are private to its user."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a process; `user` is the name of another user, or None."""

    name: str
    command: Sequence[str]
    log: Path
    port: int | None = None
    folder: Path | None = None
    user: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    umask: int = -1  # unchanged: workers write exports, which belong to the user


def launch(plan: Launch, file: StateFile) -> ProcessEntry:
    """Start a process in its own session; it is recorded before it does anything.

    Raises:
        StartFailed: the system refuses.
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
                **_user_arguments(plan.user),
            )
    except OSError as error:
        raise StartFailed(plan.name, str(error)) from error
    gate = shell.stdin
    assert gate is not None  # noqa: S101  # we asked for a pipe
    with gate:
        try:
            started = psutil.Process(shell.pid).create_time()
            command = tuple(plan.command)
            entry = ProcessEntry(plan.name, shell.pid, started, command, plan.port, str(plan.log))
            file.add(entry)
        except BaseException:
            shell.kill()
            shell.wait()
            raise
        gate.write(b"\n")
    shell.returncode = 0  # Popen would warn that the process outlives it
    return entry


def _user_arguments(user: str | None) -> dict[str, Any]:
    """Return the arguments of Popen that run a process as another user, without our groups."""
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def find_process(entry: ProcessEntry) -> psutil.Process | None:
    """Return the process of an entry; None when it has ended or its pid was reused."""
    try:
        process = psutil.Process(entry.pid)
        if abs(process.create_time() - entry.start_time) >= _CLOCK_SKEW:
            return None
        # The main thread of a killed process may end before others, which still hold its ports.
        if process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
            return process
    except psutil.NoSuchProcess:
        return None
    with contextlib.suppress(ChildProcessError):  # a child of another process
        os.waitpid(entry.pid, os.WNOHANG)
    return None


def wait_until_up(entry: ProcessEntry, is_up: Callable[[], bool], seconds: float) -> None:
    """Wait until a service responds.

    Raises:
        StartFailed: it exited, or does not respond; with the last lines of its log.
    """
    deadline = time.monotonic() + seconds
    while not is_up():
        if find_process(entry) is None:
            raise StartFailed(entry.name, "it exited immediately", entry.log, last_lines(entry.log))
        if time.monotonic() > deadline:
            problem = f"it did not respond within {seconds:g} s"
            raise StartFailed(entry.name, problem, entry.log, last_lines(entry.log))
        time.sleep(_POLL_INTERVAL)


def stop_processes(
    entries: Iterable[ProcessEntry], *stop_signals: tuple[signal.Signals, float]
) -> None:
    """Stop processes and their descendants: with the given signals first, then with SIGKILL.

    Raises:
        StopFailed: one still runs, or belongs to another user.
    """
    entries = list(entries)
    seen = frozenset(one for one in entries if find_process(one))
    for sent, patience in stop_signals:
        _send_signal(filter(None, map(find_process, entries)), sent)
        if wait_until_gone(entries, patience):
            break
    deadline = time.monotonic() + _KILL_TIMEOUT
    # Repeated: a process may have started another between our check and the signal.
    while time.monotonic() < deadline and (left := _remaining(entries, seen)):
        _send_signal(left, signal.SIGKILL)
        psutil.wait_procs(left, _POLL_INTERVAL)
    if not wait_until_gone(entries, _KILL_TIMEOUT):
        stuck = next(one for one in entries if find_process(one))
        raise StopFailed(stuck.name, stuck.pid, "it still runs after SIGKILL")


def wait_until_gone(entries: Iterable[ProcessEntry], seconds: float) -> bool:
    """Wait until processes have ended; return False when some still run after `seconds`."""
    deadline = time.monotonic() + seconds
    left = [one for one in entries if find_process(one)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)
        left = [one for one in left if find_process(one)]
    return not left


def memory_of(entry: ProcessEntry) -> int | None:
    """Return the private memory of a process and its descendants in bytes."""
    process = find_process(entry)
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


def process_status(
    name: str,
    entry: ProcessEntry | None,
    *,
    is_healthy: bool,
    address: str = "",
    version: str | None = None,
) -> ServiceStatus:
    """Return the status of a service of this home; None: it was never started."""
    if entry is None:
        return ServiceStatus(name, is_healthy, is_ours=True, address=address)
    is_running = find_process(entry) is not None
    return ServiceStatus(
        name,
        is_healthy=is_healthy,
        is_ours=True,
        address=address,
        since=entry.start_time if is_running else None,
        pid=entry.pid if is_running else None,
        port=entry.port,
        version=version,
        memory_bytes=memory_of(entry),
        log=entry.log,
    )


def _send_signal(processes: Iterable[psutil.Process], sent: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(sent)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            raise StopFailed(process.name(), process.pid, "it belongs to another user") from error


def _remaining(
    entries: Iterable[ProcessEntry], seen: frozenset[ProcessEntry]
) -> list[psutil.Process]:
    """Return what still runs of processes and their sessions; `seen` ran a moment ago.

    A pid is not reused while its session exists, so the session identifies the descendants of a
    process that has ended. If it ended before we looked, the inherited MARK does.
    """
    entries = [one for one in entries if one in seen or not _is_pid_reused(one)]
    return [
        process
        for process in psutil.process_iter()
        if any(_belongs_to(process, one, is_seen=one in seen) for one in entries)
    ]


def _is_pid_reused(entry: ProcessEntry) -> bool:
    """Whether another process has the pid now; a zombie still counts as ours."""
    try:
        return abs(psutil.Process(entry.pid).create_time() - entry.start_time) >= _CLOCK_SKEW
    except psutil.NoSuchProcess:
        return False


def _belongs_to(process: psutil.Process, entry: ProcessEntry, *, is_seen: bool) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        if process.pid == entry.pid:
            return find_process(entry) is not None
        if os.getsid(process.pid) != entry.pid or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return is_seen or process.environ().get(MARK) == str(Path(entry.log).parent.parent)
    return False


# ---------------- Signals while services are started and stopped


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP, as Ctrl-C raises KeyboardInterrupt.

    Signals that already have a handler keep it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    unhandled = [one for one in _EXIT_SIGNALS if signal.getsignal(one) is signal.SIG_DFL]
    for one in unhandled:
        signal.signal(one, _exit)
    try:
        yield
    finally:
        for one in unhandled:
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Delay signals while services are stopped, which takes a bounded time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_KILLED_BY + number)
