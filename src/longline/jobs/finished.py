"""The end of a source: told that its job is complete, and torn down.

What its own code raises then ends nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from longline.clock import Clock
from longline.errors import LonglineError, StoreError, TookTooLong
from longline.jobs.collector import Collector
from longline.jobs.straying import is_of_the_process, no_stray_cancellation
from longline.model import Job
from longline.sources.base import Source
from longline.stores.journal import fact
from longline.stores.store import Store
from longline.stores.texts import kept_text

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
    await store.journal.append(fact(job.id, clock.now(), "source.finished.failed", reason=problem))
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
            await store.journal.append(fact(job, at, "source.teardown.failed", reason=problem))
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
    return kept_text(str(error) if isinstance(error, LonglineError) else repr(error))


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
