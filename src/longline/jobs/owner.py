"""Who holds a lease, whether that process is still alive, and whether anybody works on a job."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable

import psutil

from longline.model import Job, JobState
from longline.stores.store import Store

_CLOCK_SET = 5.0  # seconds; no pid comes round that soon


def this_run() -> str:
    """Return a name that no other run has: host, pid, start time, and a word of its own.

    The word keeps two runs of one process apart: a run that broke off leaves leases behind, which
    the heartbeat of the next must not keep alive.
    """
    started = psutil.Process().create_time()
    return f"{socket.gethostname()}:{os.getpid()}:{started:.2f}:{secrets.token_hex(3)}"


def dead_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that are surely dead: processes of this host that are gone.

    Of other hosts nothing is known; their leases expire when their heartbeat stops.
    """
    return [owner for owner in owners if _is_dead(owner)]


async def is_abandoned(store: Store, job: Job, at: float) -> bool:
    """Say whether a job claims to run although everybody who worked on it is dead.

    Of a job whose items are all parked until later nothing is known: whoever waits for them holds
    none.
    """
    if job.state is not JobState.RUNNING:
        return False
    due = await store.queue.next_due(job.id)
    if due is not None and due > at:
        return False
    owners = await store.queue.owners(job.id)
    return len(dead_among(owners)) == len(owners)


def _is_dead(owner: str) -> bool:
    host, _, rest = owner.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        process = psutil.Process(int(pid))
        # A pid is used again some day; the start time tells the two apart. It is reckoned from the
        # moment of booting, which moves when somebody sets the clock.
        is_same = abs(process.create_time() - float(started)) < _CLOCK_SET
        return not is_same or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (psutil.AccessDenied, ValueError):
        return False
