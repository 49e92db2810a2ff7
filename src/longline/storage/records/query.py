"""Which records, as they are or were, and in what order: a query and the SELECT it becomes.

A condition compares like with like: numbers with numbers, text with text, true and false with
each other. An empty field (missing, null, blank) fulfils none but `= null`; `!=` means that the
field is filled, and with something else.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

import orjson
from sqlalchemy import (
    ColumnElement,
    Double,
    FromClause,
    Select,
    Text,
    and_,
    case,
    func,
    literal,
    not_,
    or_,
    select,
    union_all,
)
from sqlalchemy import cast as as_type

from longline.core.errors import BadOption
from longline.storage.columns import sanitize_key
from longline.storage.records.fields import ByCode, Field, field_at, path_of
from longline.storage.schema import record_versions, records

# ---------------- Moments as people write them: a date, a date and time, or how long ago

_AGO = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_timestamp(text: str, *, option: str, now: float | None = None) -> float:
    """Return the seconds since the epoch that a text means: 2026-11-01, 2026-11-01T08:30, 2d, 3h.

    Without a time zone it is UTC. "How long ago" needs to know what time it is `now`.

    Raises:
        BadOption: it means no moment; names `option`.
    """
    written = text.strip()
    ago = _AGO.fullmatch(written)
    if ago and now is not None:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        read = datetime.fromisoformat(written)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        known = "a date (2026-11-01), a time (2026-11-01T08:30)"
        known += " or how long ago (30m, 3h, 2d)" if now is not None else ""
        raise BadOption(option, f"{text!r} is no moment; say {known}") from error


Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "?"]
OWN_FIELDS = tuple(column.name for column in records.c if column.name not in {"data", "about"})
"""What a condition or an order may name with `@` before it."""

_WRITTEN = re.compile(r"\s*(@?[^@=!<>~?]+?)\s*(<=|>=|!=|==?|<|>|~|\?)\s*(.*?)\s*", re.DOTALL)
_OPERATORS = re.compile("[=!<>~?]")
_MOST = 2**63 - 1  # the largest number that the databases take
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What a field must be.

    `field` is a dotted path into the data, or one of our own columns with `@` before it. `~` asks
    for text anywhere in it, in any case; `?` whether it is filled (of a `value` of False: empty).
    """

    field: str
    test: Operator
    value: Any = True


@dataclass(frozen=True, slots=True)
class Order:
    """What to sort by; records without the field come last, whichever way."""

    field: str
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records; an empty query means all of them, oldest first.

    `as_of` asks for each record as it was at that moment, without those not yet seen by then.
    """

    source: str | None = None
    job: str | None = None
    key: str | None = None
    text: str | None = None
    min_score: float | None = None
    grade: str | None = None
    since: float | None = None
    limit: int | None = None
    offset: int = 0
    where: tuple[Condition, ...] = ()
    order: tuple[Order, ...] = ()
    as_of: float | None = None


def parse_condition(text: str) -> Condition:
    """Return the condition that a person wrote: price>100, city~berlin, @score<=60, photos?.

    A number, true, false and null mean themselves; text in quotes is text whatever it looks like.
    Text that begins with an operator, or is compared by size and holds one, must be in quotes.

    Raises:
        BadOption: it is none.
    """
    found = _WRITTEN.fullmatch(text)
    if not found:
        raise BadOption("where", f"{text!r} is no condition, such as price>100 or title~hat")
    field, test, written = found.groups()
    _check(field, "where")
    if test == "?":
        if written:
            raise BadOption("where", f"{text!r}: nothing may follow the ? (is it filled?)")
        return Condition(field, "?")
    if not written:
        raise BadOption("where", f"{text!r} says nothing to compare with; for empty, say =null")
    _check_operators(text, test, written)
    value = _value(written)
    is_contained = test == "~"
    if is_contained and not isinstance(value, str):
        value = written
    return Condition(field, cast("Operator", test.replace("==", "=")), value)


def parse_order(text: str) -> Order:
    """Return the order that a person wrote: price, -price, @score.

    Raises:
        BadOption: it is none.
    """
    field = text.strip()
    is_descending = field.startswith("-")
    field = field.removeprefix("-").strip()
    if not field:
        raise BadOption("order", f"{text!r} names no field, such as price or -@score")
    if not all(part.strip() for part in field.split(",")):
        problem = f"{text!r} has an empty part; for several fields, say it once for each"
        raise BadOption("order", problem)
    _check(field, "order")
    return Order(field, is_descending)


def select_records(query: RecordQuery) -> Select[Any]:
    """Return the SELECT for a query, by default in the order of the records' ids.

    Raises:
        BadOption: a condition or an order names what there is not.
    """
    table = records if query.as_of is None else _as_they_were(query.as_of)
    columns = table.c
    conditions = [*_plain_conditions(query, columns)]
    conditions += [_clause(columns, condition) for condition in query.where]
    keys = [key for order in query.order for key in _sort_keys(columns, order)]
    return (
        select(*columns)
        .where(*conditions)
        .order_by(*keys, columns.id)
        .limit(_count(query.limit, "limit"))
        .offset(_count(query.offset, "offset") or None)
    )


def _as_they_were(at: float) -> FromClause:
    """Return the records as they were at a moment, with the columns that they have now.

    The last sighting that is told is one that was by then; the address is the present one.
    """
    then: ColumnElement[float] = literal(at, Double())
    seen = case((records.c.seen_at <= then, records.c.seen_at), else_=records.c.changed_at)
    present = select(
        *(seen.label("seen_at") if column.name == "seen_at" else column for column in records.c)
    ).where(records.c.changed_at <= then)
    kept = {
        **{column.name: column for column in record_versions.c},
        "grade": record_versions.c.about[("quality", "grade")].as_string(),
        "changed_at": record_versions.c.since,
        "changed_by": record_versions.c.job_id,
        "seen_at": record_versions.c.since,
    }
    past = (
        select(*(kept.get(column.name, column).label(column.name) for column in records.c))
        .join_from(record_versions, records)
        .where(record_versions.c.since <= then, record_versions.c.until > then)
    )
    return union_all(present, past).subquery("then")


def _plain_conditions(query: RecordQuery, columns: Any) -> list[ColumnElement[bool]]:
    equal = {
        columns.source: query.source,
        columns.job_id: query.job,
        columns.key: None if query.key is None else sanitize_key(_checked(query.key, "key")),
        columns.grade: query.grade,
    }
    conditions = [
        column == _checked(value, column.name)
        for column, value in equal.items()
        if value is not None
    ]
    if query.min_score is not None:
        conditions.append(columns.score >= query.min_score)
    if query.since is not None:
        conditions.append(columns.changed_at >= query.since)
    if query.text:
        text = _sayable(query.text, "text")
        written = orjson.dumps(text).decode()[1:-1]  # quotes have a backslash in the data
        places = (
            (as_type(columns.data, Text), written),
            (columns.url, text),
            (columns.key, text),
        )
        conditions.append(or_(*(_holds(place, said) for place, said in places)))
    return conditions


def _clause(columns: Any, condition: Condition) -> ColumnElement[bool]:
    if condition.test not in get_args(Operator):
        raise BadOption("where", f"{condition.test!r} is none of {' '.join(get_args(Operator))}")
    if condition.field.startswith("@"):
        return _own_clause(_own(columns, condition.field, "where"), condition)
    field = field_at(columns.data, condition.field)
    test, value = condition.test, condition.value
    if test == "?":
        return field.is_filled if value else not_(field.is_filled)
    if test == "~":
        return _holds(field.written, _sayable(str(value), "where"))
    if test == "!=":
        return and_(field.is_filled, not_(_equal(field, value)))
    return _compared(field, test, value)


def _equal(field: Field, value: Any) -> ColumnElement[bool]:
    # Not NULL where the kinds differ, so that it can be turned round.
    return func.coalesce(_compared(field, "=", value), literal(value=False))


def _compared(field: Field, test: str, value: Any) -> ColumnElement[bool]:
    compare = _COMPARE[test]
    clause: ColumnElement[bool]
    if value is None:
        if test != "=":
            raise BadOption("where", f"{field.path[-1]}{test}null: only = and != go with null")
        clause = not_(field.is_filled)
    elif isinstance(value, bool):
        clause = compare(field.truth, literal(value))
    elif isinstance(value, (int, float)):
        clause = compare(field.number, literal(value, Double()))
    else:
        text = _sayable(str(value), "where")
        clause = compare(ByCode(field.text), text)
    return clause


def _own_clause(column: Any, condition: Condition) -> ColumnElement[bool]:
    clause: ColumnElement[bool]
    test, value = condition.test, condition.value
    is_text = isinstance(column.type, Text)
    if test == "?" or value is None:
        is_empty = (test == "?" and not value) or (test == "=" and value is None)
        clause = column.is_(None) if is_empty else column.is_not(None)
    elif test == "~":
        text = _sayable(str(value), "where")
        clause = _holds(column if is_text else as_type(column, Text), text)
    else:
        # A number that is bound as the column's own type would be rounded to it, or not fit.
        bound: Any = (
            _sayable(str(value), "where")
            if is_text
            else literal(_as_number(value, condition), Double())
        )
        is_sorted = is_text and test not in {"=", "!="}
        place = ByCode(column) if is_sorted else column  # for equality there is an index
        clause = place != bound if test == "!=" else _COMPARE[test](place, bound)
    return clause


def _as_number(value: Any, condition: Condition) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if condition.field.endswith("_at"):
        return parse_timestamp(str(value), option="where")
    raise BadOption("where", f"{condition.field} is a number, and {value!r} is none")


def _sort_keys(columns: Any, order: Order) -> list[ColumnElement[Any]]:
    if order.field.startswith("@"):
        column = _own(columns, order.field, "order")
        value = ByCode(column) if isinstance(column.type, Text) else column
        return [case((column.is_(None), 1), else_=0), _turned(value, order)]
    field = field_at(columns.data, order.field)
    rank = case((field.is_number, 0), (field.is_text, 1), (field.is_truth, 2), else_=3)
    values = (field.number, ByCode(func.lower(field.text)), field.truth)
    # Nothing and what cannot be sorted come last; the databases disagree on where NULL goes.
    return [rank, *(_turned(value, order) for value in values)]


def _turned(value: ColumnElement[Any], order: Order) -> ColumnElement[Any]:
    return value.desc() if order.is_descending else value.asc()


def _own(columns: Any, field: str, option: str) -> Any:
    _check(field, option)
    return columns[field[1:]]


def _check(field: str, option: str) -> None:
    if not field.startswith("@"):
        path_of(field)
    elif field[1:] not in OWN_FIELDS:
        known = ", ".join(f"@{name}" for name in OWN_FIELDS)
        raise BadOption(option, f"there is no {field}; there are {known}")


def _check_operators(text: str, test: str, written: str) -> None:
    """Refuse what is more likely a slip, such as price>>3 or 1<price<5, than a text."""
    is_quoted = written.startswith('"') and isinstance(_value(written), str)
    at = written if test in {"<", "<=", ">", ">="} else written[:1]
    if not is_quoted and (stray := _OPERATORS.search(at)):
        raise BadOption(
            "where",
            f"{text!r} has a stray {stray.group()}; text that holds one is written in quotes, "
            f"such as title~{orjson.dumps(stray.group()).decode()}",
        )


def _value(written: str) -> Any:
    try:
        value = orjson.loads(written)
    except orjson.JSONDecodeError:
        return written
    return written if isinstance(value, (list, dict)) else value


def _sayable(text: str, option: str) -> str:
    """Return a text as it stands in the data."""
    return _checked(text, option).replace("\x00", "\ufffd")  # as `as_json` writes it


def _checked(text: str, option: str) -> str:
    """Refuse what no database could be asked for."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadOption(option, f"{text!r} holds bytes that are no text") from error
    return text


def _count(count: int | None, option: str) -> int | None:
    if count is not None and count < 0:
        raise BadOption(option, f"{count} is less than none")
    return None if count is None else min(count, _MOST)


def _holds(place: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return place.ilike(f"%{escaped}%", escape="\\")
