"""What `longline up` has started in a home: addresses and processes, in a file for one user."""

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

from longline.config.errors import HomeUnwritable
from longline.config.settings import SERVICES_FILE, unwritable
from longline.core.errors import BadFile
from longline.services.errors import ServicesBusy

_PRIVATE = 0o600  # it holds passwords


@dataclass(frozen=True, slots=True)
class Entry:
    """A process that was started; pid and start time together name it for good."""

    name: str
    pid: int
    start_time: float
    command: tuple[str, ...]
    port: int | None
    log: str


@dataclass(frozen=True, slots=True)
class Record:
    """Where the services of a home answer, and their processes in the order of their start."""

    redis_url: str | None = None
    database_url: str | None = None
    processes: tuple[Entry, ...] = ()

    def entry(self, name: str) -> Entry | None:
        """Return the process of this name."""
        return next((one for one in self.processes if one.name == name), None)

    def having(self, entry: Entry) -> Record:
        """Return this with a process more, instead of one of the same name."""
        others = tuple(one for one in self.processes if one.name != entry.name)
        return replace(self, processes=(*others, entry))

    def without(self, entries: Iterable[Entry]) -> Record:
        """Return this without some processes."""
        gone = frozenset(entries)
        return replace(self, processes=tuple(one for one in self.processes if one not in gone))


class RecordFile:
    """The record of a home on disk; whoever changes it holds the lock of the home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / SERVICES_FILE

    def read(self) -> Record:
        """Return what is recorded; nothing when there is no file.

        Raises:
            BadFile: the file is not one of ours.
            HomeUnwritable: it belongs to another user.
        """
        try:
            return _record(orjson.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return Record()
        except OSError as error:
            raise HomeUnwritable(str(self.path), error.strerror or str(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFile(str(self.path), "this is not what `longline up` writes") from error

    def mend(self) -> None:
        """Put a file that is not one of ours aside, so that there is none."""
        try:
            self.read()
        except BadFile:
            self.path.replace(self.path.with_name(f"{SERVICES_FILE}.broken"))

    def write(self, record: Record) -> None:
        """Put a record in place of the last, whole or not at all.

        Raises:
            HomeUnwritable: there is no right to.
            StoreFull: there is no room.
        """
        new = self.path.with_name(f".{SERVICES_FILE}.new")
        try:
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb") as f:
                f.write(orjson.dumps(asdict(record), option=orjson.OPT_INDENT_2) + b"\n")
                f.flush()
                os.fsync(f.fileno())
            new.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise unwritable(self.path, error) from error

    def add(self, entry: Entry) -> None:
        """Record a process."""
        self.write(self.read().having(entry))


def _record(found: dict[str, Any]) -> Record:
    entries = (
        Entry(**{**one, "command": tuple(one["command"])}) for one in found.get("processes", ())
    )
    return Record(found.get("redis_url"), found.get("database_url"), tuple(entries))


# ---------------- One `longline up` or `down` at a time in a home

_FILE = "up.lock"
_PATIENCE = 120.0  # seconds; longer than either takes
_LOOK = 0.05


@contextlib.contextmanager
def alone_in(home: Path, *, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the lock of a home; the system lets go of it when a process dies.

    Raises:
        ServicesBusy: another process has held it for longer than `patience`.
        HomeUnwritable: the file belongs to another user.
        StoreFull: there is no room for it.
    """
    try:
        handle = os.open(home / _FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise unwritable(home / _FILE, error) from error
    try:
        _lock(handle, home, patience)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, home: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > deadline:
            raise ServicesBusy(str(home), patience)
        time.sleep(_LOOK)
