"""The filters of records, as options of several commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from longline.stores.records import RecordQuery
from longline.stores.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--source", help="Only records of this source."),
    click.option("--job", help="Only records that this job saw last."),
    click.option("--search", "text", help="Only records that hold this text."),
    click.option("--min-score", type=click.FloatRange(0, 100), help="Only of this quality on."),
    click.option("--grade", help="Only of this class, such as Excellent."),
    click.option(
        "--since",
        type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
        help="Only those changed since this UTC date.",
    ),
    click.option("--limit", type=click.IntRange(min=1), help="At most this many."),
)


def query_options(command: Command) -> Command:
    """Add the filters to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def query_of(filters: Mapping[str, Any]) -> RecordQuery:
    """Return the query that the options ask for."""
    since = filters.get("since")
    values = dict(filters)
    if isinstance(since, datetime):
        values["since"] = since.replace(tzinfo=UTC).timestamp()
    return RecordQuery(**values)


async def with_whole_job(store: Store, query: RecordQuery) -> RecordQuery:
    """Return the query with the id of its job, of which the beginning is enough.

    Raises:
        UnknownJob: none or several fit.
    """
    if query.job is None:
        return query
    return replace(query, job=(await store.jobs.get(query.job)).id)
