"""What became of single items and of lists of them, as a program gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longline.jobs.report import JobReport
from longline.model import ItemState
from longline.stores.store import Store


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
