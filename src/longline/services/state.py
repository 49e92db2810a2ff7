"""The services that `longline up` started in a home: addresses and processes, in a private file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from longline.config.settings import SERVICES_FILE, home_error
from longline.core.errors import BadFile, HomeUnwritable
from longline.services.errors import ServicesBusy

_PRIVATE = 0o600  # the file holds passwords
_LOCK_FILE = "up.lock"
_LOCK_TIMEOUT = 120.0  # seconds; longer than `up` or `down` takes
_LOCK_INTERVAL = 0.05


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
        """Return the process of this name."""
        return next((one for one in self.processes if one.name == name), None)

    def having(self, entry: ProcessEntry) -> ServicesState:
        """Return the state with a process added or replaced by name."""
        others = tuple(one for one in self.processes if one.name != entry.name)
        return replace(self, processes=(*others, entry))

    def without(self, entries: Iterable[ProcessEntry]) -> ServicesState:
        """Return the state without some processes."""
        removed = frozenset(entries)
        return replace(self, processes=tuple(one for one in self.processes if one not in removed))


class StateFile:
    """The state of a home's services on disk; a writer holds the lock of the home."""

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
            return _parse_state(orjson.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return ServicesState()
        except OSError as error:
            raise HomeUnwritable(str(self.path), error.strerror or str(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFile(str(self.path), "this is not what `longline up` writes") from error

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
        new = self.path.with_name(f".{SERVICES_FILE}.new")
        try:
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb") as f:
                f.write(orjson.dumps(asdict(state), option=orjson.OPT_INDENT_2) + b"\n")
                f.flush()
                os.fsync(f.fileno())
            new.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise home_error(self.path, error) from error

    def add(self, entry: ProcessEntry) -> None:
        """Record a process."""
        self.write(self.read().having(entry))


def _parse_state(values: dict[str, Any]) -> ServicesState:
    entries = (
        ProcessEntry(**{**one, "command": tuple(one["command"])})
        for one in values.get("processes", ())
    )
    return ServicesState(values.get("redis_url"), values.get("database_url"), tuple(entries))


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
            time.sleep(_LOCK_INTERVAL)
        yield
    finally:
        os.close(handle)  # the system releases the lock, also when a process dies
