"""The content of a report, whatever its format: sections of tables, facts, charts and notes.

The reports build a page, and a renderer for each format writes it. Every text may come from a site,
so that a renderer trusts none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from enum import StrEnum

from longline.core.clock import utc_datetime
from longline.core.output import sanitize

_LONGEST_TEXT = 400  # characters of a text from a site
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
UNKNOWN = "unknown"


class Level(StrEnum):
    """How good or bad something is; each has a colour and a shape."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Tag:
    """A word for a state, such as `failed`."""

    text: str
    level: Level


@dataclass(frozen=True, slots=True)
class Meter:
    """A share from 0 to 1, shown as a bar with a percentage."""

    share: float
    level: Level = Level.NEUTRAL


@dataclass(frozen=True, slots=True)
class Strip:
    """The states of several runs, oldest first."""

    tags: tuple[Tag, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A command to type."""

    text: str


Cell = str | Tag | Meter | Strip | Code


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows below headings; the columns in `numbers` are aligned right.

    The columns in `short` are not broken into lines. `wide` names the column with sentences, which
    takes the space that is left, and `below` one that plain text has below the table, since it is
    copied from there.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numbers: frozenset[str] = frozenset()
    short: frozenset[str] = frozenset()
    wide: str | None = None
    below: str | None = None


def filled_table(table: ReportTable) -> ReportTable:
    """Return a table without the columns that are empty in every row."""
    kept = [
        place
        for place, _ in enumerate(table.columns)
        if any(row[place] != "" for row in table.rows)
    ]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, few and short."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences, one below the other."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The values of a chart that have one colour."""

    name: str
    level: Level
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Stacked columns, one for each label."""

    title: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    unit: str = ""

    @property
    def totals(self) -> tuple[float, ...]:
        """The height of each column."""
        return tuple(map(sum, zip(*(one.values for one in self.series), strict=True)))


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of a whole, as one bar with a legend; the title follows the number of all."""

    title: str
    parts: tuple[tuple[str, int, Level], ...]

    @property
    def total(self) -> int:
        """The whole."""
        return sum(count for _, count, _ in self.parts)


Block = ReportTable | Facts | Notes | Chart | Shares


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Blocks below a heading; one without blocks is left out."""

    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A whole report: what it is about, its one-sentence state, and its sections."""

    title: str
    state: str
    level: Level
    about: str
    sections: Sequence[ReportSection] = field(default_factory=tuple)


# ---------------- Values as text


def plain_line(text: object, length: int = _LONGEST_TEXT) -> str:
    """Return a text from outside as one line without control characters."""
    line = " ".join(sanitize(str(text)).split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def count_of(value: float | None) -> str:
    """Return a count with separators of thousands."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def count_or_nothing(count: int) -> str:
    """Return a count; nothing for 0."""
    return count_of(count) if count else ""


def share_of(value: float | None) -> str:
    """Return a share as a percentage; 100% only for all, 0% only for none."""
    if value is None:
        return UNKNOWN
    percent = f"{value:.1%}"
    if (percent == "100.0%") != (value == 1):
        percent = ">99.9%"
    elif (percent == "0.0%") != (value == 0):
        percent = "<0.1%"
    return percent.replace(".0%", "%")


def span_of(seconds: float | None) -> str:
    """Return a duration in at most two units: 9.3 s, 3 min 5 s, 2 h 10 min, 4 d 15 h."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    for size, unit, part, smaller in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(whole)


def bytes_of(size: float | None) -> str:
    """Return a size with a decimal unit."""
    if size is None:
        return UNKNOWN
    for unit, number in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= number:
            return f"{size / number:.1f} {unit}"
    return f"{size:.0f} bytes"


def local_time(at: float | None, zone: tzinfo) -> str:
    """Return a time in a zone, to the minute."""
    return UNKNOWN if at is None else f"{in_zone(at, zone):%Y-%m-%d %H:%M}"


def day_and_time(at: float | None, zone: tzinfo) -> str:
    """Return a time in a zone without its year, to the minute; nothing for None."""
    return "" if at is None else f"{in_zone(at, zone):%m-%d %H:%M}"


def in_zone(at: float, zone: tzinfo) -> datetime:
    """Return a time as clocks in a zone show it."""
    return utc_datetime(at).astimezone(zone)


STATE_LEVELS = {
    "complete": Level.GOOD,
    "partial": Level.WARNING,
    "failed": Level.BAD,
    "paused": Level.WARNING,
    "abandoned": Level.BAD,
    "needs attention": Level.BAD,
    "compensated": Level.WARNING,
}


def state_tag(state: str) -> Tag:
    """Return the tag of a state of a job or flow."""
    return Tag(state, STATE_LEVELS.get(state, Level.NEUTRAL))
