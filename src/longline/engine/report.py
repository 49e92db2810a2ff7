"""How a run ended: the counts that add up, for people, programs and exit codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from longline.core.model import OPEN_STATES, Caveats, ItemState, Job, JobState
from longline.core.output import html_table
from longline.engine.owner import dead_among
from longline.engine.progress import Progress
from longline.export.export import ExportRequest
from longline.export.tasks import export_job, export_task, prepare_for_task
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

_EXIT_CODES = {
    JobState.COMPLETE: 0,
    JobState.FAILED: 1,
    JobState.PARTIAL: 3,
    JobState.PAUSED: 4,
    JobState.CANCELLED: 4,
}
INTERRUPTED = 130
_UNWRITTEN = 2


@dataclass(frozen=True, slots=True)
class JobReport:
    """The end of one run of a job."""

    progress: Progress
    seconds: float
    reason: str | None = None
    output: str | None = None
    is_interrupted: bool = False
    closed_host: str | None = None
    """The host whose robots.txt stopped it: going on needs an override for it."""
    caveats: Caveats = field(default_factory=Caveats)
    """What was cut, warned of and limited: what the counts alone do not say."""
    unwritten: str | None = None
    """Why its records are not where they were to be written."""

    @property
    def job(self) -> str:
        """The job's id."""
        return self.progress.job

    @property
    def state(self) -> JobState:
        """The state the job was left in."""
        return self.progress.state

    @property
    def exit_code(self) -> int:
        """What the command line exits with."""
        if self.is_interrupted and self.state is not JobState.COMPLETE:
            return INTERRUPTED
        return _EXIT_CODES.get(self.state, 4) or (_UNWRITTEN if self.unwritten else 0)

    def _repr_html_(self) -> str:
        rows = [
            [name, "" if value is None else str(value)] for name, value in self.as_dict().items()
        ]
        return html_table(("", self.job), rows)

    def with_output(self, path: str) -> JobReport:
        """Return the same report with the place of an export."""
        return replace(self, output=path)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints last."""
        progress = self.progress
        counts = progress.counts
        rate = progress.success_rate
        return {
            "job": progress.job,
            "source": progress.source,
            "state": progress.state.value,
            "reason": self.reason,
            "discovered": progress.total,
            "stored": counts[ItemState.STORED],
            "unchanged": counts[ItemState.UNCHANGED],
            "skipped": counts[ItemState.SKIPPED],
            "failed": counts[ItemState.FAILED],
            "quarantined": counts[ItemState.QUARANTINED],
            "remaining": progress.remaining,
            "requests": progress.figure("requests"),
            "retries": progress.figure("retries"),
            "rate_limited": progress.figure("rate_limited"),
            "seconds": round(self.seconds, 3),
            "success_rate": None if rate is None else round(rate, 4),
            **self.caveats.as_dict(),
            "output": self.output,
            **({"unwritten": self.unwritten} if self.unwritten else {}),
        }


# ---------------- What became of single items and of lists of them, as a program gets it


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What became of one item."""

    success: bool
    key: str
    quality_score: float | None
    processing_time: float
    stored: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a list of items."""

    total: int
    processed: int
    successful: int
    failed: int
    success_rate: float | None
    results: tuple[ItemResult, ...]
    statistics: Mapping[str, float]
    job: str


async def batch_result(store: Store, report: JobReport) -> BatchResult:
    """Read from the store what became of a batch."""
    progress = report.progress
    rows = await store.queue.finished(report.job)
    scores = await store.records.scores(progress.source, [row["key"] for row in rows])
    return BatchResult(
        total=progress.total,
        processed=progress.processed,
        successful=progress.successful,
        failed=progress.failed,
        success_rate=progress.success_rate,
        results=tuple(_item_result(row, scores) for row in rows),
        statistics=dict(progress.figures),
        job=report.job,
    )


def _item_result(row: Mapping[str, Any], scores: Mapping[str, float | None]) -> ItemResult:
    is_stored = row["state"] in {ItemState.STORED, ItemState.UNCHANGED}
    return ItemResult(
        success=is_stored,
        key=row["key"],
        quality_score=scores.get(row["key"]) if is_stored else None,
        processing_time=row["seconds"] or 0.0,
        stored=is_stored,
        error=None if is_stored else row["reason"],
    )


# ---------------- Orders as people see them: who is at which, and which are not wanted any more


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
        for order in await store.tasks.of_job(job.id)
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
