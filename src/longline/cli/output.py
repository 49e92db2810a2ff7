"""What commands print: values as text, JSON, tables, and consoles that site text cannot control."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from longline.core.json import as_text
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


def print_line(text: str) -> None:
    """Print text that may come from a site as one line."""
    line = sanitize(text, is_line=True)
    click.echo(line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…")


def print_note(text: str) -> None:
    """Print a note for people on stderr."""
    click.echo(f"note: {one_line(text)}", err=True)


# ---------------- Consoles


class SafeConsole(Console):
    """The only console: it sanitises text and never interprets it as markup, emoji or links."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(
            stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False
        )

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


def stdout_console(*, soft_wrap: bool = False) -> SafeConsole:
    """Return a console on standard output."""
    return SafeConsole(soft_wrap=soft_wrap)


def stderr_console() -> SafeConsole:
    """Return a console on standard error."""
    return SafeConsole(stderr=True)


# ---------------- The one table printer: fits a terminal of any width without cutting numbers

_PADDING = 2  # of a column
_END = 20  # characters that the `keep_end` column gets before others share the width
_CONTEXT = 8  # shared characters that are shown before two compared texts differ
_WRAPPED = 1000  # characters of a cell that may wrap


class TextTable:
    """A table without borders that fits the terminal.

    Empty columns are left out. Where the rest is too wide, columns in `drop` go first; then narrow
    columns stay whole and wide ones share the remaining width and are cut with an ellipsis.

    Args:
        columns: headings.
        right: columns aligned to the right.
        drop: columns that may be dropped, the least important first.
        note: the column that moves below the table, a line per row, when it does not fit.
        wrap: columns that wrap instead of being cut.
        whole: columns that are never cut; the table may become wider than the terminal.
        keep_end: the column that is cut at its beginning, such as dotted field names.
        compare: columns whose cells are cut so that their difference stays visible.
        cell_length: maximum characters of a cell.
    """

    def __init__(
        self,
        *columns: str,
        right: Sequence[str] = (),
        drop: Sequence[str] = (),
        note: str | None = None,
        wrap: Sequence[str] = (),
        whole: Sequence[str] = (),
        keep_end: str | None = None,
        compare: Sequence[str] = (),
        cell_length: int = 200,
    ) -> None:
        def headings(names: Sequence[str]) -> list[str]:
            return [one_line(name, cell_length) for name in names]

        self._columns = headings(columns)
        self._right = headings(right)
        self._drop = headings(drop)
        self._note = note
        self._wrap = headings(wrap)
        self._whole = headings(whole)
        self._keep_end = keep_end
        self._compare = [self._columns.index(name) for name in compare]
        self._length = cell_length
        self._rows: list[list[RenderableType]] = []

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, *cells: object) -> None:
        """Add a row; strings and numbers become one line of text, rich renderables stay."""
        row: list[RenderableType] = [
            cell if hasattr(cell, "__rich_console__") else str(cell) for cell in cells
        ]
        self._keep_difference(row, [self._length] * len(row))
        for place, (name, cell) in enumerate(zip(self._columns, row, strict=True)):
            if isinstance(cell, str):
                length = _WRAPPED if name in self._wrap or name == self._note else self._length
                row[place] = Text(one_line(cell, length))
        self._rows.append(row)

    def print(self, empty: str = "") -> None:
        """Print the table on stdout, or `empty` when it has no rows.

        It is wider than the terminal if `whole` columns need it.
        """
        if empty and not self._rows:
            click.echo(empty)
            return
        console = stdout_console()
        options = console.options.update(max_width=1000)
        whole = [self._columns.index(name) for name in self._whole]
        needed = sum(self._wanted(place, console, options) + _PADDING for place in whole)
        others = len(self._columns) - len(whole)
        console.width = max(console.width, needed + others * (_CONTEXT + _PADDING) if whole else 0)
        console.print(self)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        # A cell is measured as if there were room for all of it.
        wide = options.update(max_width=1000)
        wanted = [self._wanted(place, console, wide) for place in range(len(self._columns))]
        shown = self._shown(wanted, options.max_width)
        widths = self._widths(shown, wanted, options.max_width - _PADDING * len(shown))
        yield self._rendered(shown, widths)
        if self._note is not None and self._columns.index(self._note) not in shown:
            yield from self._notes()

    def _wanted(self, place: int, console: Console, options: ConsoleOptions) -> int:
        """Return the width of a column's widest cell; 0 when all cells are empty."""
        cells = [row[place] for row in self._rows]
        if all(isinstance(cell, Text) and not cell.plain for cell in cells):
            return 0
        heading = cell_len(self._columns[place])
        return max(heading, *(Measurement.get(console, options, cell).maximum for cell in cells))

    def _shown(self, wanted: Sequence[int], room: int) -> list[int]:
        """Return the columns that are shown."""

        def total(places: Sequence[int]) -> int:
            return sum(wanted[place] + _PADDING for place in places)

        filled = [place for place, width in enumerate(wanted) if width]
        if total(filled) <= room:
            return filled
        named = {place: self._columns[place] for place in filled}
        kept = [
            place for place, name in named.items() if name not in self._drop and name != self._note
        ]
        for name in reversed(self._drop):
            more = [place for place, own in named.items() if own == name]
            if total([*kept, *more]) <= room:
                kept += more
        return sorted(kept)

    def _widths(self, shown: Sequence[int], wanted: Sequence[int], room: int) -> dict[int, int]:
        fixed = {place: wanted[place] for place in shown if self._columns[place] in self._whole}
        ends = [place for place in shown if self._columns[place] == self._keep_end]
        reserved = sum(fixed.values()) + sum(min(wanted[place], _END) for place in ends)
        others = [place for place in shown if place not in fixed and place not in ends]
        shares = shared_widths([wanted[place] for place in others], room - reserved)
        widths = fixed | dict(zip(others, shares, strict=True))
        for place in ends:
            widths[place] = max(1, min(wanted[place], room - sum(widths.values())))
        return widths

    def _rendered(self, shown: Sequence[int], widths: dict[int, int]) -> RichTable:
        table = RichTable(box=None)
        for place in shown:
            name = self._columns[place]
            is_wrapped = name in self._wrap
            table.add_column(
                Text(name),
                justify="right" if name in self._right else "left",
                width=widths[place],
                no_wrap=not is_wrapped,
                overflow="fold" if is_wrapped else "ellipsis",
            )
        all_widths = [widths.get(place, 0) for place in range(len(self._columns))]
        for row in self._rows:
            cells = list(row)
            for place in shown:
                if self._columns[place] == self._keep_end:
                    cells[place] = _cut_beginning(str(cells[place]), widths[place])
            if all(place in shown for place in self._compare):
                self._keep_difference(cells, all_widths)
            table.add_row(*(cells[place] for place in shown))
        return table

    def _keep_difference(self, row: list[RenderableType], widths: Sequence[int]) -> None:
        places = self._compare
        texts = cut_before_difference(
            [str(row[place]) for place in places], [widths[place] for place in places]
        )
        for place, text in zip(places, texts, strict=True):
            row[place] = Text(text)

    def _notes(self) -> Iterator[Text]:
        place = self._columns.index(self._note or "")
        for row in self._rows:
            first, note = row[0], row[place]
            if isinstance(first, Text) and isinstance(note, Text) and note.plain:
                yield Text.assemble(" ", first, ": ", note)


def cut_before_difference(texts: Sequence[str], lengths: Sequence[int]) -> list[str]:
    """Return texts as lines of at most these lengths that still show where they differ.

    A long common beginning is cut to a few characters.
    """
    lines = [one_line(text, 10**9) for text in texts]
    # All others lie between the first and the last in alphabetical order.
    first, last = min(lines, default=""), max(lines, default="")
    pairs = enumerate(zip(first, last, strict=False))
    same = first[: next((at for at, (one, other) in pairs if one != other), len(first))]
    hidden = [
        length
        for line, length in zip(lines, lengths, strict=True)
        if cell_len(line) > length and cell_len(same) >= length * 2 // 3
    ]
    if hidden:
        start = max(0, len(same) - min(_CONTEXT, min(hidden) // 3))
        lines = [f"…{line[start:]}" for line in lines]
    return [one_line(line, length) for line, length in zip(lines, lengths, strict=True)]


def shared_widths(wanted: Sequence[int], room: int) -> list[int]:
    """Return widths that fit into `room`: narrow columns stay whole, wide ones get equal shares."""
    widths = [1] * len(wanted)
    left, waiting = room, sorted(range(len(wanted)), key=lambda place: wanted[place])
    while waiting:
        place = waiting.pop(0)
        widths[place] = max(1, min(wanted[place], left // (len(waiting) + 1)))
        left -= widths[place]
    return widths


def _cut_beginning(text: str, width: int) -> Text:
    return Text(text if len(text) <= width else f"…{text[len(text) - width + 1 :]}")
