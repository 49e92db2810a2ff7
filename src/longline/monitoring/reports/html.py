"""Reports as HTML: one file without scripts, images or links to other files.

Jinja2 escapes every value. A policy in the page itself keeps a browser from running or loading
anything, whatever a site has put into its texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from longline.monitoring.reports.page import (
    Block,
    Chart,
    Code,
    Facts,
    Level,
    Meter,
    Notes,
    ReportPage,
    ReportTable,
    Shares,
    Strip,
    Tag,
    plain_line,
    share_of,
)

_SHAPES = {Level.GOOD: "✓", Level.WARNING: "◆", Level.BAD: "▲", Level.NEUTRAL: "●"}
_WIDTH, _HEIGHT = 360, 120  # of the columns of a chart, without its labels
_GAP = 0.25  # share of a column
_MOST_WIDTH = 36.0
_WIDE_TABLE = 4  # columns; one with more, sentences counting twice, is a list on a phone


@dataclass(frozen=True, slots=True)
class _Bar:
    """A rectangle of a chart."""

    x: float
    y: float
    width: float
    height: float
    level: Level
    text: str


def as_html(page: ReportPage, *, is_mail: bool = False) -> str:
    """Return a page as an HTML document; for a mail without charts, which mail programs remove."""
    template = _environment().get_template("mail.html" if is_mail else "page.html")
    return template.render(page=page)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("longline.monitoring.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"plain": plain_line, "percent": share_of, "kind": _kind, "label": _tick}
    environment.globals |= {
        "shapes": _SHAPES,
        "bars": _bars,
        "ticks": _ticks,
        "chart_width": _WIDTH,
        "chart_height": _HEIGHT,
        "is_wide": _is_wide,
    }
    return environment


def _is_wide(table: ReportTable) -> bool:
    return len(table.columns) + bool(table.wide) > _WIDE_TABLE


_KINDS: dict[type, str] = {
    ReportTable: "table",
    Facts: "facts",
    Notes: "notes",
    Chart: "chart",
    Shares: "shares",
    Tag: "tag",
    Meter: "meter",
    Strip: "strip",
    Code: "code",
    str: "text",
}


def _kind(block: Block | Any) -> str:
    """Return the name by which a template tells blocks and cells apart."""
    return _KINDS[type(block)]


def _bars(chart: Chart) -> Iterator[_Bar]:
    """Yield the rectangles of a chart, stacked from the bottom."""
    highest = max(chart.totals, default=0.0) or 1.0
    step = _WIDTH / len(chart.labels)
    width = min(step * (1 - _GAP), _MOST_WIDTH)
    for place, label in enumerate(chart.labels):
        bottom = float(_HEIGHT)
        for one in chart.series:
            height = one.values[place] / highest * (_HEIGHT - 14)  # room for the highest value
            bottom -= height
            if height:
                text = f"{label}: {_tick(one.values[place])} {one.name}"
                x = place * step + (step - width) / 2
                yield _Bar(round(x, 2), round(bottom, 2), round(width, 2), round(height, 2),
                           one.level, text)  # fmt: skip


def _ticks(chart: Chart) -> Iterator[tuple[float, str, str]]:
    """Yield the position, the alignment and the text of the labels that have room."""
    count, longest = len(chart.labels), max(len(plain_line(one)) for one in chart.labels)
    step = _WIDTH / count
    every = max(1, -(-(longest * 6 + 8) // int(step or 1)))
    half = longest * 2.8  # of the width of a label
    for place in range(0, count, every):
        x = min(max((place + 0.5) * step, half), _WIDTH - half)
        yield round(x, 2), "middle", chart.labels[place]


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"  # noqa: PLR2004
