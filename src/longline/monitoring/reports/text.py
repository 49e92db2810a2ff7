"""Reports as plain text for terminals and mails, and as Markdown."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from longline.monitoring.reports.page import (
    Block,
    Cell,
    Chart,
    Code,
    Facts,
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

_SPARKS = "▁▂▃▄▅▆▇█"
_INITIALS = {"complete": "✓", "partial": "◆", "failed": "✗", "cancelled": "-"}
_WIDTH = 100
# What Markdown or the HTML in it would interpret.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")
_BEGINNING = re.compile(r"^(\d*)([-+=.)])(?=[\s=-]|$)")  # of a list, a heading or a rule


def cell_text(cell: Cell) -> str:
    """Return a cell of a table as plain text."""
    if isinstance(cell, Tag | Code):
        return plain_line(cell.text)
    if isinstance(cell, Meter):
        return share_of(cell.share)
    if isinstance(cell, Strip):
        return "".join(_INITIALS.get(one.text, "·") for one in cell.tags)
    return plain_line(cell)


def _sparkline(values: Iterable[float]) -> str:
    found = [*values]
    highest = max(found, default=0.0) or 1.0
    return "".join(_SPARKS[round(value / highest * (len(_SPARKS) - 1))] for value in found)


def _chart_line(chart: Chart) -> str:
    totals = chart.totals
    most = max(totals, default=0.0)
    unit = f" {chart.unit}" if chart.unit else ""
    first, last = chart.labels[0], chart.labels[-1]
    span = f"{first} to {last}, at most {most:,.4g}{unit}"
    return plain_line(f"{chart.title}: {_sparkline(totals)} ({span})")


def _shares_line(shares: Shares) -> str:
    parts = ", ".join(f"{count:,} {name}" for name, count, _ in shares.parts if count)
    return plain_line(f"{shares.total:,} {shares.title}: {parts or 'none'}")


# ---------------- Plain text


def as_plain_text(page: ReportPage, *, width: int | None = None) -> str:
    """Return a page as text; its tables fit into `width` columns."""
    lines = [plain_line(page.title), "=" * min(len(page.title), 60), plain_line(page.state)]
    lines += [plain_line(page.about)]
    for section in page.sections:
        if section.blocks:
            lines += ["", plain_line(section.heading).upper()]
            lines += [
                line for block in section.blocks for line in _text_lines(block, width or _WIDTH)
            ]
    return "\n".join([*(line.rstrip() for line in lines), ""])


def _text_lines(block: Block, width: int) -> Iterator[str]:
    if isinstance(block, ReportTable):
        yield from _text_table(block, width)
    elif isinstance(block, Facts):
        pairs = [(plain_line(name), plain_line(value)) for name, value in block.pairs]
        longest = max((len(name) for name, _ in pairs), default=0)
        yield from (f"{name:{longest}}  {value}" for name, value in pairs)
    elif isinstance(block, Notes):
        yield from (f"- {plain_line(text)}" for text in block.texts)
    else:
        yield _chart_line(block) if isinstance(block, Chart) else _shares_line(block)


def _text_table(table: ReportTable, width: int) -> Iterator[str]:
    drawn = RichTable(box=None, pad_edge=False)
    shown = [place for place, name in enumerate(table.columns) if name != table.below]
    for name in (table.columns[place] for place in shown):
        drawn.add_column(
            Text(plain_line(name)),
            justify="right" if name in table.numbers else "left",
            no_wrap=name in table.numbers | table.short,
            overflow="fold",
            ratio=1 if name == table.wide else None,
        )
    for row in table.rows:
        drawn.add_row(*(Text(cell_text(row[place])) for place in shown))
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(drawn)
    yield from captured.get().splitlines()
    if table.below is not None:
        place = table.columns.index(table.below)
        yield ""
        yield from (f"{cell_text(row[0])}: {cell_text(row[place])}" for row in table.rows)


# ---------------- Markdown


def as_markdown(page: ReportPage) -> str:
    """Return a page as a Markdown document; texts in it are never markup."""
    state = f"**{_escaped(page.state)}**" if plain_line(page.state) else ""
    lines = [f"# {_escaped(page.title)}", "", state, ""]
    lines += [_escaped(page.about)]
    for section in page.sections:
        if section.blocks:
            lines += ["", f"## {_escaped(section.heading)}"]
            for block in section.blocks:
                lines += ["", *_markdown_lines(block)]
    return "\n".join([*lines, ""])


def _markdown_lines(block: Block) -> Iterator[str]:
    if isinstance(block, ReportTable):
        rules = ("---:" if name in block.numbers else "---" for name in block.columns)
        yield _markdown_row(map(_escaped, block.columns))
        yield f"|{'|'.join(rules)}|"
        for row in block.rows:
            yield _markdown_row(_escaped(cell_text(cell)) for cell in row)
    elif isinstance(block, Facts):
        yield from (f"- {_escaped(name)}: {_escaped(value)}" for name, value in block.pairs)
    elif isinstance(block, Notes):
        yield from (f"- {_escaped(text)}" for text in block.texts)
    else:
        yield _escaped(_chart_line(block) if isinstance(block, Chart) else _shares_line(block))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return _BEGINNING.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", plain_line(text)))
