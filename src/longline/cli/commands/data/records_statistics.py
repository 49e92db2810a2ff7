"""longline records stats, quality: figures of many records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from longline.analysis.statistics import (
    FieldFigures,
    Figures,
    QualityFigures,
    Spread,
    figures_of,
    quality_of,
)
from longline.cli.format import NOTHING, Listing, bar, number, plain_console, sparkline
from longline.cli.opening import with_store
from longline.cli.options import (
    asked,
    home_option,
    json_option,
    print_json,
    query_of,
    query_options,
)
from longline.storage.records.selecting import RecordQuery
from longline.storage.store import Store

T = TypeVar("T")
_BAR = 30
_REASONS = 15


@click.command("stats")
@click.argument("name", metavar="[SOURCE]", required=False)
@query_options
@home_option
@json_option
def stats(name: str | None, *, home: Path | None, as_json: bool, **filters: Any) -> None:
    """Show how many records each source has; of SOURCE, or of those that match, every field."""
    if name is None and not any(filters.values()):
        _print_sources(with_store(home, lambda store: store.records.statistics()), as_json=as_json)
        return
    query = query_of(_of(name, filters))
    figures = with_store(home, lambda store: _read(store, query, figures_of))
    if as_json:
        print_json({"source": query.source} | figures.as_dict())
    else:
        _print_fields(figures)


@click.command("quality")
@click.argument("name", metavar="[SOURCE]", required=False)
@query_options
@home_option
@json_option
def quality(name: str | None, *, home: Path | None, as_json: bool, **filters: Any) -> None:
    """Show how good records are, and what they most often lose points for."""
    query = query_of(_of(name, filters))
    figures = with_store(home, lambda store: _read(store, query, quality_of))
    if as_json:
        print_json({"source": query.source} | figures.as_dict())
    else:
        _print_quality(figures)


def _of(name: str | None, filters: dict[str, Any]) -> dict[str, Any]:
    return filters | {"source": name or filters["source"]}


async def _read(
    store: Store, query: RecordQuery, use: Callable[[Iterable[dict[str, Any]]], T]
) -> T:
    return use(store.records.stream(await asked(store, query)))


def _print_sources(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    table = Listing("source", "records", "mean score", "classes", right=("records", "mean score"))
    for row in rows:
        grades = ", ".join(f"{name} {count}" for name, count in sorted(row["grades"].items()))
        mean = "" if row["mean_score"] is None else f"{row['mean_score']:.1f}"
        table.add(row["source"], row["records"], mean, grades)
    plain_console().print(table if rows else "no records yet; try: longline demo")


def _print_fields(figures: Figures) -> None:
    console = plain_console()
    if not figures.records:
        console.print("no records match")
        return
    console.print(f"{figures.records:,} records")
    columns = ("field", "filled", "types", "distinct", "min", "median", "max", "spread")
    right = ("filled", "distinct", "min", "median", "max")
    table = Listing(*columns, right=right, path="field")
    for one in figures.fields:
        _add_field(table, one)
    console.print(table)
    console.print("min to spread: the values of numbers, the lengths of texts and lists")
    if any(_is_sampled(one) for one in figures.fields):
        console.print("~ is of a sample; smallest and largest are of all values")
    if figures.is_cut:
        console.print(f"there are more fields than these {len(figures.fields)}")


def _add_field(table: Listing, one: FieldFigures) -> None:
    types = ", ".join(one.types if len(one.types) == 1 else _counted(one))
    distinct = f"{one.distinct:,}{'+' if one.is_distinct_capped else ''}"
    spread = one.numbers or one.lengths
    filled = f"{_share(one.share)}"
    table.add(one.field, filled, types or NOTHING, distinct, *_spread(spread))


def _share(share: float) -> str:
    """Return a share so that only what is whole is called 100 %, and only nothing 0 %."""
    shown = f"{share:.1%}"
    if shown == "100.0%":
        return "100%" if share == 1 else ">99.9%"
    return shown


def _counted(one: FieldFigures) -> list[str]:
    return [f"{name} {count:,}" for name, count in one.types.items()]


def _spread(spread: Spread | None) -> tuple[str, str, str, str]:
    if spread is None:
        return "", "", "", ""
    median = f"{'~' if spread.is_sampled else ''}{number(spread.median)}"
    smallest, largest = number(spread.smallest), number(spread.largest)
    return smallest, median, largest, sparkline(spread.histogram)


def _is_sampled(one: FieldFigures) -> bool:
    return any(spread.is_sampled for spread in (one.numbers, one.lengths) if spread)


def _print_quality(figures: QualityFigures) -> None:
    console = plain_console()
    if not figures.records:
        console.print("no records match")
        return
    mean = "none has a score" if figures.mean is None else f"mean score {figures.mean:.1f}"
    console.print(f"{figures.records:,} records, {mean}")
    console.print(_scores(figures))
    grades = ", ".join(f"{name} {count:,}" for name, count in figures.grades.items())
    console.print(f"classes: {grades}")
    if figures.lost:
        parts = ", ".join(f"{name} {points:.1f}" for name, points in figures.lost.items())
        console.print(f"points lost by a record on average: {parts}")
    if figures.reasons:
        console.print(_reasons(figures))
    if figures.other_reasons:
        console.print(f"{figures.other_reasons:,} more reasons were too many to tell apart")


def _scores(figures: QualityFigures) -> Listing:
    table = Listing("score", "records", "", right=("score", "records"))
    most = max(figures.histogram)
    width = 100 // len(figures.histogram)
    for place in range(len(figures.histogram) - 1, -1, -1):
        count = figures.histogram[place]
        words = f"{place * width} to {(place + 1) * width}"
        table.add(words, f"{count:,}", bar(count / most if most else 0, _BAR))
    return table


def _reasons(figures: QualityFigures) -> Listing:
    table = Listing("records", "part", "why points were lost", right=("records",))
    for reason in figures.reasons[:_REASONS]:
        table.add(f"{reason.records:,}", reason.part, reason.reason)
    return table
