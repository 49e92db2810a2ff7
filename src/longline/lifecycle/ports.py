"""Ports of this machine that nobody else reaches."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeVar

from longline.errors import StartFailed

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
