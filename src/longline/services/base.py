"""Services of a home: their interface and status, and what needs no optional package."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from sqlalchemy import make_url

from longline.config.settings import SERVICES_FILE, Settings
from longline.core.errors import MissingExtra
from longline.core.files import make_private_folder, private_opener
from longline.core.redaction import redact_url
from longline.core.sqlite_files import undecodable_is_damage
from longline.services.errors import StartFailed

T = TypeVar("T")
OnStep = Callable[[str, str], None]
"""Called with the name of a service and what happened to it."""
_PACKAGES = ("celery", "psycopg", "redis")


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


class Service(Protocol):
    """A process with its children that belongs to a home."""

    name: str

    def is_healthy(self) -> bool:
        """Whether it runs, is ours, and responds."""

    def start(self) -> None:
        """Start it in place of an earlier one; return when it responds.

        Raises:
            StartFailed: it does not.
        """

    def stop(self) -> None:
        """Stop it, if it is ours; return when it is gone.

        Raises:
            StopFailed: it does not stop.
        """

    def describe(self) -> ServiceStatus:
        """Return its status."""


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


def sqlite_status(settings: Settings) -> ServiceStatus | None:
    """Return the status of the database file; None when the database is a server."""
    if not settings.database.startswith("sqlite"):
        return None
    file = Path(make_url(settings.database).database or "")
    problem = _sqlite_problem(file) if file.exists() else None
    note = problem if file.exists() else "no job has been run yet"
    address = redact_url(settings.database)
    is_healthy = problem is None
    return ServiceStatus("sqlite", is_healthy, is_ours=True, address=address, note=note)


def _sqlite_problem(file: Path) -> str | None:
    try:
        address = f"{file.resolve().as_uri()}?mode=ro"
        with undecodable_is_damage(), closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        return f"{file} cannot be read: {error}"
    return None


# ---------------- Logs: one private file per service

_LAST_LINES = 5
_TAIL_BYTES = 4_096  # enough for them


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending; other users cannot read it."""
    make_private_folder(path.parent)
    return open(path, "ab", opener=private_opener)  # Path.open has no opener


def last_lines(path: str) -> tuple[str, ...]:
    """Return the last lines of a log; none when it cannot be read."""
    try:
        with Path(path).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line.strip() for line in text.splitlines() if line.strip())[-_LAST_LINES:]


# ---------------- Ports on the loopback interface

LOOPBACK = "127.0.0.1"
_PORT_ATTEMPTS = 3  # another process may take a port between our check and the server's start


def free_port(wanted: int | None = None) -> int:
    """Return the wanted port if it is free, or any free one."""
    if wanted is not None and _is_free_port(wanted):
        return wanted
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


def start_on_free_port(wanted: int | None, start: Callable[[int], T]) -> T:
    """Start a server on the wanted port or a free one; on another one if it was taken meanwhile.

    Raises:
        StartFailed: it does not start.
    """
    for _ in range(_PORT_ATTEMPTS - 1):
        port = free_port(wanted)
        try:
            return start(port)
        except StartFailed:
            if _is_free_port(port):
                raise
    return start(free_port())


def _is_free_port(port: int) -> bool:
    try:
        with socket.create_server((LOOPBACK, port)):
            return True
    except OSError:
        return False
