"""What commands print: values as text, JSON, tables, and consoles that site text cannot control."""

from __future__ import annotations

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
_HEIGHTS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
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


def size_text(size_bytes: int) -> str:
    """Return a size with a decimal unit: 512 bytes, 4.2 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes} bytes"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun in the singular or plural."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


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


def sparkline(counts: Sequence[int]) -> str:
    """Return a one-line histogram; a count above zero is always visible."""
    highest = max(counts, default=0)
    if not highest:
        return ""
    steps = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[-(-count * steps // highest)] for count in counts)


def bar(share: float, width: int) -> str:
    """Return a bar for a share between 0 and 1, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


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
_CELL = 200  # characters of a cell that does not wrap
_NUMBER = re.compile(r"[-+~>]?\d[\d,.]*(\+|%|/s|[smhd]( \d\d[smh])?)?")


class TextTable:
    """A table without borders that fits the terminal; columns of numbers are aligned right.

    Empty columns are left out. Where the rest is too wide, columns in `drop` go first; then narrow
    columns stay whole and wide ones share the remaining width and are cut with an ellipsis.

    Args:
        columns: headings.
        drop: columns that may be dropped, the least important first.
        note: the column that moves below the table, a line per row, when it does not fit.
        wrap: columns that wrap instead of being cut.
        is_whole: cut nothing; the table may become wider than the terminal.
    """

    def __init__(
        self,
        *columns: str,
        drop: Sequence[str] = (),
        note: str | None = None,
        wrap: Sequence[str] = (),
        is_whole: bool = False,
    ) -> None:
        self._columns = [one_line(name, _CELL) for name in columns]
        self._drop = [one_line(name, _CELL) for name in drop]
        self._note = note
        self._wrap = [one_line(name, _CELL) for name in wrap]
        self._is_whole = is_whole
        self._rows: list[list[RenderableType]] = []

    def add(self, *cells: object) -> None:
        """Add a row; rich renderables stay, None is empty, other values become one line of text."""
        row: list[RenderableType] = []
        for name, cell in zip(self._columns, cells, strict=True):
            is_long = self._is_whole or name in (*self._wrap, self._note)
            if hasattr(cell, "__rich_console__"):
                row.append(cast("RenderableType", cell))
            else:
                text = number_text(cell) if isinstance(cell, int) else cell or ""
                row.append(Text(one_line(str(text), _LONGEST_LINE if is_long else _CELL)))
        self._rows.append(row)

    def print(self, empty: str = "") -> None:
        """Print the table on stdout, or `empty` when it has no rows."""
        if empty and not self._rows:
            click.echo(empty)
            return
        console = SafeConsole()
        if self._is_whole:
            needed = sum(width + _PADDING for width in self._widths(console, console.options))
            console.width = max(console.width, needed)
        console.print(self)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        wanted = self._widths(console, options)
        shown = self._shown(wanted, options.max_width)
        room = options.max_width - _PADDING * len(shown)
        widths = _share([wanted[place] for place in shown], room)
        table = RichTable(box=None)
        for place, width in zip(shown, widths, strict=True):
            name = self._columns[place]
            table.add_column(
                Text(name),
                justify="right" if self._is_numeric(place) else "left",
                width=width,
                no_wrap=name not in self._wrap,
                overflow="fold" if name in self._wrap else "ellipsis",
            )
        for row in self._rows:
            table.add_row(*(row[place] for place in shown))
        yield table
        if self._note is None or (place := self._columns.index(self._note)) in shown:
            return
        for row in self._rows:
            first, note = row[0], row[place]
            if isinstance(first, Text) and isinstance(note, Text) and note.plain:
                yield Text.assemble(" ", first, ": ", note)

    def _widths(self, console: Console, options: ConsoleOptions) -> list[int]:
        """Return the width of each column's widest cell; 0 when all its cells are empty."""
        wide = options.update(max_width=1000)  # as if there were room for all of it
        widths = []
        for heading, *cells in zip(self._columns, *self._rows, strict=True):
            is_empty = all(isinstance(cell, Text) and not cell.plain for cell in cells)
            sizes = (Measurement.get(console, wide, cell).maximum for cell in cells)
            widths.append(0 if is_empty else max(cell_len(heading), *sizes))
        return widths

    def _is_numeric(self, place: int) -> bool:
        cells = [str(row[place]) for row in self._rows]
        return all(_NUMBER.fullmatch(cell) for cell in cells if cell)

    def _shown(self, wanted: Sequence[int], room: int) -> list[int]:
        """Return the columns that are shown."""

        def total(places: Sequence[int]) -> int:
            return sum(wanted[place] + _PADDING for place in places)

        filled = [place for place, width in enumerate(wanted) if width]
        if total(filled) <= room:
            return filled
        optional = (*self._drop, self._note)
        kept = [place for place in filled if self._columns[place] not in optional]
        for name in reversed(self._drop):
            more = [place for place in filled if self._columns[place] == name]
            if total([*kept, *more]) <= room:
                kept += more
        return sorted(kept)


def _share(wanted: Sequence[int], room: int) -> list[int]:
    """Return widths that fit into `room`: narrow columns stay whole, wide ones get equal shares."""
    widths = [1] * len(wanted)
    waiting = sorted(range(len(wanted)), key=lambda place: wanted[place])
    for done, place in enumerate(waiting):
        widths[place] = max(1, min(wanted[place], room // (len(waiting) - done)))
        room -= widths[place]
    return widths
