"""Who holds a lease, and whether that process is still alive."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

import psutil


def this_process() -> str:
    """Return a name that no other process has, now or later: host, pid and start time."""
    return f"{socket.gethostname()}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def dead_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that are surely dead: processes of this host that are gone.

    Of other hosts nothing is known; their leases expire when their heartbeat stops.
    """
    return [owner for owner in owners if _is_dead(owner)]


def _is_dead(owner: str) -> bool:
    host, _, rest = owner.partition(":")
    pid, _, started = rest.partition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        process = psutil.Process(int(pid))
        # A pid is used again some day; the start time tells the two apart.
        is_same = f"{process.create_time():.2f}" == started
        return not is_same or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
