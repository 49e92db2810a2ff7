"""Names of the owners of leases, and whether their processes are alive."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path

import psutil

from longline.core.model import Job, JobState
from longline.storage.store import Store

_CLOCK_TOLERANCE = 5.0  # seconds; a pid is not used again that soon
_QUIET = 60.0  # seconds without a lease that a process may need before the first item, or to end
_PARTS_OF_CHILD = 6  # host, pid, start, random word, parent, start of the parent


@cache
def this_host() -> str:
    """Return a name for all processes that can see each other: usually those of one host.

    Containers may share the name of their host, and its kernel, but not its pids. So the name has a
    hash of the kernel's boot and of the namespace of pids, where there are such things.
    """
    marks = []
    with suppress(OSError):  # not Linux, or hidden
        marks.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    with suppress(OSError):
        marks.append(str(Path("/proc/self/ns/pid").readlink()))
    name = socket.gethostname()
    if not marks:
        return name
    return f"{name}~{blake2b(' '.join(marks).encode(), digest_size=4).hexdigest()}"


def this_run() -> str:
    """Return a unique owner name: host, pid, start time, and a random word.

    The word separates two runs of one process: the heartbeat of a run must not renew leases that an
    earlier one left behind.
    """
    return f"{_this_process()}:{secrets.token_hex(3)}"


def this_child() -> str:
    """Return a name like `this_run`, with pid and start time of the parent process.

    So it is known whether a child died alone, or together with its worker.
    """
    parent = os.getppid()
    return f"{this_run()}:{parent}:{_start_time(parent):.2f}"


def _this_process() -> str:
    pid = os.getpid()
    return f"{this_host()}:{pid}:{_start_time(pid):.2f}"


@lru_cache(maxsize=2)  # a name is made for every chunk
def _start_time(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0


def process_of(owner: str) -> int | None:
    """Return the pid in an owner name."""
    return _number(owner, 1)


def parent_of(owner: str) -> int | None:
    """Return the parent's pid in a name of `this_child`."""
    return _number(owner, 4)


def _number(owner: str, place: int) -> int | None:
    parts = owner.split(":")
    return int(parts[place]) if len(parts) > place and parts[place].isdigit() else None


def describe_owner(owner: str) -> str:
    """Return the process of an owner for people."""
    host = owner.partition(":")[0].partition("~")[0]
    pid = process_of(owner)
    return host if pid is None else f"process {pid} on {host}"


def own_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that are this process."""
    return [owner for owner in owners if owner.startswith(f"{_this_process()}:")]


def living_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that are live processes of this host."""
    host = this_host()
    return [owner for owner in owners if owner.startswith(f"{host}:") and not _is_dead(owner)]


def dead_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that are dead processes of this host.

    Leases of other hosts expire when their heartbeat stops.
    """
    return [owner for owner in owners if _is_dead(owner)]


def killed_among(owners: Iterable[str]) -> list[str]:
    """Return the dead owners whose parents live: they were killed alone."""
    return [owner for owner in dead_among(owners) if _has_living_parent(owner)]


async def is_abandoned(store: Store, job: Job, at: float) -> bool:
    """Return whether a local job is running in the database, but all its processes are dead.

    Unknown while no process needs a lease: all items are deferred, or the job has just started or
    finished an item, which may be the last one.
    """
    return bool(await abandoned_among(store, [job], at))


async def abandoned_among(store: Store, jobs: Iterable[Job], at: float) -> frozenset[str]:
    """Return the ids of the jobs that are abandoned (`is_abandoned`)."""
    local = [one.id for one in jobs if one.state is JobState.RUNNING and one.engine == "local"]
    owners = await store.queue.owners_of(local, at) if local else {}
    dead = [job for job, several in owners.items() if len(dead_among(several)) == len(several)]
    if not dead:
        return frozenset()
    unowned = [job for job in dead if not owners[job]]
    alive = await store.queue.deferred_among(dead, at)
    # A process that ends releases its leases; one that was killed leaves them to expire.
    last = await store.queue.owners_of(unowned, 0.0) if unowned else {}
    killed = [job for job, several in last.items() if several and several == dead_among(several)]
    quiet = await store.queue.active_among(sorted({*unowned} - {*killed}), at - _QUIET)
    return frozenset(dead) - alive - quiet


def _is_dead(owner: str) -> bool:
    host, pid, started, *_ = [*owner.split(":"), "", ""]
    return _is_gone(host, pid, started)


def _has_living_parent(owner: str) -> bool:
    parts = owner.split(":")
    return len(parts) == _PARTS_OF_CHILD and not _is_gone(parts[0], *parts[4:])


def _is_gone(host: str, pid: str, started: str) -> bool:
    """Return whether a process of this host has ended."""
    if host != this_host() or not pid.isdigit():
        return False
    try:
        process = psutil.Process(int(pid))
        # A pid is used again at some time, with another start time. That is computed from the time
        # of the boot, which moves when the clock is set.
        is_same = abs(process.create_time() - float(started)) < _CLOCK_TOLERANCE
        return not is_same or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except (psutil.AccessDenied, ValueError):
        return False
