"""What a service is to those who start and stop it, and how a part of the cluster is described."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from longline.core.files import make_private_folder, private_opener
from longline.services.errors import StartFailed

Told = Callable[[str, str], None]
"""Is given the name of a part and what happens to it, as it happens."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a cluster as it is now; None is what nobody knows.

    `is_ours` says that `longline up` has started it and `longline down` will stop it; `since` is in
    seconds since the epoch; `doing` is what a worker says of itself.
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
    """One process, with its children, that a home may have."""

    name: str

    def is_healthy(self) -> bool:
        """Say whether it runs, is ours, and answers."""

    def start(self) -> None:
        """Start it, in place of what is left of an earlier one; return when it answers.

        Raises:
            StartFailed: it does not.
        """

    def stop(self) -> None:
        """Stop it, if it is ours; return when it is gone.

        Raises:
            StopFailed: it stays.
        """

    def describe(self) -> Part:
        """Return what there is to say about it."""


# ---------------- Logs of what was started: one file each in the home, for one user to read

_SHOWN = 5  # lines
_TAIL = 4_096  # bytes that surely hold them


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending; nobody else can read it."""
    make_private_folder(path.parent)
    return open(path, "ab", opener=private_opener)  # Path has no opener


def last_lines(path: str) -> tuple[str, ...]:
    """Return the end of a log; nothing when it cannot be read."""
    try:
        with Path(path).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line.strip() for line in text.splitlines() if line.strip())[-_SHOWN:]


# ---------------- Ports of this machine that nobody else reaches

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
_TRIES = 3  # somebody may take a port between our look and the server's


def a_port(wanted: int | None = None) -> int:
    """Return the port that is wanted, or any that is free when somebody has that one."""
    if wanted is not None and _is_free(wanted):
        return wanted
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


def on_a_port(wanted: int | None, start: Callable[[int], T]) -> T:
    """Start something on a port, on another one when somebody took it in the meantime.

    Raises:
        StartFailed: it does not start, for whatever reason.
    """
    for _ in range(_TRIES - 1):
        port = a_port(wanted)
        try:
            return start(port)
        except StartFailed:
            if _is_free(port):
                raise
    return start(a_port())


def _is_free(port: int) -> bool:
    try:
        with socket.create_server((LOOPBACK, port)):
            return True
    except OSError:
        return False
