"""How values, shares and histograms look in a terminal; what sites wrote cannot steer it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TextIO, cast

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from longline.core.clock import utc_datetime
from longline.core.errors import BadOption
from longline.core.json_text import as_text
from longline.core.output import SafeStream, sanitize, trusted
from longline.storage.records.differences import value_at
from longline.storage.records.fields import path_of
from longline.storage.records.selecting import OWN_FIELDS

_HEIGHTS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
NOTHING = "—"
_LONGEST = 200  # of a cell
_SENTENCE = 1000  # of what is told beside an answer
_PADDING = 2  # of a column
_PATH = 20  # characters that a column of paths gets before others
_LEAD = 8  # characters that two texts share and are shown before they differ


def cleaned(text: str, *, is_line: bool = False) -> str:
    """Return text that cannot steer a terminal; as a line, it has no ends of lines either."""
    return sanitize(text, is_line=is_line)


def one_line(text: str, length: int) -> str:
    """Return text as one line of at most this length."""
    line = " ".join(cleaned(text).split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def apart(texts: Sequence[str], lengths: Sequence[int]) -> list[str]:
    """Return texts as lines of at most these lengths, in which can be seen where they differ.

    What they share at their beginning is cut, but for a few characters, where it hides the rest.
    """
    lines = [" ".join(cleaned(text).split()) for text in texts]
    same = _beginning(lines)
    hiding = [
        length
        for line, length in zip(lines, lengths, strict=True)
        if cell_len(line) > length and cell_len(same) >= length * 2 // 3
    ]
    if hiding:
        start = max(0, len(same) - min(_LEAD, min(hiding) // 3))
        lines = [f"…{line[start:]}" for line in lines]
    return [one_line(line, length) for line, length in zip(lines, lengths, strict=True)]


def _beginning(lines: Sequence[str]) -> str:
    """Return what all lines begin with."""
    # Between the first and the last in the order of the alphabet, all others stand.
    first, last = min(lines, default=""), max(lines, default="")
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((place for place, (one, other) in pairs if one != other), len(first))]


def written(value: Any) -> str:
    """Return a value as text: nothing as a dash, what is nested as JSON."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return as_text(value)


def number(value: float | None) -> str:
    """Return a number as people read it."""
    if value is None:
        return NOTHING
    if isinstance(value, int) or value.is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}"


def date_time(at: float | None) -> str:
    """Return a moment to the minute, in UTC."""
    return "now" if at is None else f"{utc_datetime(at):%Y-%m-%d %H:%M}"


def sparkline(counts: Sequence[int]) -> str:
    """Return a histogram of one line; whatever is not zero can be seen."""
    most = max(counts, default=0)
    if not most:
        return ""
    steps = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[-(-count * steps // most)] for count in counts)


def bar(share: float, width: int) -> str:
    """Return a bar of a share between 0 and 1, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


class Listing:
    """A table that fits: narrow columns stay whole, and wide ones share what is left.

    `path` is the column of dotted names, if there is one: those say most at their end. `compared`
    are columns of which only the difference matters: where they are cut, it stays.
    """

    def __init__(
        self,
        *columns: str,
        right: Sequence[str] = (),
        path: str | None = None,
        compared: Sequence[str] = (),
    ) -> None:
        self._columns = [one_line(name, _LONGEST) for name in columns]
        self._right = right
        self._compared = [self._columns.index(name) for name in compared]
        self._path = None if path is None else self._columns.index(path)
        self._rows: list[list[str]] = []

    def add(self, *cells: object, length: int = _LONGEST) -> None:
        """Add a row of cells, each one line of at most this length; nothing in them is markup."""
        row = [str(cell) for cell in cells]
        self._keep_apart(row, [length] * len(row))
        self._rows.append([one_line(cell, length) for cell in row])

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        del console  # its width is among the options
        table = Table(box=None)
        cells = zip(self._columns, *self._rows, strict=True)
        wanted = [max(map(cell_len, column)) for column in cells]
        widths = self._widths(wanted, options.max_width - _PADDING * len(wanted))
        for name, width in zip(self._columns, widths, strict=True):
            table.add_column(
                Text(name),
                justify="right" if name in self._right else "left",
                max_width=width,
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in self._rows:
            if self._path is not None:
                row[self._path] = _ending(row[self._path], widths[self._path])
            self._keep_apart(row, widths)
            table.add_row(*map(Text, row))
        yield table

    def _keep_apart(self, row: list[str], widths: Sequence[int]) -> None:
        places = self._compared
        found = apart([row[place] for place in places], [widths[place] for place in places])
        for place, text in zip(places, found, strict=True):
            row[place] = text

    def _widths(self, wanted: list[int], room: int) -> list[int]:
        if self._path is None:
            return shared(wanted, room)
        first = min(wanted[self._path], _PATH)
        others = wanted[: self._path] + wanted[self._path + 1 :]
        widths = shared(others, room - first)
        widths.insert(self._path, min(wanted[self._path], room - sum(widths)))
        return widths


def _ending(text: str, width: int) -> str:
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def shared(wanted: Sequence[int], room: int) -> list[int]:
    """Return widths that fit into the room: what wants little gets it, the others the same each."""
    widths = [1] * len(wanted)
    left, waiting = room, sorted(range(len(wanted)), key=lambda place: wanted[place])
    while waiting:
        place = waiting.pop(0)
        widths[place] = max(1, min(wanted[place], left // (len(waiting) + 1)))
        left -= widths[place]
    return widths


def echo_line(text: str) -> None:
    """Print one line, whatever a site put into it."""
    line = sanitize(text, is_line=True)
    click.echo(line if len(line) <= _SENTENCE else f"{line[: _SENTENCE - 1]}…")


def note(text: str) -> None:
    """Tell people something beside the answer, where programs do not look for it."""
    click.echo(f"note: {one_line(text, _SENTENCE)}", err=True)


class SafeConsole(Console):
    """The only console: it sanitises text and takes none of it for markup, emoji or links."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(
            stderr=stderr, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False
        )

    @property  # type: ignore[misc]  # rich's can be set, and nothing here may set this one
    def file(self) -> IO[str]:
        """The stream behind the safe ones, since this console adds escape sequences of its own."""
        stream: Any = sys.stderr if self.stderr else sys.stdout
        while isinstance(stream, SafeStream | FileProxy):
            stream = trusted(stream) if isinstance(stream, SafeStream) else stream.rich_proxied_file
        return cast("IO[str]", stream)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with text that cannot control the terminal."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            if control:  # rich's own movements of the cursor
                yield segment
            elif style is not None and style.link:
                yield Segment(sanitize(text), style.update_link(None))
            else:
                yield Segment(sanitize(text), style)


class SafeLive(Live):
    """A live display; what others print meanwhile is sanitised before rich reads it."""

    def start(self, refresh: bool = False) -> None:  # noqa: FBT001, FBT002  # as in rich
        super().start(refresh)
        for name in ("stdout", "stderr"):
            if isinstance(stream := getattr(sys, name), FileProxy):
                setattr(sys, name, SafeStream(cast("TextIO", stream)))


def plain_console(*, soft_wrap: bool = False) -> SafeConsole:
    """Return a console on standard output."""
    return SafeConsole(soft_wrap=soft_wrap)


def error_console() -> SafeConsole:
    """Return a console on standard error."""
    return SafeConsole(stderr=True)


# ---------------- The fields that `--columns` names, and their values in a record


def columns_of(text: str | None) -> tuple[str, ...]:
    """Return the fields of a list such as `title,address.city,@score`; none when there is none.

    Raises:
        BadOption: one of them is no field.
    """
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name.startswith("@") and name[1:] not in OWN_FIELDS:
            known = ", ".join(f"@{own}" for own in OWN_FIELDS)
            raise BadOption("--columns", f"there is no {name}; there are {known}")
        path_of(name)
    return names


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field of a record, or of one of our columns with `@` before it."""
    if not name.startswith("@"):
        return value_at(row["data"], path_of(name))
    value = row[name[1:]]
    is_moment = name.endswith("_at") and value is not None
    return utc_datetime(value).isoformat(timespec="seconds") if is_moment else value


def picked(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return source, key and these fields of a record."""
    own = {"source": row["source"], "key": row["key"]}
    return own | {name: value_of(row, name) for name in names}
