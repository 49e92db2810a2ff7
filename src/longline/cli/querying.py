"""The filters of records, as options of several commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import click

from longline.stores.moments import parse_moment
from longline.stores.selecting import RecordQuery, parse_condition, parse_order
from longline.stores.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])

_WHERE = click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only where a field is so: price>100, city~berlin, photos?, @score<60; several are all.",
)
_AS_OF = click.option(
    "--as-of", metavar="WHEN", help="As they were then, without those not yet seen."
)
_SINCE = click.option(
    "--since", metavar="WHEN", help="Only those changed since: 2026-11-01 (UTC), or 2d, 3h ago."
)
_TEXT = click.option("--search", "text", help="Only records that hold this text.")
_OPTIONS = (
    click.option("--source", help="Only records of this source."),
    click.option("--job", help="Only records that this job saw last."),
    click.option("--min-score", type=click.FloatRange(0, 100), help="Only of this quality on."),
    click.option("--grade", help="Only of this class, such as Excellent."),
    _SINCE,
    _AS_OF,
    _WHERE,
    click.option(
        "--order",
        multiple=True,
        metavar="FIELD",
        help="By a field; -price is falling, @score ours.",
    ),
    click.option("--limit", type=click.IntRange(min=1), help="At most this many."),
)


def query_options(command: Command) -> Command:
    """Add the filters to a command."""
    return _TEXT(filter_options(command))


def filter_options(command: Command) -> Command:
    """Add the filters to a command that has a way of its own to say a text."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def query_of(filters: Mapping[str, Any]) -> RecordQuery:
    """Return the query that the options ask for.

    Raises:
        BadOption: a condition, an order or a moment cannot be read.
    """
    values = dict(filters)
    for name in ("since", "as_of"):
        values[name] = moment_of(values.get(name), f"--{name.replace('_', '-')}")
    values["where"] = tuple(map(parse_condition, values.get("where") or ()))
    values["order"] = tuple(map(parse_order, values.get("order") or ()))
    return RecordQuery(**values)


def moment_of(text: str | None, option: str) -> float | None:
    """Return the moment that an option names; None when it was not given.

    Raises:
        BadOption: it names none.
    """
    return None if text is None else parse_moment(text, option=option, now=time.time())


async def with_whole_job(store: Store, query: RecordQuery) -> RecordQuery:
    """Return the query with the id of its job, of which the beginning is enough.

    Raises:
        UnknownJob: none or several fit.
    """
    if query.job is None:
        return query
    return replace(query, job=(await store.jobs.get(query.job)).id)
