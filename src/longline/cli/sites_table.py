"""A table of sites: how far each is, with a bar that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.progress_bar import ProgressBar
from rich.text import Text

from longline.cli.fitting import Fitting
from longline.jobs.progress import Progress
from longline.jobs.sites import SiteProgress

_COLOURS = {
    "complete": "green",
    "running": "cyan",
    "partial": "yellow",
    "paused": "yellow",
    "abandoned": "yellow",
    "failed": "red",
    "cancelled": "red",
}


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One line: what is None is not known yet."""

    name: str
    state: str
    done: int = 0
    total: int = 0
    results: int = 0
    failed: int = 0
    per_minute: float | None = None
    eta: float | None = None


def site_row(name: str, progress: Progress | None) -> SiteRow:
    """Return the line of a job that this process runs or watches; None: it has not begun."""
    if progress is None:
        return SiteRow(name, "waiting")
    return SiteRow(
        name,
        progress.state.value,
        progress.processed,
        progress.total,
        progress.successful,
        progress.failed,
        progress.items_per_minute,
        progress.eta,
    )


def row_of(
    progress: SiteProgress, per_minute: float | None = None, *, is_abandoned: bool = False
) -> SiteRow:
    """Return the line of a job that others run, or that nobody works on although it says so."""
    waiting = progress.total_items - progress.completed_items
    return SiteRow(
        progress.job,
        "abandoned" if is_abandoned else progress.state.value,
        progress.completed_items,
        progress.total_items,
        progress.result_count,
        progress.failed_items,
        per_minute,
        waiting * 60 / per_minute if per_minute and not progress.is_over else None,
    )


def sites_table(rows: Sequence[SiteRow], *, first: str = "site") -> Fitting:
    """Return the table of these lines."""
    numbers = ("done", "found", "records", "failed", "a minute", "left")
    least = ("", "a minute", "found", "left", "records", "failed")
    table = Fitting(first, "state", "", *numbers, right=numbers, least=least)
    for row in rows:
        table.add(*_cells(row))
    return table


def _cells(row: SiteRow) -> list[Any]:
    return [
        row.name,
        Text(row.state, style=_COLOURS.get(row.state, "dim")),
        ProgressBar(total=max(row.total, 1), completed=row.done, width=12),
        f"{row.done:,}",
        f"{row.total:,}",
        f"{row.results:,}",
        Text(f"{row.failed:,}", style="red" if row.failed else ""),
        "" if row.per_minute is None else f"{row.per_minute:,.0f}",
        "" if row.eta is None else _duration(row.eta),
    ]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
