"""Many sites on a cluster: started, looked at, and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.distributed.app import broker_of
from longline.distributed.registry import ENDED, Mirror
from longline.engine.sites import SiteProgress, is_over, progress_of
from longline.storage.store import Store

_POLL = 2.0  # seconds between looks at the pictures in Redis
_TRUTH = 10.0  # and at the database, whatever Redis says
_ANSWER = 3.0  # seconds that Redis has for an answer; then the database is asked


class Sites:
    """Looks at jobs of a cluster; open it with `Sites.open`."""

    def __init__(self, store: Store, redis: Redis, clock: Clock) -> None:
        self._store = store
        self._redis = redis
        self._mirror = Mirror(redis)
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Self]:
        """Open the way to the pictures; that Redis is away does not matter."""
        redis: Redis = Redis.from_url(
            settings.redis or broker_of(settings),
            socket_timeout=_ANSWER,
            socket_connect_timeout=_ANSWER,
        )
        try:
            yield cls(store, redis, clock)
        finally:
            await redis.aclose()

    async def progress(self, job: str) -> SiteProgress:
        """Return how far a job is: the picture in Redis, or what the database says.

        Raises:
            UnknownJob: there is no such job.
        """
        with suppress(RedisError, OSError):
            if picture := await self._mirror.look(job):
                return picture
        return await self._truth(job)

    async def wait(
        self, jobs: Iterable[str], *, seconds: float | None = None
    ) -> dict[str, SiteProgress]:
        """Wait until nobody works on these jobs any more; return how far each is then.

        An end is heard of on a channel; whoever misses that sees it in the pictures, and in any
        case in the database. After `seconds` the jobs are returned as they are.

        Raises:
            UnknownJob: there is no such job.
        """
        names = list(jobs)
        ended: dict[str, SiteProgress] = {}
        await self._look_for_ends(names, ended)
        deadline = None if seconds is None else self._clock.now() + seconds
        truth_at = self._clock.now() + _TRUTH
        async with self._listening() as ends:
            while waiting := [job for job in names if job not in ended]:
                now = self._clock.now()
                if deadline is not None and now >= deadline:
                    break
                told = await self._heard(ends, _POLL if deadline is None else deadline - now)
                is_truth_due = self._clock.now() >= truth_at
                # What was told and what the pictures say is only a reason to ask the database.
                asked = [
                    job
                    for job in waiting
                    if is_truth_due or job == told or await self._is_over_there(job)
                ]
                await self._look_for_ends(asked, ended)
                if is_truth_due:
                    truth_at = self._clock.now() + _TRUTH
        return {job: ended.get(job) or await self._truth(job) for job in names}

    async def _look_for_ends(self, jobs: Iterable[str], ended: dict[str, SiteProgress]) -> None:
        """Note how far those are that nobody works on any more; the others are not counted."""
        for name in jobs:
            job = await self._store.jobs.get(name)
            if is_over(job):
                ended[name] = await progress_of(self._store, job)

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[PubSub]:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as ends:
            yield ends

    async def _heard(self, ends: PubSub, seconds: float) -> str | None:
        """Wait for word of an end, at most until the next look is due."""
        seconds = min(max(seconds, 0.01), _POLL)
        began = self._clock.now()
        try:
            if not ends.subscribed:
                await ends.subscribe(ENDED)
            message: dict[str, Any] | None = await ends.get_message(timeout=seconds)
        except (RedisError, OSError, TimeoutError):
            await asyncio.sleep(max(0.0, seconds - (self._clock.now() - began)))
            return None
        return message["data"].decode() if message else None

    async def _is_over_there(self, job: str) -> bool:
        try:
            picture = await self._mirror.look(job)
        except (RedisError, OSError):
            return False
        return picture is not None and picture.is_over

    async def _truth(self, job: str) -> SiteProgress:
        return await progress_of(self._store, await self._store.jobs.get(job))
