"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from longline.cli.format import note
from longline.config.documents import nearest
from longline.config.settings import Settings, load_settings
from longline.core.errors import BadOption
from longline.core.json_text import as_text
from longline.core.output import sanitize_json
from longline.pipeline.quality import GRADES
from longline.storage.records.selecting import (
    Condition,
    Order,
    RecordQuery,
    parse_condition,
    parse_moment,
    parse_order,
)
from longline.storage.store import Store

Command = TypeVar("Command", bound=Callable[..., Any])
_PROFILE = "longline.profile"
_SETTINGS = "longline.settings"


class Pair(click.ParamType[tuple[str, str]]):
    """`name=value`."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not of the form name=value", param, ctx)
        return name, text


class Rate(click.ParamType[float | str]):
    """Requests a second, `unlimited`, or, where a pace can be learned, `auto`."""

    name = "rate"

    def __init__(self, *, has_auto: bool = False) -> None:
        self._words = ("unlimited", "auto") if has_auto else ("unlimited",)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        if value in self._words:
            return str(value)
        try:
            number = float(value)
        except ValueError:
            words = " nor ".join(repr(word) for word in self._words)
            self.fail(f"{value!r} is neither a number nor {words}", param, ctx)
        if not 0 < number < float("inf"):
            self.fail("must be more than 0; for no limit at all say 'unlimited'", param, ctx)
        return number


class JobName(click.ParamType[str]):
    """The id of a job, or its beginning; nothing at all would be the beginning of any."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param, ctx
        if not value:
            raise BadOption("JOB", "it is empty; say which one, `longline jobs` lists them")
        return str(value)


JOB = JobName()
COUNT = click.IntRange(min=1, max=2**63 - 1)
"""How many rows are wanted: as far as databases count."""


def home_option(command: Command) -> Command:
    """Add `--home` and `--profile`, which is no parameter: `settings_of` knows of it."""
    return click.option(
        "--home",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the data [LONGLINE_HOME or ./.longline].",
    )(profile_option(command))


def engine_option(otherwise: str) -> Callable[[Command], Command]:
    """Add `--engine`; `otherwise` says what counts without it."""
    return click.option(
        "--engine",
        type=click.Choice(["local", "celery"]),
        help=f"Work here, or have workers do it [{otherwise}].",
    )


def profile_option(command: Command) -> Command:
    """Add `--profile`, which is no parameter of the command: `settings_of` knows of it."""
    return click.option(
        "--profile",
        metavar="NAME",
        help="Part of longline.yaml to use [LONGLINE_PROFILE].",
        expose_value=False,
        callback=_keep_profile,
    )(command)


def _keep_profile(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_PROFILE] = value


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def ignore_robots_option(command: Command) -> Command:
    """Add `--ignore-robots`."""
    return click.option(
        "--ignore-robots",
        multiple=True,
        metavar="HOST",
        help="Go on although robots.txt of HOST says no; recorded in the job.",
    )(command)


def settings_of(home: Path | None = None) -> Settings:
    """Return the settings, with the home and the profile of the command line."""
    settings = load_settings(home=home, profile=profile_given())
    if context := click.get_current_context(silent=True):
        context.meta[_SETTINGS] = settings
    return settings


def settings_used(context: click.Context) -> Settings | None:
    """Return the settings that a command has read; None when it has read none yet."""
    return context.meta.get(_SETTINGS)


def profile_given() -> str | None:
    """Return the profile of the command line; None when it names none."""
    context = click.get_current_context(silent=True)
    return context.meta.get(_PROFILE) if context else None


def values_of(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return `name=value` pairs as a mapping; true, false and numbers keep their type."""
    return {name: _typed(text) for name, text in pairs}


def _typed(text: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(sanitize_json(as_text(value)))


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what may be said of a source and its pace, in whichever way it is used."""
    options = (
        click.option(
            "--set", "options", type=Pair(), multiple=True, help="A setting of the source."
        ),
        click.option(
            "--param", "params", type=Pair(), multiple=True, help="A parameter for the source."
        ),
        click.option(
            "--rate",
            type=Rate(has_auto=True),
            help="Requests a second and domain, 'auto', 'unlimited'.",
        ),
        click.option("--burst", type=COUNT, help="Requests that may go at once."),
        click.option(
            "--max-in-flight",
            type=COUNT,
            help="Requests under way at one domain, over all processes.",
        ),
        click.option(
            "--concurrency", type=click.IntRange(1, 1000), help="Items at once of one domain."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


# ---------------- The filters of records, as options of several commands

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
