"""Run tasks: claimed by one process, renewed while it works on them, removed when done."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError
from longline.distributed.open_jobs import OpenJobs
from longline.engine.collector import (
    NoStrayCancellation,
    describe_source_error,
    ends_process,
    notify_finished,
    with_timeout,
)
from longline.engine.owner import dead_among, killed_among, this_child
from longline.engine.runtime import HEARTBEAT, LEASE, in_background
from longline.export.tasks import ExportOutcome, export_job, file_in, request_of
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)


def free_tasks(tasks: Iterable[Task], at: float) -> list[Task]:
    """Return the tasks that no live process has claimed."""
    found = list(tasks)
    dead = dead_among(task.owner for task in found if task.owner is not None)
    return [task for task in found if task.is_free(at, dead)]


class TaskClaims:
    """Claims tasks for this process, and keeps them while it works on them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def claim(
        self,
        kind: TaskKind,
        *,
        wait: float = 0.0,
        first: str = "",
        is_wanted: Callable[[Task], bool] = lambda _task: True,
    ) -> Task | None:
        """Claim a task that no process has claimed for `wait` seconds; None when there is none.

        Only one that `is_wanted` is claimed; the one with the name `first` comes first.
        """
        now = self._clock.now()
        ready = [
            task
            for task in await self._store.tasks.ready(now - wait)
            if task.kind is kind and is_wanted(task)
        ]
        for task in sorted(free_tasks(ready, now), key=lambda task: task.name != first):
            owners = [task.owner] if task.owner else []
            claimed = await self._store.tasks.claim(
                *(task, this_child(), now, now + LEASE),
                dead=dead_among(owners),
                killed=killed_among(owners),
            )
            if claimed is not None:
                return claimed
        return None

    async def keep(self, task: Task) -> None:
        """Renew a task while it runs; without that it expires."""
        with contextlib.suppress(StoreError):  # its completion finds out whose it is
            while await self._store.tasks.renew(task, self._clock.now() + LEASE):
                await self._clock.sleep(HEARTBEAT)


def is_export_to(folder: Path) -> Callable[[Task], bool]:
    """Return whether a task is an export to a file in a folder, as a function."""
    return lambda task: file_in(folder, task.what.get("output")) is not None


class ExportRunner(TaskClaims):
    """Claims tasks for this process, and runs exports."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self.is_exporting = False

    async def export(self, task: Task) -> None:
        """Write the records of a job; an event has the result.

        Raises:
            StoreError: the database is unavailable; the task stays.
        """
        self.is_exporting = True
        try:
            async with in_background(self.keep(task)):
                end = await self._export_records(task)
                if end.reason is not None:
                    _LOG.warning("%s was not exported: %s", task.job, end.reason)
                await self._store.tasks.complete(task, end.as_event(task.job, self._clock.now()))
        finally:
            self.is_exporting = False

    async def _export_records(self, task: Task) -> ExportOutcome:
        try:
            job, request = await self._store.jobs.get(task.job), request_of(task)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # an unreadable task stays unreadable
            newer = "this worker cannot read the task, which a newer longline may have written"
            problem = str(error) if isinstance(error, LonglineError) else f"{newer}: {error!r}"
            return ExportOutcome(str(task.what.get("output", "")), reason=problem)
        return await export_job(self._store, job, request, is_after_end=task.is_after_end)


class TaskRunner(ExportRunner):
    """Runs all tasks that one child has claimed; a source may take `limit` seconds."""

    def __init__(self, store: Store, jobs: OpenJobs, clock: Clock, *, limit: float) -> None:
        super().__init__(store, clock)
        self._jobs = jobs
        self._limit = limit

    async def notify_source(self, task: Task) -> None:
        """Call `Source.finished`; an event has the error, if there is one.

        Raises:
            StoreError: the database is unavailable; the task stays.
        """
        async with in_background(self.keep(task)):
            failure = []
            try:
                with NoStrayCancellation():
                    problem = await with_timeout(self._notify(task.job), self._limit)
            except StoreError:
                raise
            except BaseException as error:  # whatever a source's own code raises
                if ends_process(error):
                    raise
                words = "the source could not be notified that the job is complete"
                problem = f"{words}: {describe_source_error(error)}"
                failure = [task.event(self._clock.now(), "failed", reason=problem)]
            if problem:
                _LOG.warning("%s: %s", task.job, problem)
            await self._store.tasks.complete(task, *failure)

    async def _notify(self, job: str) -> str | None:
        row = await self._store.jobs.get(job)
        async with self._jobs.using(job, row.runs) as opened:
            return await notify_finished(self._store, opened.collector, row, self._clock)
