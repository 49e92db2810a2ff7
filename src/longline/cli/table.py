"""The one table printer: fits a terminal of any width without cutting numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from longline.cli.output import one_line, stdout_console

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

    def print(self) -> None:
        """Print the table on stdout, wider than the terminal if `whole` columns need it."""
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
