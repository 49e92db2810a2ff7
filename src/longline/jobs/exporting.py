"""The records of a job that is run with an export: written at its end, here or by a worker."""

from __future__ import annotations

from dataclasses import replace

from longline.exports.destinations import Wish
from longline.exports.ordered import for_later, order_of, write_job
from longline.jobs.report import JobReport
from longline.model import OPEN_STATES, Job
from longline.stores.store import Store


def wish_for(output: str | None, engine: str) -> Wish | None:
    """Return the wish to write records there, an absolute path if it is one; None: nowhere.

    Raises:
        BadOption: they cannot be written there.
    """
    if output is None:
        return None
    return for_later(Wish(output), option="--export", by_worker=engine == "celery")


async def order_export(store: Store, job: Job, wish: Wish) -> None:
    """Have a worker write the records of a job once that has ended."""
    at = await store.now()
    await store.orders.place(order_of(wish, job.id, at, is_after_end=True))


async def exported(store: Store, report: JobReport, wish: Wish, *, engine: str) -> JobReport:
    """Return a report that tells where the records are, or will be; they are written if need be.

    Raises:
        StoreError: the database does not answer.
    """
    if engine == "celery":
        return report.with_output(wish.output)
    if report.state in OPEN_STATES:
        return replace(report, unwritten="the job has not ended: its records are not written yet")
    job = await store.jobs.get(report.job)
    end = await write_job(store, job, wish, is_after_end=True)
    await store.journal.append(end.as_fact(job.id, await store.now()))
    return replace(report, unwritten=end.reason) if end.reason else report.with_output(end.output)
