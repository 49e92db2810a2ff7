"""The filters of records, as options of several commands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click

from longline.cli.options import COUNT, JOB
from longline.cli.showing import note
from longline.config.documents_words import nearest
from longline.errors import BadOption
from longline.pipeline.quality import GRADES
from longline.stores.moments import parse_moment
from longline.stores.selecting import Condition, Order, RecordQuery, parse_condition, parse_order
from longline.stores.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])


_CLASSES = tuple(name for _, name in GRADES)
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
    click.option("--job", type=JOB, help="Only records that this job saw last."),
    click.option("--min-score", type=click.FloatRange(0, 100), help="Only of this quality on."),
    click.option("--grade", help=f"Only of this class: {', '.join(_CLASSES)}."),
    _SINCE,
    _AS_OF,
    _WHERE,
    click.option(
        "--order",
        multiple=True,
        metavar="FIELD",
        help="By a field, once for each; -price is falling, @score ours.",
    ),
    click.option("--limit", type=COUNT, help="At most this many."),
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
        BadOption: a condition, an order, a score, a class or a moment cannot be read.
    """
    values = dict(filters)
    for name in ("since", "as_of"):
        values[name] = moment_of(values.get(name), f"--{name.replace('_', '-')}")
    values["where"] = tuple(map(parse_condition, values.get("where") or ()))
    values["order"] = tuple(map(_order_of, values.get("order") or ()))
    values["min_score"] = _score_of(values.get("min_score"))
    values["grade"] = _class_of(values.get("grade"))
    return RecordQuery(**values)


def _order_of(text: str) -> Order:
    if not text.strip(" -"):
        raise BadOption("--order", f"{text!r:.60} names no field, such as price or -@score")
    return parse_order(text)


def _score_of(score: float | None) -> float | None:
    if score is not None and math.isnan(score):
        raise BadOption("--min-score", "nan is no score: they go from 0 to 100")
    return score


def _class_of(text: str | None) -> str | None:
    """Return the class of this name, in whichever case it is written."""
    if text is None:
        return None
    found = next((name for name in _CLASSES if name.lower() == text.strip().lower()), None)
    if found is None:
        raise BadOption("--grade", f"{text!r:.60} is none of {', '.join(_CLASSES)}")
    return found


def moment_of(text: str | None, option: str) -> float | None:
    """Return the moment that an option names; None when it was not given.

    Raises:
        BadOption: it names none.
    """
    return None if text is None else parse_moment(text, option=option, now=time.time())


async def asked(store: Store, query: RecordQuery, columns: Sequence[str] = ()) -> RecordQuery:
    """Return the query as the store knows it, with a note on fields that no record has.

    Raises:
        UnknownJob: none or several fit.
        BadOption: the source is not known here.
    """
    await check_source(store, query.source)
    whole = await with_whole_job(store, query)
    ordered = [order.field for order in query.order]
    named = dict.fromkeys([one.field for one in query.where] + ordered + list(columns))
    for field in named:
        if not field.startswith("@") and not await _is_anywhere(store, query, field):
            of = f" of {query.source}" if query.source else ""
            hint = "; for several, say --order again" if field in ordered and "," in field else ""
            note(f"no record{of} has anything in {field}{hint}")
    return whole


async def check_source(store: Store, source: str | None) -> None:
    """Refuse a source that has neither a record nor a job here.

    Raises:
        BadOption: there is no such source; with the name that was probably meant.
    """
    if source is None or await store.records.list(RecordQuery(source=source, limit=1)):
        return
    known = {job.source for job in await store.jobs.list(limit=None)}
    if source in known:
        return
    known |= {row["source"] for row in await store.records.statistics()}
    meant = nearest(source, sorted(known))
    hint = f"did you mean {meant!r}? " if meant else ""
    listed = f"there are {', '.join(sorted(known))}" if known else "there is none yet"
    raise BadOption("source", f"nothing of {source!r:.60} was collected here; {hint}{listed}")


async def _is_anywhere(store: Store, query: RecordQuery, field: str) -> bool:
    filled = Condition(field, "?")
    wanted = RecordQuery(source=query.source, as_of=query.as_of, where=(filled,), limit=1)
    if await store.records.list(wanted):
        return True
    # Where there is no record at all, the field is not what is wrong.
    return not await store.records.list(replace(wanted, where=()))


async def with_whole_job(store: Store, query: RecordQuery) -> RecordQuery:
    """Return the query with the id of its job, of which the beginning is enough.

    Raises:
        UnknownJob: none or several fit.
    """
    if query.job is None:
        return query
    return replace(query, job=(await store.jobs.get(query.job)).id)
