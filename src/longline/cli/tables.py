"""Tables that fit a terminal of any width: whole columns go before a number is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from longline.cli.format import cleaned
from longline.engine.progress import Progress
from longline.engine.sites import SiteProgress

_PADDING = 2  # of a column
_NARROWEST = 8  # characters in a line of what is folded


class Fitting:
    """A table whose columns are whole or not there; only the first is folded, as a last resort.

    Args:
        columns: their heads; one in which every cell is empty is left out.
        right: those that are numbers.
        least: those that go when there is no room, the least important first.
        note: the one whose text goes below the table, a line for each row, where it does not fit.
    """

    def __init__(
        self,
        *columns: str,
        right: Sequence[str] = (),
        least: Sequence[str] = (),
        note: str | None = None,
    ) -> None:
        self._columns = columns
        self._right = right
        self._least = least
        self._note = note
        self._rows: list[dict[str, RenderableType]] = []

    def add(self, *cells: str | RenderableType) -> None:
        """Add a row of cells; nothing in their text is markup."""
        made = [Text(cleaned(one, is_line=True)) if isinstance(one, str) else one for one in cells]
        self._rows.append(dict(zip(self._columns, made, strict=True)))

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        widths = {name: self._width(name, console, options) for name in self._columns}
        shown = self._fitting(widths, options.max_width)
        over = _total(shown, widths) - options.max_width
        if over > 0:
            widths[shown[0]] = max(_NARROWEST, widths[shown[0]] - over)
        yield self._table(shown, widths)
        if self._note is not None and self._note not in shown:
            yield from self._notes()

    def _fitting(self, widths: dict[str, int], room: int) -> list[str]:
        filled = [name for name in self._columns if widths[name]]
        if _total(filled, widths) <= room:
            return filled
        chosen = [name for name in filled if name not in self._least and name != self._note]
        for name in reversed(self._least):
            if name in filled and _total([*chosen, name], widths) <= room:
                chosen.append(name)
        return [name for name in filled if name in chosen]

    def _width(self, name: str, console: Console, options: ConsoleOptions) -> int:
        cells = [row[name] for row in self._rows]
        if all(isinstance(cell, Text) and not cell.plain for cell in cells):
            return 0
        # What a cell would take is asked as if there were room for all.
        wide = options.update(max_width=1000)
        found = [Measurement.get(console, wide, cell).maximum for cell in (Text(name), *cells)]
        return max(found)

    def _table(self, shown: Sequence[str], widths: dict[str, int]) -> Table:
        table = Table(box=None)
        for name in shown:
            table.add_column(
                Text(name),
                justify="right" if name in self._right else "left",
                width=widths[name],
                overflow="fold",
            )
        for row in self._rows:
            table.add_row(*(row[name] for name in shown))
        return table

    def _notes(self) -> Iterator[Text]:
        for row in self._rows:
            first, note = row[self._columns[0]], row[self._note or ""]
            if isinstance(first, Text) and isinstance(note, Text) and note.plain:
                yield Text.assemble(" ", first, ": ", note)


def _total(shown: Sequence[str], widths: dict[str, int]) -> int:
    return sum(widths[name] + _PADDING for name in shown)


# ---------------- A table of sites: how far each is, with a bar that fits

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
