"""The executor: lease launches, keep their runs alive, and store how they ended.

It knows launches and their ends only. A runner for each kind of launch does the work, such as
`JobProcesses` (`server/job_process.py`), so that this module needs neither processes nor sources.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from longline.config.settings import Settings
from longline.core.clock import Clock, backoff, sleep_or_wake
from longline.core.errors import StoreError, UnknownJob
from longline.core.logging import LogContext
from longline.core.model import JobState
from longline.engine.owner import dead_among, this_run
from longline.http.messages import origin_of
from longline.storage.queue.queue import PAUSED_BY_USER
from longline.storage.scheduling.launches import (
    MOST_DEATHS,
    SOURCE,
    Launch,
    LaunchLimits,
    death_reason,
)
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)

LEASE = 15.0
"""Seconds after the last renewal until another executor may lease a launch."""
_BEAT = 3.0  # seconds between two renewals; the leases of dead executors are reclaimed with it
_POLL = 0.5  # seconds between two polls for launches that are due
_JOB_POLL = 1.0  # seconds between two polls at a job that runs on workers
_AGAIN = (
    2.0  # seconds before a run is started again that was interrupted or died for the first time
)
_LONGEST_AGAIN = 60.0  # seconds before it is started again after many deaths or a long outage
_GIVE_UP = 3  # attempts to store the end of a run, once the executor is to stop
_ACTIVE = (JobState.PENDING, JobState.RUNNING)


class EndKind(StrEnum):
    """What a run of a launch ended with."""

    ENDED = "ended"  # in a state that the launch takes as its result
    SUBMITTED = "submitted"  # it goes on elsewhere; `job` is followed to its end
    INTERRUPTED = "interrupted"  # it saved its state, to be continued
    OUTAGE = "outage"  # a server that it needs does not respond; to be continued
    DIED = "died"  # its process was killed or crashed


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of one run of a launch: the state of its job or flow, and the reason."""

    kind: EndKind
    state: str = ""
    reason: str | None = None
    job: str | None = None


class Runner(Protocol):
    """Runs launches of one kind."""

    async def run(self, launch: Launch, owner: str, stop: asyncio.Event) -> RunEnd:
        """Run a launch, which `owner` has leased, to its end.

        Once `stop` is set, the run saves its state and ends within seconds. When this is
        cancelled, it ends immediately.
        """


def limits_of(settings: Settings) -> LaunchLimits:
    """Return the limits of the settings."""
    return LaunchLimits(
        total=settings.executor_jobs,
        per_name=settings.executor_jobs_per_source,
        per_domain=settings.executor_jobs_per_domain,
        domain_of=domain_of,
    )


def domain_of(spec: Mapping[str, Any]) -> str | None:
    """Return the host of the first URL in the options or the manifest of a source."""
    manifest = spec.get("manifest") or {}
    for value in (spec.get("set"), manifest.get("parameters"), manifest):
        if (host := _first_host(value)) is not None:
            return host
    return None


def _first_host(value: Any) -> str | None:
    if isinstance(value, str):
        is_url = value.startswith(("http://", "https://"))
        return (origin_of(value)[1] or None) if is_url and "{" not in value else None
    if isinstance(value, Mapping):
        value = list(value.values())
    found = map(_first_host, value if isinstance(value, list) else ())
    return next((host for host in found if host is not None), None)


class Executor:
    """Runs the launches of a database, within limits that all executors share.

    Args:
        runners: by the kind of a launch.
        limits: how many launches may run; may be replaced while it runs.
        on_beat: called every few seconds while the database responds.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        runners: Mapping[str, Runner],
        *,
        limits: LaunchLimits,
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._runners = runners
        self.limits = limits
        self._on_beat = on_beat
        self._owner = this_run()
        self._stop = asyncio.Event()
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._ending: set[int] = set()  # their ends are being stored
        self._outages: dict[int, int] = {}  # in a row
        self._beaten_at: float | None = None
        self._failures = 0  # of the database, in a row

    @property
    def running(self) -> int:
        """How many launches it runs now."""
        return len(self._runs)

    def stop(self) -> None:
        """Lease no more; runs save their state, and their launches are released."""
        self._stop.set()

    async def run(self) -> None:
        """Run launches until it is stopped and all runs have ended."""
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set() or self._runs:
                try:
                    await self._beat()
                    for launch in await self._lease_due():
                        self._runs[launch.id] = group.create_task(self._follow(launch))
                except StoreError as error:
                    await self._wait_for_store(error)
                    continue
                self._failures = 0
                if self._stop.is_set():
                    await self._clock.sleep(_POLL)
                else:
                    await sleep_or_wake(_POLL, self._stop)

    async def _wait_for_store(self, error: StoreError) -> None:
        """Wait before the database is tried again; runs go on, and wait for it themselves."""
        if not self._failures:
            _LOG.warning("the executor waits for the database: %s", error)
        self._failures += 1
        await self._clock.sleep(backoff(self._failures, base=_POLL, ceiling=5.0))

    async def _beat(self) -> None:
        """Renew the leases, stop runs whose lease was lost, and reclaim those of dead executors."""
        now = self._clock.now()
        if self._beaten_at is not None and 0 <= now - self._beaten_at < _BEAT:
            return
        kept = await self._store.launches.renew(self._owner, now + LEASE)
        for launch, task in self._runs.items():
            if launch not in kept and launch not in self._ending:
                _LOG.warning("the lease of launch %s was lost; this process stops its run", launch)
                task.cancel()
        for launch in kept - self._runs.keys():  # leased, and an error came before its start
            await self._store.launches.release(launch, self._owner)
        dead = dead_among(await self._store.launches.owners())
        for lost in await self._store.launches.reclaim(now, dead):
            _LOG.warning("reclaimed launch %s of %s: its executor has died", lost.id, lost.name)
        self._beaten_at = now
        self._on_beat()

    async def _lease_due(self) -> list[Launch]:
        now = self._clock.now()
        if self._stop.is_set() or not await self._store.launches.is_due(now):
            return []
        return await self._store.launches.lease(self._owner, now, now + LEASE, self.limits)

    async def _follow(self, launch: Launch) -> None:
        """Run a launch and store its end."""
        try:
            with LogContext(launch=str(launch.id), source=launch.name):
                end = await self._run(launch)
                self._ending.add(launch.id)
                await self._store_end(launch, end)
        finally:
            self._ending.discard(launch.id)
            del self._runs[launch.id]

    async def _run(self, launch: Launch) -> RunEnd:
        """Run a launch, unless its job has ended already or runs on workers."""
        runner = self._runners.get(launch.kind)
        if runner is None:
            problem = f"this executor cannot run a launch of kind {launch.kind}"
            return RunEnd(EndKind.ENDED, JobState.FAILED, problem)
        try:
            end = await self._known_end(launch)
            if end is None:
                _LOG.info("launch started", extra={"origin": launch.origin})
                end = await runner.run(launch, self._owner, self._stop)
            if end.kind is EndKind.SUBMITTED and end.job is not None:
                return await self._follow_job(end.job)
        except StoreError as error:
            return RunEnd(EndKind.OUTAGE, reason=str(error))
        except Exception as error:  # noqa: BLE001  # the edge of a launch
            _LOG.exception("launch failed")
            return RunEnd(EndKind.DIED, reason=repr(error))
        return end

    async def _known_end(self, launch: Launch) -> RunEnd | None:
        """Return how the job of an earlier run of a launch is left; None: it has to be run."""
        if launch.target is None or launch.kind != SOURCE:
            return None
        try:
            job = await self._store.jobs.get(launch.target)
        except UnknownJob as error:
            return RunEnd(EndKind.ENDED, JobState.FAILED, str(error))
        if job.state is JobState.RUNNING and job.engine == "celery":
            return RunEnd(EndKind.SUBMITTED, job=job.id)
        is_paused = job.state is JobState.PAUSED and job.reason != PAUSED_BY_USER
        if job.state in _ACTIVE or is_paused:
            return None
        return RunEnd(EndKind.ENDED, job.state, job.reason)

    async def _follow_job(self, job: str) -> RunEnd:
        """Wait until a job on workers has ended, or this executor is to stop."""
        failures = 0
        while not self._stop.is_set():
            try:
                found = await self._store.jobs.get(job)
            except StoreError:
                failures += 1  # the executor itself reports it
            else:
                failures = 0
                if found.state not in _ACTIVE:
                    return RunEnd(EndKind.ENDED, found.state, found.reason)
            await sleep_or_wake(_JOB_POLL + backoff(failures, base=1.0, ceiling=5.0), self._stop)
        return RunEnd(EndKind.INTERRUPTED)

    async def _store_end(self, launch: Launch, end: RunEnd) -> None:
        """Store the end of a run; wait while the database does not respond."""
        for attempt in range(1, 1_000_000):
            try:
                await self._try_to_store_end(launch, end)
            except StoreError as error:
                if self._stop.is_set() and attempt >= _GIVE_UP:
                    _LOG.warning("the end of launch %s could not be stored: %s", launch.id, error)
                    return  # its lease expires
                await self._clock.sleep(backoff(attempt, base=_POLL, ceiling=5.0))
            else:
                return

    async def _try_to_store_end(self, launch: Launch, end: RunEnd) -> None:
        now, launches = self._clock.now(), self._store.launches
        if end.kind is not EndKind.OUTAGE:
            self._outages.pop(launch.id, None)
        if end.kind is EndKind.ENDED:
            _LOG.info("launch ended", extra={"state": end.state, "reason": end.reason})
            await launches.finish(launch.id, self._owner, now, result=end.state, reason=end.reason)
        elif end.kind is EndKind.DIED and not self._stop.is_set():
            await self._count_death(launch, end.reason or "unknown")
        elif end.kind is EndKind.OUTAGE:
            failures = self._outages[launch.id] = self._outages.get(launch.id, 0) + 1
            wait = backoff(failures, base=_AGAIN, ceiling=_LONGEST_AGAIN)
            _LOG.warning("launch waits %.0f s: %s", wait, end.reason)
            await launches.release(launch.id, self._owner, now + wait)
        else:
            due_at = 0.0 if self._stop.is_set() else now + _AGAIN
            await launches.release(launch.id, self._owner, due_at)

    async def _count_death(self, launch: Launch, how: str) -> None:
        now, deaths = self._clock.now(), launch.deaths + 1
        _LOG.error("the process of the launch died: %s", how, extra={"deaths": deaths})
        if deaths >= MOST_DEATHS:
            # Before the launch ends: whatever happens in between, the job is not left running.
            stored = await self._store.launches.get(launch.id)
            if stored is not None and stored.target is not None:
                await self._store.jobs.pause(stored.target, now, death_reason(deaths, how))
        wait = backoff(deaths, base=_AGAIN, ceiling=_LONGEST_AGAIN)
        await self._store.launches.count_death(
            launch.id, self._owner, now, due_at=now + wait, how=how
        )
