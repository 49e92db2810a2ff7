"""The end of a run: counts that add up, results of items, and the export of its records."""

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

INTERRUPTED = 130
_NOT_EXPORTED = 2
_EXIT_CODES = {
    JobState.COMPLETE: 0,
    JobState.FAILED: 1,
    JobState.PARTIAL: 3,
    JobState.PAUSED: 4,
    JobState.CANCELLED: 4,
}


@dataclass(frozen=True, slots=True)
class JobReport:
    """The end of one run of a job.

    `closed_host` is the host whose robots.txt stopped it. `caveats` are cuts, warnings and limits.
    `unwritten` is why its records were not exported.
    """

    progress: Progress
    seconds: float
    reason: str | None = None
    output: str | None = None
    is_interrupted: bool = False
    closed_host: str | None = None
    caveats: Caveats = field(default_factory=Caveats)
    unwritten: str | None = None

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
        """The exit code of the command line."""
        if self.is_interrupted and self.state is not JobState.COMPLETE:
            return INTERRUPTED
        return _EXIT_CODES.get(self.state, 4) or (_NOT_EXPORTED if self.unwritten else 0)

    def _repr_html_(self) -> str:
        rows = [
            [name, "" if value is None else str(value)] for name, value in self.as_dict().items()
        ]
        return html_table(("", self.job), rows)

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
            "requests": progress.statistic("requests"),
            "retries": progress.statistic("retries"),
            "rate_limited": progress.statistic("rate_limited"),
            "seconds": round(self.seconds, 3),
            "success_rate": None if rate is None else round(rate, 4),
            **self.caveats.as_dict(),
            "output": self.output,
            **({"unwritten": self.unwritten} if self.unwritten else {}),
        }


# ---------------- Results of single items and of lists of them


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of one item."""

    success: bool
    key: str
    quality_score: float | None
    processing_time: float
    stored: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The results of a list of items."""

    total: int
    processed: int
    successful: int
    failed: int
    success_rate: float | None
    results: tuple[ItemResult, ...]
    statistics: Mapping[str, float]
    job: str


async def batch_result(store: Store, report: JobReport) -> BatchResult:
    """Return the results of all items of a job."""
    progress = report.progress
    rows = await store.queue.finished(report.job)
    scores = await store.records.scores(progress.source, [row["key"] for row in rows])
    results = []
    for row in rows:
        is_stored = row["state"] in {ItemState.STORED, ItemState.UNCHANGED}
        results.append(
            ItemResult(
                success=is_stored,
                key=row["key"],
                quality_score=scores.get(row["key"]) if is_stored else None,
                processing_time=row["seconds"] or 0.0,
                stored=is_stored,
                error=None if is_stored else row["reason"],
            )
        )
    return BatchResult(
        total=progress.total,
        processed=progress.processed,
        successful=progress.successful,
        failed=progress.failed,
        success_rate=progress.success_rate,
        results=tuple(results),
        statistics=dict(progress.statistics),
        job=report.job,
    )


# ---------------- Export tasks of a job


def holder_of(task: Task, at: float) -> str | None:
    """Return the live owner of a task; None when there is none."""
    owner = task.owner
    return None if owner is None or task.is_free(at, dead_among([owner])) else owner


async def drop_exports(
    store: Store, job: Job, output: str | None = None
) -> tuple[Sequence[Task], Sequence[Task]]:
    """Drop the export tasks of a job, with `output` only exports to it.

    Returns the dropped tasks, and the running ones, which are not dropped.
    """
    at = await store.now()

    async def exports() -> list[Task]:
        return [
            task
            for task in await store.tasks.of_job(job.id)
            if task.kind is TaskKind.EXPORT and output in (None, task.what.get("output"))
        ]

    dropped = [
        task
        for task in await exports()
        if await store.tasks.drop(task, at, dead_among([task.owner] if task.owner else []))
    ]
    return dropped, await exports()


def export_request(output: str | None, engine: str) -> ExportRequest | None:
    """Return the request to export a job to `output`; None when there is none.

    Raises:
        BadOption: records cannot be written there.
    """
    if output is None:
        return None
    return prepare_for_task(ExportRequest(output), option="--export", by_worker=engine == "celery")


async def enqueue_export(store: Store, job: Job, request: ExportRequest) -> None:
    """Enqueue the export of a job, for a worker to run once the job has ended."""
    at = await store.now()
    await store.tasks.place(export_task(request, job.id, at, is_after_end=True))


async def export_after_run(
    store: Store, report: JobReport, request: ExportRequest, *, engine: str
) -> JobReport:
    """Export the records of a job that ran here; return the report with the result.

    Raises:
        StoreError: the database is unavailable.
    """
    if engine == "celery":  # a worker does
        return replace(report, output=request.output)
    if report.state in OPEN_STATES:
        return replace(report, unwritten="the job has not ended: its records are not written yet")
    job = await store.jobs.get(report.job)
    end = await export_job(store, job, request, is_after_end=True)
    await store.events.append(end.as_event(job.id, await store.now()))
    if end.reason:
        return replace(report, unwritten=end.reason)
    return replace(report, output=end.output)
