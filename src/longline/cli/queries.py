"""Reading the database of a home: records by filters or by key, and sources by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import click

from longline.cli.log_options import Command, combine
from longline.cli.options import COUNT, JOB, ParsedText, number, settings_of
from longline.cli.output import print_note
from longline.config.settings import Settings, is_read_only, prepare_home
from longline.config.validation import nearest
from longline.core.clock import SystemClock
from longline.core.errors import BadOption, HomeUnwritable, UnknownRecord
from longline.monitoring.log_store import storing_logs
from longline.pipeline.quality import GRADES
from longline.storage.query import (
    Condition,
    Order,
    RecordQuery,
    parse_condition,
    parse_order,
    parse_timestamp,
)
from longline.storage.store import Store, open_store

R = TypeVar("R")
T = TypeVar("T")


def with_store(use: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store of a home, use it, close it; a home on a read-only file system can be read."""
    settings = settings_of()
    try:
        prepare_home(settings)
    except HomeUnwritable:
        if not is_read_only(settings.home):
            raise

    async def opened() -> T:
        with open_store(settings.database) as store, storing_logs(store, settings, SystemClock()):
            return await use(store)

    return asyncio.run(opened())


def uses_store(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async command with the store of the home as its first argument."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        with_store(lambda store: command(store, *args, **kwargs))

    return run


def with_opened(
    open_: Callable[[Settings], AbstractAsyncContextManager[R]], use: Callable[[R], Awaitable[T]]
) -> T:
    """Open something of a home, such as its archive, use it, close it."""
    settings = settings_of()
    prepare_home(settings)

    async def opened() -> T:
        async with open_(settings) as resource:
            return await use(resource)

    return asyncio.run(opened())


# ---------------- Filters


TIME = ParsedText("TIME", lambda text: parse_timestamp(text, option="TIME", now=time.time()))


def _parse_order(text: str) -> Order:
    if not text.strip(" -"):
        raise BadOption("order", f"{text!r:.60} is not a field, such as price or -@score")
    return parse_order(text)


def time_option(option: str, text: str) -> Callable[[Command], Command]:
    """Add an option for a time, which becomes seconds since the epoch."""
    forms = "a date (2026-11-01, UTC) or an age (3h, 2d)"
    return click.option(option, type=TIME, help=f"{text}: {forms}.")


def filter_options(limit: int | None = None) -> Callable[[Command], Command]:
    """Add the fields of RecordQuery but for `text`; `limit` is the default of the command."""
    default = "" if limit is None else f"  [default: {limit}]"
    return combine(
        click.option("--source", metavar="NAME", help="Only records of this source."),
        click.option("--job", type=JOB, help="Only records last seen by this job."),
        click.option(
            "--min-score", type=number(float, 0, 100), help="Minimum quality score, 0 to 100."
        ),
        click.option(
            "--grade",
            type=click.Choice([name for _, name in GRADES], case_sensitive=False),
            help="Only records with this quality grade.",
        ),
        time_option("--since", "Only records changed since TIME"),
        time_option("--as-of", "Records as they were at TIME"),
        click.option(
            "--where",
            type=ParsedText("CONDITION", parse_condition),
            multiple=True,
            help="Filter by a field: price>100, city~berlin, photos?, @score<60. Repeatable.",
        ),
        click.option(
            "--order",
            type=ParsedText("FIELD", _parse_order),
            multiple=True,
            help="Sort by a field; -price is descending, @score a built-in column. Repeatable.",
        ),
        click.option("--limit", type=COUNT, help=f"Maximum number of records.{default}"),
    )


def query_options(limit: int | None = None) -> Callable[[Command], Command]:
    """Add all fields of RecordQuery; `limit` is the default of the command."""
    search = click.option("--search", "text", metavar="TEXT", help="Only records containing TEXT.")
    return combine(search, filter_options(limit))


# ---------------- Names that people type


async def checked_query(
    store: Store, query: RecordQuery, columns: Sequence[str] = ()
) -> RecordQuery:
    """Return the query with the full id of its job; print a note on fields that no record has.

    Raises:
        UnknownJob: no job, or several, match.
        BadOption: the source is unknown.
    """
    await check_source(store, query.source)
    checked = await with_job_id(store, query)
    used = [*(one.field for one in query.where), *(one.field for one in query.order), *columns]
    any_record = RecordQuery(source=query.source, as_of=query.as_of, limit=1)
    for field in dict.fromkeys(name for name in used if not name.startswith("@")):
        filled = replace(any_record, where=(Condition(field, "?"),))
        # Without any record, the field is not the problem.
        if not await store.records.list(filled) and await store.records.list(any_record):
            of = f" of {query.source}" if query.source else ""
            hint = "; repeat --order for several fields" if "," in field else ""
            print_note(f"no record{of} has a value for {field}{hint}")
    return checked


async def check_source(store: Store, source: str | None, *, needs_records: bool = False) -> None:
    """Check that a source has a record in this home, or at least a job.

    Raises:
        BadOption: it has neither; with the name that was probably meant.
    """
    if source is None or await store.records.list(RecordQuery(source=source, limit=1)):
        return
    known = {row["source"] for row in await store.records.statistics()}
    if not needs_records:
        known |= {job.source for job in await store.jobs.list(limit=None)}
    if source in known:
        return
    meant = nearest(source, sorted(known))
    hint = f"did you mean {meant!r}? " if meant else ""
    listed = f"known sources: {', '.join(sorted(known))}" if known else "no source has been run yet"
    problem = "has no records" if needs_records else "was never run"
    option = "--source" if needs_records else "source"
    raise BadOption(option, f"{source!r:.60} {problem} in this home; {hint}{listed}")


async def with_job_id(store: Store, query: RecordQuery) -> RecordQuery:
    """Return the query with the full id of its job.

    Raises:
        UnknownJob: no job, or several, match.
    """
    if query.job is None:
        return query
    return replace(query, job=(await store.jobs.get(query.job)).id)


async def find_record(
    store: Store, key: str, source: str | None, *, as_of: float | None = None
) -> dict[str, Any]:
    """Return a record by its key, or by source/key as lists show it; keys may contain slashes.

    Raises:
        UnknownRecord: it does not exist, or did not at that time.
    """
    for of, wanted in possible_names(key, source):
        query = RecordQuery(key=wanted, source=of, as_of=as_of, limit=1)
        if rows := await store.records.list(query):
            return rows[0]
    raise UnknownRecord(key)


def possible_names(key: str, source: str | None) -> list[tuple[str | None, str]]:
    """Return what a key may mean, as source and key; None: any source."""
    name, _, rest = key.partition("/")
    return [(source, key)] if source or not rest else [(None, key), (name, rest)]
