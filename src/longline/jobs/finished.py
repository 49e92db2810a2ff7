"""Telling a source that its job is complete: what its own code raises then ends nothing else."""

from __future__ import annotations

from longline.clock import Clock
from longline.errors import StoreError
from longline.jobs.collector import Collector
from longline.model import Job
from longline.stores.journal import fact
from longline.stores.store import Store


async def tell_finished(store: Store, collector: Collector, job: Job, clock: Clock) -> str | None:
    """Call `Source.finished`; return what went wrong, which is an event of the job, too.

    Raises:
        StoreError: the database does not take any more.
    """
    try:
        await collector.source.finished(collector.visit(cursor=job.cursor))
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001  # the edge of a job: its records are stored already
        problem = f"the source could not note that the job is complete: {error!r}"
        told = fact(job.id, clock.now(), "source.finished.failed", reason=problem)
        await store.journal.append(told)
        return problem
    return None
