"""A home with sources, schedulers on virtual time, and runs that end when a test says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.model import Job
from longline.scheduling.schedule import make_schedule
from longline.scheduling.scheduler import Scheduler
from longline.storage.events.events import EventFilter
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.scheduling.launches import LaunchLimits
from longline.storage.store import Store
from tests.virtual import VirtualClock

MANIFEST = {"manifest": "html", "start": "https://shop.test/", "items": "h3 a"}
_ALL = LaunchLimits(total=10_000, per_name=10_000)


class AdjustedClock(VirtualClock):
    """A clock that somebody may have set wrong."""

    offset = 0.0

    def now(self) -> float:
        return super().now() + self.offset


class ScheduledHome:
    """A home, its store, and one scheduler."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.sources = folder / "sources"
        self.sources.mkdir()
        self.flows = folder / "flows"
        self.flows.mkdir()
        self.settings = Settings(home=folder, sources=(self.sources,), flows=(self.flows,))
        self.store = store
        self.clock = VirtualClock()
        self.scheduler = self.new_scheduler()

    def new_scheduler(self, clock: Clock | None = None) -> Scheduler:
        return Scheduler(self.store, clock or self.clock, self.settings)

    def write(self, name: str, **more: Any) -> Path:
        """Write a manifest."""
        path = self.sources / f"{name}.yaml"
        values = {**MANIFEST, "name": name, "fields": {"title": "h1"}, **more}
        path.write_text(yaml.safe_dump(values), "utf-8")
        return path

    def write_flow(self, name: str, text: str) -> Path:
        """Write a flow."""
        path = self.flows / f"{name}.yaml"
        path.write_text(text, "utf-8")
        return path

    async def add(self, name: str, **values: Any) -> None:
        """Add a schedule as a command does."""
        given = {"name": name, "source": "shop", **values}
        schedule = make_schedule({key: one for key, one in given.items() if one is not None})
        await self.store.schedules.save(name, schedule.stated(), self.clock.now())

    async def run(self, seconds: float, *others: Scheduler) -> None:
        """Tick for this long; during hours, not every second."""
        end = self.clock.now() + seconds
        longest = max(1.0, seconds / 300)
        while self.clock.now() <= end:
            pauses = [await one.tick() or 0.0 for one in (self.scheduler, *others)]
            pause = max(min(pauses), 0.001)
            await asyncio.sleep(pause if pause < 1 else longest)

    async def end_job(self, source: str, *, is_good: bool = True) -> Job:
        """Run a job of a source to its end; a good one is complete."""
        now = self.clock.now()
        job = await self.store.jobs.create(NewJob(source, {}, {"at": now}, now))
        await self.store.jobs.start(job.id, now)
        if is_good:
            await self.store.queue.enqueue(Discovered(job.id, [], now, is_last=True))
            await self.store.jobs.finish(job.id, now)
        else:
            await self.store.jobs.fail(job.id, now, "a test")
        return await self.store.jobs.get(job.id)

    async def end_launches(self, result: str = "complete", target: str | None = None) -> int:
        """End every launch, as an executor does; return how many there were."""
        now = self.clock.now()
        found = await self.store.launches.lease("executor", now, now + 20, _ALL)
        for one in found:
            if target is not None:
                await self.store.launches.attach(one.id, "executor", target, now)
            await self.store.launches.finish(one.id, "executor", now, result=result, reason=None)
        return len(found)

    async def fates(self, name: str) -> list[tuple[float, str]]:
        """Return seconds and fate of each occurrence, oldest first."""
        found = await self.store.schedules.history(name, limit=None)
        return [(one.nominal_at, one.fate) for one in reversed(found)]

    async def events(self, *types: str) -> list[tuple[str, Any]]:
        found, _ = await self.store.events.read(0, EventFilter(types))
        return [(one.type, one.data) for one in found]
