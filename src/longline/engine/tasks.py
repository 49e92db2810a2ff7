"""Orders as people see them: who is at which, and which are not wanted any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError
from longline.core.model import OPEN_STATES, Job
from longline.engine.errors import TookTooLong
from longline.engine.extractor import Collector, is_of_the_process, no_stray_cancellation
from longline.engine.owner import dead_among
from longline.engine.report import JobReport
from longline.export.export import ExportRequest
from longline.export.tasks import export_job, export_task, prepare_for_task
from longline.sources.base import Source
from longline.storage.columns import sanitize_text
from longline.storage.events import event_row
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store


@dataclass(frozen=True, slots=True)
class Taken:
    """Exports that were taken back, and those that were not, since somebody writes them now."""

    dropped: Sequence[Task] = ()
    under_way: Sequence[Task] = ()


def holder_of(order: Task, at: float) -> str | None:
    """Return who is at an order, as far as is known; None when nobody alive is."""
    owner = order.owner
    return None if owner is None or order.is_free(at, dead_among([owner])) else owner


async def take_back(store: Store, job: Job, output: str | None = None) -> Taken:
    """Drop the orders to write the records of a job; with `output`, only those to write there.

    One that somebody is at is left: what it replaces may be gone already.
    """
    at = await store.now()
    dropped = [
        order
        for order in await _exports(store, job, output)
        if await store.tasks.drop(order, at, dead_among([order.owner] if order.owner else []))
    ]
    return Taken(dropped, await _exports(store, job, output))


async def _exports(store: Store, job: Job, output: str | None) -> list[Task]:
    return [
        order
        for order in await store.tasks.of(job.id)
        if order.kind is TaskKind.EXPORT and output in (None, order.what.get("output"))
    ]


# ---------------- The records of a job that is run with an export: written at its end, here or by


def wish_for(output: str | None, engine: str) -> ExportRequest | None:
    """Return the wish to write records there, an absolute path if it is one; None: nowhere.

    Raises:
        BadOption: they cannot be written there.
    """
    if output is None:
        return None
    return prepare_for_task(ExportRequest(output), option="--export", by_worker=engine == "celery")


async def order_export(store: Store, job: Job, wish: ExportRequest) -> None:
    """Have a worker write the records of a job once that has ended."""
    at = await store.now()
    await store.tasks.place(export_task(wish, job.id, at, is_after_end=True))


async def exported(
    store: Store, report: JobReport, wish: ExportRequest, *, engine: str
) -> JobReport:
    """Return a report that tells where the records are, or will be; they are written if need be.

    Raises:
        StoreError: the database does not answer.
    """
    if engine == "celery":
        return report.with_output(wish.output)
    if report.state in OPEN_STATES:
        return replace(report, unwritten="the job has not ended: its records are not written yet")
    job = await store.jobs.get(report.job)
    end = await export_job(store, job, wish, is_after_end=True)
    await store.events.append(end.as_event(job.id, await store.now()))
    return replace(report, unwritten=end.reason) if end.reason else report.with_output(end.output)


# ---------------- The end of a source: told that its job is complete, and torn down

T = TypeVar("T")
_LETTING_GO = 15.0  # seconds to be torn down in: less than a worker has that is to end


async def tell_finished(store: Store, collector: Collector, job: Job, clock: Clock) -> str | None:
    """Call `Source.finished`; return what went wrong, which is an event of the job, too.

    Raises:
        StoreError: the database does not take any more.
    """
    visit = collector.visit(cursor=job.cursor)
    raised = await _raised(lambda: collector.source.finished(visit))
    if isinstance(raised, StoreError):
        raise raised
    if raised is None:
        return None
    problem = f"the source could not note that the job is complete: {in_words(raised)}"
    await store.events.append(
        event_row(job.id, clock.now(), "source.finished.failed", reason=problem)
    )
    return problem


async def tear_down(source: Source) -> str | None:
    """Call `Source.teardown`; return what it raised, in words, or that it did not end."""
    raised = await _raised(lambda: in_time(source.teardown(), _LETTING_GO))
    return None if raised is None else in_words(raised)


async def note_teardown(store: Store, job: str, clock: Clock, *, source: str, raised: str) -> str:
    """Note in the journal of a job what tearing its source down raised; return it as a sentence."""
    problem = f"the source {source} could not be torn down: {raised}"
    if job:
        with contextlib.suppress(StoreError):  # whose own end says more, and what is kept is safe
            at = clock.now()
            await store.events.append(event_row(job, at, "source.teardown.failed", reason=problem))
    return problem


async def in_time(work: Awaitable[T], seconds: float) -> T:
    """Await a source's own code for so many seconds at most.

    Raises:
        TookTooLong: it had not come to its end by then, and was broken off.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TookTooLong(seconds) from error


def in_words(error: BaseException) -> str:
    """Return what a source's own code raised as a text that can be stored and shown."""
    return sanitize_text(str(error) if isinstance(error, LonglineError) else repr(error))


async def _raised(work: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Return what the source's own code raised; a cancellation of the task goes through."""
    try:
        with no_stray_cancellation():
            await work()
    except BaseException as error:  # the edge of a job: its records are stored already
        if is_of_the_process(error):
            raise
        return error
    return None
