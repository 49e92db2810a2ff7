"""The proof that finished jobs leave nothing in Redis permanently."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from redis import Redis

from cluster_parts import Cluster, open_cluster
from proofs import Figure, Proof, Sizes, at_most, exactly, nothing_wrong, unjudged
from trial_server import TrialServer

NAME = "cluster-memory"
_BAR = 5.0  # megabytes
_MEGABYTE = 1_000_000
_AHEAD = 100  # jobs that may be unfinished at a time
_WARM = 50
_PROCESSES = 2
_DEADLINE = 3600.0  # seconds for all jobs
_STILL = 120.0  # seconds in which some job must end
_DAY = 24 * 3600
_FOR_GOOD = 20  # keys without a lifetime that a cluster may have, however many jobs it has run


@dataclass(frozen=True, slots=True)
class _Look:
    """A snapshot of Redis; `kinds` counts keys by prefix.

    `longest` is the longest lifetime, in seconds, among kinds of which there are many keys.
    """

    used_bytes: int
    kinds: Counter[str]
    for_good: list[str]
    longest: float


def prove(sizes: Sizes) -> Proof:
    """Run many small jobs and measure Redis before, after, and when all lifetimes have expired."""
    with TrialServer(latency=0.0, list_latency=0.0) as server, open_cluster() as cluster:
        cluster.hire("one", _PROCESSES)
        cluster.await_workers()
        asyncio.run(_run(cluster, server, _WARM, "warm"))
        with Redis.from_url(cluster.redis_url, decode_responses=True) as redis:
            before = _look(redis)
            began = time.monotonic()
            ended = asyncio.run(_run(cluster, server, sizes.cluster_jobs, "job"))
            seconds = time.monotonic() - began
            after = _look(redis)
            _pass_lifetimes(redis)
            later = _look(redis)
        complete = int(
            cluster.judge.number("SELECT count(*) FROM jobs WHERE state = 'complete'")
        ) - min(_WARM, ended)
    about = (
        f"{sizes.cluster_jobs:,} jobs of one item each, submitted as `longline run --detach` "
        f"does, at most {_AHEAD} unfinished at a time, to one worker of {_PROCESSES} processes. "
        f"The memory of Redis (`used_memory` after `MEMORY PURGE`) is measured when {_WARM} jobs "
        "more than that have run, after the last job, and again after every key with a lifetime "
        "was made to expire: what is left then would stay forever."
    )
    return Proof(
        NAME,
        about,
        _figures(sizes, ended, complete=complete, seconds=seconds, looks=(before, after, later)),
    )


async def _run(cluster: Cluster, server: TrialServer, count: int, name: str) -> int:
    """Submit jobs, a limited number at a time; return how many were submitted in time."""
    until = time.monotonic() + _DEADLINE
    options: dict[str, Any] = {"base_url": server.url, "count": 1, "pages": 1}
    async with cluster.orchestrator() as longline:
        sent = 0
        while sent < count and time.monotonic() < until:
            if sent % _AHEAD == 0:
                await _few_left(cluster, _AHEAD)
            wanted = {"set": {**options, "trial": f"{name}{sent:05}"}, "rate": "unlimited"}
            await longline.submit("trial_source:Trials", wanted, fresh=True)
            sent += 1
            if sent % 1000 == 0:
                print(f"{sent} jobs")
    await _few_left(cluster, 1)
    return sent


async def _few_left(cluster: Cluster, count: int) -> None:
    """Wait until fewer than `count` jobs are unfinished.

    Raises:
        TimeoutError: no further job ended.
    """
    last, moved_at = -1, time.monotonic()
    sql = "SELECT count(*) FROM jobs WHERE state IN ('pending', 'running', 'paused')"
    while (left := int(cluster.judge.number(sql))) >= count:
        if left != last:
            last, moved_at = left, time.monotonic()
        if time.monotonic() - moved_at > _STILL:
            message = f"{left} jobs do not end"
            raise TimeoutError(message)
        await asyncio.sleep(0.1)


def _look(redis: Any) -> _Look:
    redis.memory_purge()
    keys = list(redis.scan_iter(count=1000))
    with redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.ttl(key)
        lives = pipe.execute()
    kinds = Counter(map(_kind, keys))
    for_good = [key for key, life in zip(keys, lives, strict=True) if life == -1]
    many = {kind for kind, count in kinds.items() if count > _FOR_GOOD}
    longest = max(
        (life for key, life in zip(keys, lives, strict=True) if _kind(key) in many), default=0
    )
    return _Look(int(redis.info("memory")["used_memory"]), kinds, for_good, longest)


def _kind(key: str) -> str:
    return ":".join(key.split(":")[:2])


def _pass_lifetimes(redis: Any) -> None:
    """Make every key with a lifetime expire now, so that Redis removes it."""
    with redis.pipeline(transaction=False) as pipe:
        for key in list(redis.scan_iter(count=1000)):
            if redis.ttl(key) >= 0:
                pipe.pexpire(key, 1)
        pipe.execute()
    time.sleep(3)
    list(redis.scan_iter(count=1000))  # reading an expired key removes it


def _figures(
    sizes: Sizes,
    ended: int,
    *,
    complete: int,
    seconds: float,
    looks: tuple[_Look, _Look, _Look],
) -> list[Figure]:
    before, after, later = looks
    odd = after.for_good if len(after.for_good) > _FOR_GOOD else []
    return [
        exactly("jobs submitted in the given time", ended, sizes.cluster_jobs),
        exactly("jobs that ended complete", complete, ended),
        unjudged("jobs per second, submitted and ended", f"{ended / seconds:.1f}"),
        unjudged("Redis at the start", f"{before.used_bytes / _MEGABYTE:.2f} MB"),
        unjudged("growth, right after the last job", _more(before, after)),
        unjudged(
            "keys at that time", ", ".join(f"{name} {count}" for name, count in after.kinds.items())
        ),
        at_most("longest lifetime of keys of a job", after.longest, _DAY, "s"),
        nothing_wrong(f"at most {_FOR_GOOD} keys without a lifetime", odd),
        unjudged("keys without a lifetime", ", ".join(sorted(after.for_good)[:20]) or "none"),
        at_most(
            "growth since the start, after all lifetimes expired",
            (later.used_bytes - before.used_bytes) / _MEGABYTE,
            _BAR,
            "MB",
        ),
    ]


def _more(before: _Look, after: _Look) -> str:
    return f"{(after.used_bytes - before.used_bytes) / _MEGABYTE:.2f} MB"
