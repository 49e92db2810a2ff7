"""Processes of a home that outlive the command that starts them, and the file that lists them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import make_url

from longline.config.settings import SERVICES_FILE, Settings, home_error
from longline.core.errors import BadFile, HomeUnwritable, LonglineError, MissingExtra
from longline.core.files import make_private_folder, private_opener, replacing
from longline.core.redaction import redact_url
from longline.core.sqlite_files import undecodable_is_damage

OnStep = Callable[[str, str], None]
"""Called with the name of a service and what happened to it."""
StopSignals = tuple[tuple[signal.Signals, float], ...]
"""How a process is stopped: signals in order, each with the seconds to wait after it."""
_PACKAGES = ("celery", "psycopg", "redis")
_POLL_INTERVAL = 0.02  # seconds


class ServiceError(LonglineError):
    """A service could not be started, stopped or reached."""


class StartFailed(ServiceError):
    """A service did not start; `lines` are the last ones of its log, if there is one."""

    service: str
    problem: str
    log: str = ""
    lines: tuple[str, ...] = ()
    message = "{service} did not start: {problem}{in_log}"

    @property
    def in_log(self) -> str:
        if not self.log:
            return ""
        end = f", which ends with: {' | '.join(self.lines)}" if self.lines else ""
        return f"; see {self.log}{end}"


class StopFailed(ServiceError):
    """A process did not end, or may not be signalled."""

    service: str
    pid: int
    problem: str
    message = "{service} (process {pid}) could not be stopped: {problem}"


class ServiceUnreachable(ServiceError):
    """A server that the settings name, and longline did not start, does not respond."""

    service: str
    address: str
    problem: str
    message = "{service} at {address} does not respond ({problem})"
    hint = "longline did not start it: start it, or remove its address from the settings."


class ServicesBusy(ServiceError):
    """Another command holds the lock of the home."""

    home: str
    seconds: float
    message = (
        "another `longline up`, `longline down` or `longline db copy` is running in {home}; "
        "this command waited {seconds:g} s for it"
    )
    hint = "Wait for it to end and run this command again."


def check_extra(what: str) -> None:
    """Check that the packages of a cluster are installed.

    Raises:
        MissingExtra: they are not.
    """
    if any(find_spec(name) is None for name in _PACKAGES):
        raise MissingExtra("cluster", what)


def has_cluster(settings: Settings) -> bool:
    """Whether a home uses, or has used, a cluster; if not, a missing Redis is not a fault."""
    return (
        settings.engine == "celery"
        or settings.redis_url is not None
        or settings.broker_url is not None
        or (settings.home / SERVICES_FILE).exists()
    )


# ---------------- The state file

_LOCK_FILE = "up.lock"
_LOCK_TIMEOUT = 120.0  # seconds; longer than `up` or `down` takes


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A process that was started; pid and start time together identify it."""

    name: str
    pid: int
    start_time: float
    command: tuple[str, ...]
    port: int | None
    log: str


@dataclass(frozen=True, slots=True)
class ServicesState:
    """The addresses of the services of a home, and their processes in the order of their start."""

    redis_url: str | None = None
    database_url: str | None = None
    processes: tuple[ProcessEntry, ...] = ()

    def entry(self, name: str) -> ProcessEntry | None:
        """Return the process of this name; None: it was never started."""
        return next((one for one in self.processes if one.name == name), None)

    def without(self, entries: Iterable[ProcessEntry]) -> ServicesState:
        """Return the state without some processes."""
        removed = frozenset(entries)
        return replace(self, processes=tuple(one for one in self.processes if one not in removed))


_STATE = TypeAdapter(ServicesState)


class StateFile:
    """The state of a home's services on disk, private; a writer holds the lock of the home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / SERVICES_FILE

    def read(self) -> ServicesState:
        """Return the recorded state; an empty one when there is no file.

        Raises:
            BadFile: `longline up` did not write the file.
            HomeUnwritable: it belongs to another user.
        """
        try:
            return _STATE.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return ServicesState()
        except OSError as error:
            raise HomeUnwritable(str(self.path), error.strerror or str(error)) from error
        except ValidationError as error:
            problem = "it was not written by `longline up`, or it is damaged"
            raise BadFile(str(self.path), problem) from error

    def discard_if_broken(self) -> None:
        """Rename a file that cannot be read, so that there is none."""
        try:
            self.read()
        except BadFile:
            self.path.replace(self.path.with_name(f"{SERVICES_FILE}.broken"))

    def write(self, state: ServicesState) -> None:
        """Replace the state atomically.

        Raises:
            HomeUnwritable: there is no permission.
            StoreFull: the disk is full.
        """
        try:
            with replacing(self.path) as draft, open_private(draft) as file:
                file.write(_STATE.dump_json(state, indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise home_error(self.path, error) from error

    def add(self, entry: ProcessEntry) -> None:
        """Record a process in place of one of the same name."""
        state = self.read()
        others = tuple(one for one in state.processes if one.name != entry.name)
        self.write(replace(state, processes=(*others, entry)))


def open_private(path: Path) -> Any:
    """Create a file for writing bytes, in place of an older one; other users cannot read it."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextlib.contextmanager
def lifecycle_lock(home: Path, *, timeout: float = _LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the lock of a home, so that one `up`, `down` or copy runs at a time.

    Raises:
        ServicesBusy: another process has held it for longer than `timeout` seconds.
        HomeUnwritable: the file belongs to another user.
        StoreFull: the disk is full.
    """
    try:
        handle = os.open(home / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise home_error(home / _LOCK_FILE, error) from error
    deadline = time.monotonic() + timeout
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise ServicesBusy(str(home), timeout)
            time.sleep(_POLL_INTERVAL)
        yield
    finally:
        os.close(handle)  # the system releases the lock, also when a process dies


# ---------------- Services


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """A service as it is now; None is unknown.

    `is_ours`: `longline up` started it and `longline down` stops it. `since` is in seconds since
    the epoch. `doing` is what a worker has registered in Redis.
    """

    name: str
    is_healthy: bool
    is_ours: bool
    address: str
    since: float | None = None
    pid: int | None = None
    port: int | None = None
    version: str | None = None
    memory_bytes: int | None = None
    log: str | None = None
    doing: dict[str, str] | None = None
    note: str | None = None


class Service:
    """A process with its children that belongs to a home."""

    name: str
    stop_signals: StopSignals

    def __init__(self, file: StateFile) -> None:
        self._file = file

    @property
    def entry(self) -> ProcessEntry | None:
        """The recorded process; None: it was never started."""
        return self._file.read().entry(self.name)

    def is_healthy(self) -> bool:
        """Whether it runs, is ours, and responds."""
        entry = self.entry
        return entry is not None and find_process(entry) is not None

    def start(self) -> None:
        """Start it in place of an earlier one; return when it responds.

        Raises:
            StartFailed: it does not.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Stop it, if it is ours; return when it is gone.

        Raises:
            StopFailed: it does not stop.
        """
        if (entry := self.entry) is not None:
            stop_processes([entry], *self.stop_signals)

    def version(self) -> str | None:
        """Return the version of a healthy server; None if unknown."""
        return None

    def describe(self) -> ServiceStatus:
        """Return its status."""
        entry, is_healthy = self.entry, self.is_healthy()
        process = find_process(entry) if entry else None
        port = entry.port if entry else None
        return ServiceStatus(
            self.name,
            is_healthy,
            is_ours=True,
            address=f"{LOOPBACK}:{port}" if port else "",
            since=entry.start_time if entry and process else None,
            pid=entry.pid if entry and process else None,
            port=port,
            version=self.version() if is_healthy else None,
            memory_bytes=_memory_of(process) if process else None,
            log=entry.log if entry else None,
            note=None if is_healthy else "run `longline up`",
        )


def _memory_of(process: psutil.Process) -> int | None:
    """Return the private memory of a process and its descendants in bytes."""
    total = 0
    with contextlib.suppress(psutil.Error):
        for one in (process, *process.children(recursive=True)):
            used = one.memory_info()
            total += int(used.rss - getattr(used, "shared", 0))
    return total or None


def sqlite_status(settings: Settings) -> ServiceStatus | None:
    """Return the status of the database file; None when the database is a server."""
    if not settings.database.startswith("sqlite"):
        return None
    file = Path(make_url(settings.database).database or "")
    is_healthy, note = True, None
    if not file.exists():
        note = "no job has been run yet"
    else:
        address = f"{file.resolve().as_uri()}?mode=ro"
        try:
            with (
                undecodable_is_damage(),
                contextlib.closing(sqlite3.connect(address, uri=True)) as connection,
            ):
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            is_healthy, note = False, f"{file} cannot be read: {error}"
    address = redact_url(settings.database)
    return ServiceStatus("sqlite", is_healthy, is_ours=True, address=address, note=note)


# ---------------- Start

_CLOCK_SKEW = 5.0  # seconds; setting the clock moves start times, and no pid is reused so soon
MARK = "LONGLINE_UP"  # an environment variable that descendants inherit; its value is the home
# The shell waits until its pid is recorded and then becomes the program. If this process is killed
# before that, the closed pipe ends the shell, and nothing is left behind.
_GATE = 'read -r _ || exit 1; exec "$@" </dev/null'
PRIVATE = 0o077
"""The umask of a server, whose files are private to its user."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a process; `user` is another user, or None."""

    name: str
    command: Sequence[str]
    log: Path
    port: int | None = None
    folder: Path | None = None
    user: pwd.struct_passwd | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    umask: int = -1  # unchanged: workers write exports, which belong to the user


def launch(plan: Launch, file: StateFile) -> ProcessEntry:
    """Start a process in its own session; it is recorded before it does anything.

    Raises:
        StartFailed: the system refuses.
    """
    user: dict[str, Any] = {}
    if plan.user is not None:  # without our groups
        user = {"user": plan.user.pw_uid, "group": plan.user.pw_gid, "extra_groups": []}
    try:
        make_private_folder(plan.log.parent)
        with open(plan.log, "ab", opener=private_opener) as log:  # Path.open has no opener
            shell = subprocess.Popen(  # noqa: S603  # the program is ours or the user's own
                ["/bin/sh", "-c", _GATE, "sh", *plan.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=plan.folder,
                umask=plan.umask,
                env={**os.environ, **plan.variables, MARK: str(file.home)},
                **user,
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


def wait_until_up(entry: ProcessEntry, is_up: Callable[[], bool], seconds: float) -> None:
    """Wait until a service responds.

    Raises:
        StartFailed: it exited, or does not respond; with the last lines of its log.
    """
    deadline = time.monotonic() + seconds
    while not is_up():
        if find_process(entry) is None:
            raise start_failed(entry, "it exited immediately")
        if time.monotonic() > deadline:
            raise start_failed(entry, f"it did not respond within {seconds:g} s")
        time.sleep(_POLL_INTERVAL)


_LAST_LINES = 5


def start_failed(entry: ProcessEntry, problem: str) -> StartFailed:
    """Return the error for a process, with the last lines of its log."""
    lines: list[str] = []
    with contextlib.suppress(OSError), Path(entry.log).open(errors="replace") as log:
        lines = [line.strip() for line in log if line.strip()]
    return StartFailed(entry.name, problem, entry.log, tuple(lines[-_LAST_LINES:]))


LOOPBACK = "127.0.0.1"


def choose_port(wanted: int | None) -> int:
    """Return the wanted port, or a free one if it is taken."""
    for port in (wanted or 0, 0):
        with contextlib.suppress(OSError), socket.create_server((LOOPBACK, port)) as listener:
            return int(listener.getsockname()[1])
    raise StartFailed("server", f"no port of {LOOPBACK} is free")


# ---------------- Find and stop

_KILL_TIMEOUT = 10.0  # seconds in which the system ends a killed process


def find_process(entry: ProcessEntry) -> psutil.Process | None:
    """Return the process of an entry; None when it has ended or its pid was reused."""
    try:
        process = psutil.Process(entry.pid)
        if not _is_same(process, entry):
            return None
        # The main thread of a killed process may end before others, which still hold its ports.
        if process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
            return process
    except psutil.NoSuchProcess:
        return None
    with contextlib.suppress(ChildProcessError):  # a child of another process
        os.waitpid(entry.pid, os.WNOHANG)
    return None


def stop_processes(
    entries: Iterable[ProcessEntry], *stop_signals: tuple[signal.Signals, float]
) -> None:
    """Stop processes and their descendants: with the given signals first, then with SIGKILL.

    Raises:
        StopFailed: one still runs, or belongs to another user.
    """
    entries = list(entries)
    seen = frozenset(one for one in entries if find_process(one))
    for sent, seconds in stop_signals:
        _send_signal(filter(None, map(find_process, entries)), sent)
        if wait_until_gone(entries, seconds):
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


def _is_same(process: psutil.Process, entry: ProcessEntry) -> bool:
    return bool(abs(process.create_time() - entry.start_time) < _CLOCK_SKEW)


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
    """Return what still runs of processes and their sessions; `seen` ran shortly before.

    A pid is not reused while its session exists, so the session identifies the descendants of a
    process that has ended. If it ended before that, the inherited MARK does.
    """
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            found.setdefault(os.getsid(process.pid), []).append(process)
    left = list(filter(None, map(find_process, entries)))
    for entry in entries:
        with contextlib.suppress(psutil.NoSuchProcess):
            if entry not in seen and not _is_same(psutil.Process(entry.pid), entry):
                continue  # another process has the pid now
        left += [
            process
            for process in found.get(entry.pid, ())
            if process.pid != entry.pid and _is_descendant(process, entry, is_seen=entry in seen)
        ]
    return left


def _is_descendant(process: psutil.Process, entry: ProcessEntry, *, is_seen: bool) -> bool:
    with contextlib.suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            return is_seen or process.environ().get(MARK) == str(Path(entry.log).parent.parent)
    return False


# ---------------- Signals while services are started and stopped

_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_KILLED_BY = 128  # a shell adds the number of the signal to it


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP, as Ctrl-C raises KeyboardInterrupt.

    Signals that already have a handler keep it. Only the main thread can handle signals.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_KILLED_BY + number)

    is_main = threading.current_thread() is threading.main_thread()
    unhandled = [one for one in _EXIT_SIGNALS if signal.getsignal(one) is signal.SIG_DFL]
    for one in unhandled if is_main else ():
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one in unhandled if is_main else ():
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Delay signals to this thread while services are stopped, which takes a bounded time."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, *_EXIT_SIGNALS))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
