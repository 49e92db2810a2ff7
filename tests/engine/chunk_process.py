"""One process of a cluster as tests see it: it takes chunks and works on them, without messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

from aiohttp import web

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.model import ItemState, Job, JobState
from longline.distributed.worker import ChunkFeed, NextClaim
from longline.engine.collector import Collector
from longline.engine.job_engine import JobEngine
from longline.engine.runtime import RunOptions, Runtime
from longline.engine.worker import WorkEnd
from longline.storage.jobs import NewJob
from longline.storage.queue.chunks import Chunk, ChunkClaim
from longline.storage.store import Store
from longline.wiring import open_collector
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

SIZE = 4
LONG = 600.0


class Process:
    """What one process of a cluster has: an engine, and names for its pieces of work."""

    def __init__(
        self,
        runtime: Runtime,
        clock: VirtualClock,
        job: Job,
        collector: Collector,
        engine: JobEngine,
    ) -> None:
        self.runtime = runtime
        self.store = runtime.store
        self.clock = clock
        self.job = job
        self.collector = collector
        self.engine = engine
        self._names = count()

    async def discover(self) -> Any:
        return await self.engine.discover(self.offer, owner=f"finder {next(self._names)}")

    async def offer(self) -> None:
        await self.store.chunks.publish(self.job.id, self.clock.now(), size=SIZE)

    async def take(self, owner: str = "me", size: int = SIZE) -> Chunk | None:
        """Take the next chunk, as a message would have it."""
        now = self.clock.now()
        await self.offer()
        chunks = await self.store.chunks.unanswered(self.job.id, now + 1)
        if not chunks:
            return None
        return await self.store.chunks.claim(chunks[0], ChunkClaim(owner, now, now + 20, size))

    async def run_chunk(
        self, taken: Chunk, *, seconds: float, more: NextClaim | None = None
    ) -> WorkEnd:
        """Work on a chunk, and on those that `more` asks for."""
        feed = ChunkFeed(self.store, self.clock, taken, more)
        return await self.engine.work(taken.leases, feed=feed, seconds=seconds)

    async def work_off(self) -> list[tuple[int, int]]:
        """Work on chunks until nothing is due; say of each what came of it."""
        ends = []
        for number in count():
            taken = await self.take(f"me {number}")
            if taken is None:
                break
            end = await self.run_chunk(taken, seconds=LONG)
            ends.append((end.finished, end.handed_back))
        return ends

    async def work_for(self, seconds: float) -> tuple[int, int, int]:
        """Work on a chunk; say how many were committed and handed back, and the tries of its first.

        Nothing may be in work beside it.
        """
        taken = await self.take(f"me {next(self._names)}")
        assert taken is not None
        end = await self.run_chunk(taken, seconds=seconds)
        return end.finished, end.handed_back, taken.leases[0].tries

    async def counts(self) -> dict[ItemState, int]:
        found = await self.store.queue.counts(self.job.id)
        return {state: number for state, number in found.items() if number}

    async def state(self) -> tuple[JobState, str | None]:
        job = await self.store.jobs.get(self.job.id)
        return job.state, job.reason


Begin = Callable[..., contextlib.AbstractAsyncContextManager[Process]]


def starter(store: Store, settings: Settings, clock: VirtualClock, site: ScriptedSite) -> Begin:
    @contextlib.asynccontextmanager
    async def begin(**values: Any) -> AsyncIterator[Process]:
        options = {"site": site.url, "count": values.pop("count", 10)}
        if "fails_at" in values:
            options["fails_at"] = values.pop("fails_at")
        source = values.pop("source", "tests.sample_sources:PageSource")
        pace = {"rate": values.pop("rate", "unlimited"), "burst": values.pop("burst", None)}
        spec = make_spec({"source": source, "set": options, **pace})
        now = clock.now()
        job = await store.jobs.create(NewJob("pages", spec.snapshot(), {}, now))
        await store.jobs.start(job.id, now, engine="celery")
        run = RunOptions(concurrency=2, **values)
        async with (
            Runtime(store, clock, reclaims=False) as runtime,
            open_collector(settings, spec, clock, store, job=job.id) as (collector, _),
        ):
            engine = JobEngine(runtime, collector, run, job=job)
            with engine.beating():
                yield Process(runtime, clock, job, collector, engine)

    return begin


def slow(seconds: float) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.Response(text="at last")

    return answer
