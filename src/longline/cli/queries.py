"""Reading the database of a home: records by filters or by key, and sources by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, TypeVar

import click

from longline.cli.options import COUNT, JOB, Command, Number, settings_of
from longline.cli.output import print_note
from longline.config.settings import Settings, is_read_only, prepare_home
from longline.config.validation_messages import nearest
from longline.core.errors import BadOption, HomeUnwritable, UnknownRecord
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
        with open_store(settings.database) as store:
            return await use(store)

    return asyncio.run(opened())


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

TIME_FORMS = "a date (2026-11-01, UTC) or an age (3h, 2d)"
_CLASSES = tuple(name for _, name in GRADES)
_OPTIONS = (
    click.option("--source", metavar="NAME", help="Only records of this source."),
    click.option("--job", type=JOB, help="Only records last seen by this job."),
    click.option(
        "--min-score", type=Number(float, 0, 100), help="Minimum quality score, 0 to 100."
    ),
    click.option("--grade", metavar="GRADE", help=f"Quality grade: {', '.join(_CLASSES)}."),
    click.option("--since", metavar="TIME", help=f"Only records changed since TIME, {TIME_FORMS}."),
    click.option(
        "--as-of", metavar="TIME", help="Records as they were at TIME, without later ones."
    ),
    click.option(
        "--where",
        multiple=True,
        metavar="CONDITION",
        help="Filter by a field: price>100, city~berlin, photos?, @score<60. Repeatable.",
    ),
    click.option(
        "--order",
        multiple=True,
        metavar="FIELD",
        help="Sort by a field; -price is descending, @score a built-in column. Repeatable.",
    ),
)
_SEARCH = click.option("--search", "text", metavar="TEXT", help="Only records that contain TEXT.")


def query_options(command: Command, *, limit: int | None = None) -> Command:
    """Add the filters of records to a command, which uses `limit` as its own default."""
    return _SEARCH(filter_options(command, limit=limit))


def filter_options(command: Command, *, limit: int | None = None) -> Command:
    """Add the filters to a command that takes the text to search for as an argument."""
    default = "" if limit is None else f"  [default: {limit}]"
    most = click.option("--limit", type=COUNT, help=f"Maximum number of records.{default}")
    for option in reversed((*_OPTIONS, most)):
        command = option(command)
    return command


def query_of(filters: Mapping[str, Any]) -> RecordQuery:
    """Return the query of the filters.

    Raises:
        BadOption: a condition, an order, a grade or a time cannot be read.
    """
    values = dict(filters)
    for name in ("since", "as_of"):
        values[name] = parse_time(values.get(name), f"--{name.replace('_', '-')}")
    values["where"] = tuple(map(parse_condition, values.get("where") or ()))
    values["order"] = tuple(map(_parse_order, values.get("order") or ()))
    values["grade"] = _parse_grade(values.get("grade"))
    return RecordQuery(**values)


def parse_time(text: str | None, option: str) -> float | None:
    """Return the time that an option names; None when it was not given.

    Raises:
        BadOption: it is not a time.
    """
    return None if text is None else parse_timestamp(text, option=option, now=time.time())


def _parse_order(text: str) -> Order:
    if not text.strip(" -"):
        raise BadOption("--order", f"{text!r:.60} names no field, such as price or -@score")
    return parse_order(text)


def _parse_grade(text: str | None) -> str | None:
    if text is None:
        return None
    found = next((name for name in _CLASSES if name.lower() == text.strip().lower()), None)
    if found is None:
        raise BadOption("--grade", f"{text!r:.60} is not one of {', '.join(_CLASSES)}")
    return found


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
    ordered = [order.field for order in query.order]
    for field in dict.fromkeys([*(one.field for one in query.where), *ordered, *columns]):
        if not field.startswith("@") and not await _is_known_field(store, query, field):
            of = f" of {query.source}" if query.source else ""
            hint = (
                "; for several fields, repeat --order" if field in ordered and "," in field else ""
            )
            print_note(f"no record{of} has a value in {field}{hint}")
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


async def _is_known_field(store: Store, query: RecordQuery, field: str) -> bool:
    filled = Condition(field, "?")
    wanted = RecordQuery(source=query.source, as_of=query.as_of, where=(filled,), limit=1)
    if await store.records.list(wanted):
        return True
    # Without any record, the field is not the problem.
    return not await store.records.list(replace(wanted, where=()))


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
    name, _, rest = key.partition("/")
    tries = [(source, key)] if source or not rest else [(None, key), (name, rest)]
    for of, wanted in tries:
        query = RecordQuery(key=wanted, source=of, as_of=as_of, limit=1)
        if rows := await store.records.list(query):
            return rows[0]
    raise UnknownRecord(key)
