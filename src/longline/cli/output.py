"""What commands print: values as text, JSON, tables, and consoles that site text cannot control."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TextIO, cast

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from longline.cli.options import wants_json
from longline.core.clock import utc_datetime
from longline.core.json import FieldDiff, as_text
from longline.core.output import SafeStream, sanitize, sanitize_json, trusted

MISSING = "—"
_LONGEST_LINE = 1000
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400

# ---------------- Values as text


def one_line(text: str, length: int = _LONGEST_LINE) -> str:
    """Return sanitised text as one line of at most `length` characters."""
    line = " ".join(sanitize(text).split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def value_text(value: Any) -> str:
    """Return a field's value as text: a dash for None, JSON for nested values."""
    if value is None:
        return MISSING
    return value if isinstance(value, str) else as_text(value)


def diff_sides(diff: FieldDiff) -> tuple[str, str]:
    """Return a field's old and new value as text."""
    old, new = (
        value_text(diff.values[side]) if side in diff.values else "(no such field)"
        for side in ("old", "new")
    )
    return old, new


def number_text(value: float | None) -> str:
    """Return a number with thousands separators and at most two decimals."""
    if value is None:
        return MISSING
    if isinstance(value, int) or value.is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}"


def duration_text(seconds: float) -> str:
    """Return a duration in at most two units: 9.3s, 42s, 3m 05s, 2h 10m, 4d 15h."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f}s" if seconds < 9.95 else f"{whole}s"  # noqa: PLR2004  # rounds to 10
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02}h"


def time_text(at: float | None, *, seconds: bool = False) -> str:
    """Return a time in UTC, to the minute or the second; "now" for None."""
    if at is None:
        return "now"
    return f"{utc_datetime(at):{'%Y-%m-%d %H:%M:%S' if seconds else '%Y-%m-%d %H:%M'}}"


def iso_time(at: float | None) -> str | None:
    """Return a time as JSON output has it: ISO 8601 in UTC, to the second."""
    return None if at is None else utc_datetime(at).isoformat(timespec="seconds")


# ---------------- Lines on stdout and stderr


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a value as one line of JSON."""
    click.echo(sanitize_json(as_text(value)), err=err)


def print_result(value: Any, print_text: Callable[[], object]) -> None:
    """Print a value as JSON with `--json`, otherwise call `print_text`."""
    if wants_json():
        print_json(value)
    else:
        print_text()


def print_line(text: str, style: str = "", *, end: str = "\n") -> None:
    """Print text that may come from a site as one line, in a style of rich."""
    line = sanitize(text, is_line=True)
    line = line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"
    SafeConsole().print(line, style=style or None, end=end, soft_wrap=True)


def print_heading(text: str) -> None:
    """Print a bold line below an empty one."""
    click.echo()
    print_line(text, "bold")


def print_facts(facts: Mapping[str, object], *, width: int, indent: str = "") -> None:
    """Print names and values, one pair per line."""
    for name, value in facts.items():
        print_line(f"{indent}{name:{width}} {value}")


def print_note(text: str) -> None:
    """Print a note for people on stderr."""
    click.echo(f"note: {one_line(text)}", err=True)


# ---------------- Consoles


class SafeConsole(Console):
    """The only console: it sanitises text and never interprets it as markup, emoji or links."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    @property  # type: ignore[misc]  # rich has a setter, which must not be used here
    def file(self) -> IO[str]:
        """The stream behind the safe ones, since this console adds escape sequences of its own."""
        stream: Any = sys.stderr if self.stderr else sys.stdout
        while isinstance(stream, SafeStream | FileProxy):
            stream = trusted(stream) if isinstance(stream, SafeStream) else stream.rich_proxied_file
        return cast("IO[str]", stream)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with sanitised text and without links."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control:  # rich's own cursor movements
                yield segment
            elif style is not None and style.link:
                yield Segment(sanitize(text), style.update_link(None))
            else:
                yield Segment(sanitize(text), style)


class SafeLive(Live):
    """A live display that sanitises what other code prints while it runs."""

    def start(self, refresh: bool = False) -> None:  # noqa: FBT001, FBT002  # as in rich
        super().start(refresh)
        for name in ("stdout", "stderr"):
            if isinstance(stream := getattr(sys, name), FileProxy):
                setattr(sys, name, SafeStream(cast("TextIO", stream)))


# ---------------- Tables

_PADDING = 2  # of a column
_NUMBER = re.compile(r"[-+~>]?\d[\d,.]*(\+|%|/s|[smhd]( \d\d[smh])?)?")


class TextTable:
    """A table without borders that fits the terminal; columns of numbers are aligned right.

    Empty columns are left out. Where the rest is too wide, columns in `drop` go first, and the
    widest of the others are folded. Outside of a terminal, lines are as long as they need to be.

    Args:
        columns: headings.
        drop: columns that may be dropped, the least important first.
        note: the column that moves below the table, a line per row, when it does not fit.
    """

    def __init__(self, *columns: str, drop: Sequence[str] = (), note: str | None = None) -> None:
        self._columns = [one_line(name) for name in columns]
        self._drop = drop
        self._note = note
        self._rows: list[list[RenderableType]] = []

    def add(self, *cells: object) -> None:
        """Add a row; rich renderables stay, None is empty, other values become one line of text."""
        row: list[RenderableType] = []
        for cell in cells:
            if hasattr(cell, "__rich_console__"):
                row.append(cast("RenderableType", cell))
            else:
                text = number_text(cell) if isinstance(cell, int) else str(cell or "")
                row.append(Text(one_line(text)))
        self._rows.append(row)

    def print(self, empty: str = "", *, is_whole: bool = False) -> None:
        """Print the table on stdout, or `empty` when it has no rows.

        With `is_whole`, it may be wider than the terminal.
        """
        if empty and not self._rows:
            click.echo(empty)
            return
        console = SafeConsole()
        if is_whole or not (console.is_terminal or "COLUMNS" in os.environ):
            console.width = max(console.width, self._total(self._widths(console, console.options)))
        console.print(self)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        widths = self._widths(console, options)
        note = self._columns.index(self._note) if self._note else -1
        for place in (note, *map(self._columns.index, self._drop)):
            if self._total(widths) > options.max_width:
                widths.pop(place, None)
        table = RichTable(box=None)
        for place in widths:
            cells = [str(row[place]) for row in self._rows]
            is_numeric = all(_NUMBER.fullmatch(cell) for cell in cells if cell)
            table.add_column(
                Text(self._columns[place]),
                justify="right" if is_numeric else "left",
                overflow="fold",
            )
        for row in self._rows:
            table.add_row(*(row[place] for place in widths))
        yield table
        for row in self._rows if self._note and note not in widths else ():
            first, text = row[0], row[note]
            if isinstance(first, Text) and isinstance(text, Text) and text.plain:
                yield Text.assemble(" ", first, ": ", text)

    def _widths(self, console: Console, options: ConsoleOptions) -> dict[int, int]:
        """Return the width of the widest cell of each column that is not empty, by its place."""
        wide = options.update(max_width=_LONGEST_LINE)  # as if there were room for all of it
        widths = {}
        for place, (heading, *cells) in enumerate(zip(self._columns, *self._rows, strict=True)):
            if any(not isinstance(cell, Text) or cell.plain for cell in cells):
                sizes = (Measurement.get(console, wide, cell).maximum for cell in cells)
                widths[place] = max(cell_len(heading), *sizes)
        return widths

    def _total(self, widths: Mapping[int, int]) -> int:
        return sum(width + _PADDING for width in widths.values())
