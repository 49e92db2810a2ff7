"""Carrying out orders: taken by one process, kept by signs of life, gone when they are done."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable

from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError
from longline.distributed.open_jobs import OpenJobs
from longline.engine.extractor import (
    describe_error,
    ends_process,
    no_stray_cancellation,
    notify_finished,
    with_timeout,
)
from longline.engine.owner import dead_among, killed_among, this_child
from longline.engine.runtime import HEARTBEAT, LEASE, in_background
from longline.export.tasks import ExportOutcome, export_job, request_of
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)

_UNTOLD = "the source could not be told that the job is complete"
_NEWER = "this worker cannot read the order, which a newer longline may have written: {!r}"


def free_among(orders: Iterable[Task], at: float) -> list[Task]:
    """Return the orders that nobody holds who may be alive."""
    found = list(orders)
    dead = dead_among(_owners(found))
    return [order for order in found if order.is_free(at, dead)]


def _owners(orders: Iterable[Task]) -> list[str]:
    return [order.owner for order in orders if order.owner is not None]


class TaskRunner:
    """Carries out the orders that one child has taken."""

    def __init__(
        self,
        store: Store,
        jobs: OpenJobs,
        clock: Clock,
        *,
        limit: float,
    ) -> None:
        """Make one; a source may take `limit` seconds over what it is told."""
        self._store = store
        self._jobs = jobs
        self._clock = clock
        self._limit = limit
        self.is_writing = False

    async def take(
        self, kind: TaskKind, *, wait: float = 0.0, first: str = "", job: str | None = None
    ) -> Task | None:
        """Take an order that nobody has come for in `wait` seconds; None when there is none.

        The one with the name `first` comes first. With `job`, only one of that job is taken.
        """
        now = self._clock.now()
        ready = [
            order
            for order in await self._store.tasks.ready(now - wait)
            if order.kind is kind and job in (None, order.job)
        ]
        for order in sorted(free_among(ready, now), key=lambda order: order.name != first):
            dead, killed = dead_among(_owners([order])), killed_among(_owners([order]))
            if taken := await self._store.tasks.claim(
                order, this_child(), now, now + LEASE, dead=dead, killed=killed
            ):
                return taken
        return None

    async def export(self, order: Task) -> None:
        """Write the records of a job; its journal tells what came of it.

        Raises:
            StoreError: the database does not answer; the order stays.
        """
        self.is_writing = True
        try:
            async with in_background(self._keep(order)):
                await self._export(order)
        finally:
            self.is_writing = False

    async def _export(self, order: Task) -> None:
        end = await self._written(order)
        if end.reason is not None:
            _LOG.warning("%s was not exported: %s", order.job, end.reason)
        await self._store.tasks.complete(order, end.as_event(order.job, self._clock.now()))

    async def _written(self, order: Task) -> ExportOutcome:
        try:
            job, wish = await self._store.jobs.get(order.job), request_of(order)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # what cannot be read is no better next time
            problem = str(error) if isinstance(error, LonglineError) else _NEWER.format(error)
            return ExportOutcome(str(order.what.get("output", "")), reason=problem)
        return await export_job(self._store, job, wish, is_after_end=order.is_after_end)

    async def tell_source(self, order: Task) -> None:
        """Tell a source that its job is complete; its journal tells if that went wrong.

        Raises:
            StoreError: the database does not answer; the order stays.
        """
        async with in_background(self._keep(order)):
            told = []
            try:
                problem = await self._told_in_time(order.job)
            except StoreError:
                raise
            except BaseException as error:  # whatever a source's own code raises
                if ends_process(error):
                    raise
                problem = f"{_UNTOLD}: {describe_error(error)}"
                told = [order.event(self._clock.now(), "failed", reason=problem)]
            if problem:
                _LOG.warning("%s: %s", order.job, problem)
            await self._store.tasks.complete(order, *told)

    async def _told_in_time(self, job: str) -> str | None:
        """Tell a source; what it takes too long over is given up like what it raises."""
        with no_stray_cancellation():
            return await with_timeout(self._told(job), self._limit)

    async def _told(self, job: str) -> str | None:
        row = await self._store.jobs.get(job)
        async with self._jobs.using(job, row.runs) as opened:
            return await notify_finished(self._store, opened.collector, row, self._clock)

    async def _keep(self, order: Task) -> None:
        """Keep an order while it is carried out; when that fails, it expires."""
        with contextlib.suppress(StoreError):  # what is written at the end shows whose it is
            while await self._store.tasks.renew(order, self._clock.now() + LEASE):
                await self._clock.sleep(HEARTBEAT)
