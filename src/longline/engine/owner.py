"""Who holds a lease, whether that process is still alive, and whether anybody works on a job."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path

import psutil

from longline.core.model import Job, JobState
from longline.storage.store import Store

_CLOCK_SET = 5.0  # seconds; no pid comes round that soon


@cache
def this_host() -> str:
    """Return a name for all processes that can see each other: those of one host as a rule.

    Containers may share the name of their host, and its kernel, but not its pids: what is 7 in one
    is another process in the next. So the kernel's boot and the namespace of pids are in the name,
    as far as there are such things. A name without them, of an older longline, is a stranger's.
    """
    marks = [mark for read in (_boot, _namespace) if (mark := _quietly(read))]
    name = socket.gethostname()
    if not marks:
        return name
    return f"{name}~{blake2b(' '.join(marks).encode(), digest_size=4).hexdigest()}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _quietly(read: Callable[[], str]) -> str | None:
    try:
        return read()
    except OSError:  # not Linux, or hidden
        return None


def this_run() -> str:
    """Return a name that no other run has: host, pid, start time, and a word of its own.

    The word keeps two runs of one process apart: a run that broke off leaves leases behind, which
    the heartbeat of the next must not keep alive.
    """
    return f"{_this_process()}:{secrets.token_hex(3)}"


def _this_process() -> str:
    """Return what all names of this process begin with."""
    pid = os.getpid()
    return f"{this_host()}:{pid}:{_start_of(pid):.2f}"


def this_child() -> str:
    """Return a name as `this_run` does, with the process that this one is a child of added.

    So it can be told whether a child died alone, or because its whole worker did.
    """
    parent = os.getppid()
    return f"{this_run()}:{parent}:{_start_of(parent):.2f}"


@lru_cache(maxsize=2)  # a name is made for every chunk, and these two do not change
def _start_of(pid: int) -> float:
    """Return when a process began; 0 for one that is gone or cannot be seen."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0


def process_of(owner: str) -> int | None:
    """Return the pid in a name that `this_run` has made; None when it is no such name."""
    return _number(owner, 1)


def in_words(owner: str) -> str:
    """Return the process that a name stands for, as a person can find it."""
    host = owner.partition(":")[0].partition("~")[0]  # what follows is for machines
    pid = process_of(owner)
    return host if pid is None else f"process {pid} on {host}"


def parent_of(owner: str) -> int | None:
    """Return the parent's pid in a name that `this_child` has made; None: it is no such name."""
    return _number(owner, 4)


def _number(owner: str, place: int) -> int | None:
    parts = owner.split(":")
    return int(parts[place]) if len(parts) > place and parts[place].isdigit() else None


def own_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that are this process, under whatever word."""
    return [owner for owner in owners if owner.startswith(f"{_this_process()}:")]


def killed_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that died although their parents live: something killed just them."""
    return [owner for owner in dead_among(owners) if _has_living_parent(owner)]


def living_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that surely live: processes of this host that are there."""
    host = this_host()
    return [owner for owner in owners if owner.startswith(f"{host}:") and not _is_dead(owner)]


def dead_among(owners: Iterable[str]) -> list[str]:
    """Return the owners that are surely dead: processes of this host that are gone.

    Of other hosts nothing is known; their leases expire when their heartbeat stops.
    """
    return [owner for owner in owners if _is_dead(owner)]


async def is_abandoned(store: Store, job: Job, at: float) -> bool:
    """Say whether a job claims to run although everybody who worked on it is dead.

    Of a job whose items are all parked until later nothing is known: whoever waits for them holds
    none. A cluster sees to its own.
    """
    if job.state is not JobState.RUNNING or job.engine != "local":
        return False
    due = await store.queue.next_due(job.id)
    if due is not None and due > at:
        return False
    owners = await store.queue.owners(job.id, at)
    return len(dead_among(owners)) == len(owners)


def _is_dead(owner: str) -> bool:
    host, _, rest = owner.partition(":")
    pid, _, rest = rest.partition(":")
    return _is_gone(host, pid, rest.partition(":")[0])


def _has_living_parent(owner: str) -> bool:
    host, *parts = owner.split(":")
    if len(parts) != len(("pid", "started", "word", "parent", "parent's start")):
        return False
    return not _is_gone(host, *parts[3:])


def _is_gone(host: str, pid: str, started: str) -> bool:
    """Say whether a process of this host has surely ended."""
    if host != this_host() or not pid.isdigit():
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


# ---------------- Being told to stop: the first signal stops a run well, a second one at once
