"""Queries for records, present or past: conditions, order, and the SELECT for them.

A condition compares values of the same type: numbers, text, booleans. An empty field (missing,
null, blank) matches only `= null`; `!=` requires a filled field with another value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, ClassVar, Literal, get_args

import orjson
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Double,
    FromClause,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from longline.core.errors import BadOption
from longline.storage.backends import sanitize_key, sanitize_text
from longline.storage.schema import record_versions, records

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "?"]
OWN_FIELDS = tuple(column.name for column in records.c if column.name not in {"data", "about"})
"""Columns that a condition or an order may name, with `@` before them."""

_CONDITION = re.compile(r"\s*(@?[^@=!<>~?]+?)\s*(<=|>=|!=|==?|<|>|~|\?)\s*(.*?)\s*", re.DOTALL)
_MAX_COUNT = 2**63 - 1  # the largest number that the databases take
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one field.

    `field` is a dotted path into the data, or a column with `@` before it. `~` searches text in it,
    ignoring case; `?` requires that it is filled, or empty if `value` is False.
    """

    field: str
    test: Operator
    value: Any = True


@dataclass(frozen=True, slots=True)
class Order:
    """A field to sort by; records without it come last in both directions."""

    field: str
    is_descending: bool = False


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Selects records; an empty query selects all, oldest first.

    `as_of` selects each record as it was at that time, and leaves out records not yet seen then.
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
    """Parse a condition: price>100, city~berlin, @score<=60, photos?.

    Numbers, true, false and null are JSON values; everything else, and whatever is in quotes, is
    text. Text that begins with an operator needs quotes.

    Raises:
        BadOption: it is not a condition.
    """
    found = _CONDITION.fullmatch(text)
    if not found:
        raise BadOption("where", f"{text!r} is not a condition, such as price>100 or title~hat")
    field, test, written = found.groups()
    _check_query_field(field, "where")
    if test == "?":
        if written:
            raise BadOption("where", f"{text!r}: nothing may follow the ?")
        return Condition(field, "?")
    if not written:
        raise BadOption("where", f"{text!r} has no value; use =null for empty fields")
    if written[0] in "=!<>~?":
        raise BadOption("where", f"{text!r}: text that begins with {written[0]} needs quotes")
    try:
        value = orjson.loads(written)
    except orjson.JSONDecodeError:
        value = written
    is_searched = test == "~" and not isinstance(value, str)
    if is_searched or isinstance(value, list | dict):
        value = written
    return Condition(field, test.replace("==", "="), value)  # type: ignore[arg-type]  # one of them


def parse_order(text: str) -> Order:
    """Parse an order: price, -price, @score.

    Raises:
        BadOption: it is not an order.
    """
    field = text.strip()
    is_descending = field.startswith("-")
    field = field.removeprefix("-").strip()
    if not all(part.strip() for part in field.split(",")):
        raise BadOption("order", f"{text!r} is not a field, such as price or -@score")
    _check_query_field(field, "order")
    return Order(field, is_descending)


def select_records(query: RecordQuery) -> Select[Any]:
    """Return the SELECT for a query, sorted by record id by default.

    Raises:
        BadOption: a condition or an order names an unknown column.
    """
    columns = (records if query.as_of is None else _records_as_of(query.as_of)).c
    conditions = _basic_conditions(query, columns)
    for condition in query.where:
        if condition.test not in get_args(Operator):
            known = " ".join(get_args(Operator))
            raise BadOption("where", f"{condition.test!r} is not one of {known}")
        _check_query_field(condition.field, "where")
        is_own = condition.field.startswith("@")
        conditions.append((_own_clause if is_own else _field_clause)(columns, condition))
    keys = [key for order in query.order for key in _sort_keys(columns, order)]
    counts = {"limit": query.limit, "offset": query.offset or None}
    for name, count in counts.items():
        if count is not None and count < 0:
            raise BadOption(name, f"{count} is negative")
    limit, offset = (None if one is None else min(one, _MAX_COUNT) for one in counts.values())
    return (
        select(*columns).where(*conditions).order_by(*keys, columns.id).limit(limit).offset(offset)
    )


def _records_as_of(at: float) -> FromClause:
    """Select the records as they were at a time, with their present columns.

    `seen_at` and `gone_at` are not later than that time; the URL is the present one.
    """
    then: ColumnElement[float] = literal(at, Double())
    seen = case((records.c.seen_at <= then, records.c.seen_at), else_=records.c.changed_at)
    gone = case((records.c.gone_at <= then, records.c.gone_at))
    own = {"seen_at": seen, "gone_at": gone}
    present = select(
        *(own.get(column.name, column).label(column.name) for column in records.c)
    ).where(records.c.changed_at <= then)
    kept = {
        **{column.name: column for column in record_versions.c},
        "grade": record_versions.c.about[("quality", "grade")].as_string(),
        "changed_at": record_versions.c.since,
        "changed_by": record_versions.c.job_id,
        "seen_at": record_versions.c.since,
        "gone_at": gone,
    }
    past = (
        select(*(kept.get(column.name, column).label(column.name) for column in records.c))
        .join_from(record_versions, records)
        .where(record_versions.c.since <= then, record_versions.c.until > then)
    )
    return union_all(present, past).subquery("then")


def _basic_conditions(query: RecordQuery, columns: Any) -> list[ColumnElement[bool]]:
    equal = {
        columns.source: query.source,
        columns.job_id: query.job,
        columns.key: None if query.key is None else sanitize_key(query.key),
        columns.grade: query.grade,
    }
    conditions = [
        column == sanitize_text(value) for column, value in equal.items() if value is not None
    ]
    if query.min_score is not None:
        conditions.append(columns.score >= query.min_score)
    if query.since is not None:
        conditions.append(columns.changed_at >= query.since)
    if query.text:
        text = _stored_text(query.text)
        escaped = orjson.dumps(text).decode()[1:-1]  # as it is in the data
        in_data = _text_contains(cast(columns.data, Text), escaped)
        conditions.append(
            or_(in_data, _text_contains(columns.url, text), _text_contains(columns.key, text))
        )
    return conditions


def _field_clause(columns: Any, condition: Condition) -> ColumnElement[bool]:
    field = Field(columns.data, path_of(condition.field))
    test, value = condition.test, condition.value
    if test == "?":
        return field.is_filled if value else not_(field.is_filled)
    if test == "~":
        return _text_contains(field.written, _stored_text(str(value)))
    if test != "!=":
        return _compare_field(field, test, value)
    # Never NULL, so that it can be negated.
    is_equal = func.coalesce(_compare_field(field, "=", value), literal(value=False))
    return and_(field.is_filled, not_(is_equal))


def _compare_field(field: Field, test: str, value: Any) -> ColumnElement[bool]:
    if value is None:
        if test != "=":
            raise BadOption("where", f"{field.path[-1]}{test}null: only = and != work with null")
        return not_(field.is_filled)
    place: Any
    if isinstance(value, bool):
        place, bound = field.truth, literal(value)
    elif isinstance(value, (int, float)):
        place, bound = field.number, literal(value, Double())
    else:
        place, bound = _ByCode(field.text), literal(_stored_text(str(value)))
    clause: ColumnElement[bool] = _COMPARE[test](place, bound)
    return clause


def _own_clause(columns: Any, condition: Condition) -> ColumnElement[bool]:
    column = columns[condition.field[1:]]
    test, value = condition.test, condition.value
    clause: ColumnElement[bool]
    if test == "?" or value is None:
        is_empty = (test == "?" and not value) or (test == "=" and value is None)
        clause = column.is_(None) if is_empty else column.is_not(None)
    elif test == "~":
        clause = _text_contains(cast(column, Text), _stored_text(str(value)))
    elif isinstance(column.type, Text):
        is_sorted = test not in {"=", "!="}  # for equality there is an index
        clause = _COMPARE[test](_ByCode(column) if is_sorted else column, _stored_text(str(value)))
    else:
        if isinstance(value, str) and condition.field.endswith("_at"):
            value = parse_timestamp(value, option="where")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadOption("where", f"{condition.field} is a number, {value!r} is not")
        # Bound as the column's own type, a number would be rounded or overflow.
        clause = _COMPARE[test](column, literal(value, Double()))
    return clause


def _sort_keys(columns: Any, order: Order) -> list[ColumnElement[Any]]:
    _check_query_field(order.field, "order")
    values: list[ColumnElement[Any]]
    if order.field.startswith("@"):
        column = columns[order.field[1:]]
        rank = case((column.is_(None), 1), else_=0)
        values = [_ByCode(column) if isinstance(column.type, Text) else column]
    else:
        field = Field(columns.data, path_of(order.field))
        rank = case((field.is_number, 0), (field.is_text, 1), (field.is_truth, 2), else_=3)
        values = [field.number, _ByCode(func.lower(field.text)), field.truth]
    # Empty and unsortable values come last; the databases disagree on the place of NULL.
    return [rank, *(value.desc() if order.is_descending else value.asc() for value in values)]


def _check_query_field(field: str, option: str) -> None:
    if not field.startswith("@"):
        path_of(field)
    elif field[1:] not in OWN_FIELDS:
        known = ", ".join(f"@{name}" for name in OWN_FIELDS)
        raise BadOption(option, f"there is no {field}; known: {known}")


def _stored_text(text: str) -> str:
    """Return a text as it is stored in the data."""
    return sanitize_text(text).replace("\x00", "\ufffd")


def _text_contains(place: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    return place.icontains(text, autoescape=True)


# ---------------- Times as people write them

_AGO = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_timestamp(
    text: str, *, option: str, now: float | None = None, zone: tzinfo = UTC
) -> float:
    """Return the seconds since the epoch of a text: 2026-11-01, 2026-11-01T08:30, 2d, 3h.

    Without an offset it is a time of `zone`. Durations mean "ago" and require `now`.

    Raises:
        BadOption: it is not a time; names `option`.
    """
    written = text.strip()
    ago = _AGO.fullmatch(written)
    if ago and now is not None:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        read = datetime.fromisoformat(written)
        return (read if read.tzinfo else read.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError) as error:
        known = "a date (2026-11-01), a time (2026-11-01T08:30)"
        known += " or a duration (30m, 3h, 2d)" if now is not None else ""
        raise BadOption(option, f"{text!r} is not a time; use {known}") from error


# ---------------- Fields of a record's JSON data in SQL: the type and the value at a path

FieldPath = tuple[str | int, ...]
"""The steps to a value: names, or numbers, which are list indexes or names of digits."""

_NUMBERS = ("integer", "real", "number")  # types of SQLite, then of PostgreSQL
_TEXTS = ("text", "string")
_TRUTHS = ("true", "false", "boolean")
_NESTED = ("array", "object")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")  # PostgreSQL has no longer ones; 007 is a name


def path_of(dotted: str) -> FieldPath:
    """Return the steps of a dotted path; digits are list indexes from 0.

    Raises:
        BadOption: it is not a path.
    """
    steps = dotted.split(".")
    if not all(step.strip() for step in steps) or '"' in dotted:
        raise BadOption("field", f"{dotted!r} is not a path, such as price or address.city")
    return tuple(int(step) if _INDEX.fullmatch(step) else step for step in steps)


class Field:
    """The value at a path of the data, as SQL.

    `number`, `truth` and `text` are NULL if it is of another type; a value is cast only where it is
    of the type, so that no cast fails. `written` is text as it is, lists and objects as JSON, and
    numbers as digits. `is_filled`: 0 and false are values; missing, null and blank are not.
    """

    def __init__(self, data: Any, path: FieldPath) -> None:
        self.path = path
        by_name = ["." + orjson.dumps(str(step)).decode() for step in path]
        by_index = [
            f"[{step}]" if isinstance(step, int) else name
            for step, name in zip(path, by_name, strict=True)
        ]
        arguments = (
            data,
            literal("$" + "".join(by_index), Text()),
            literal("$" + "".join(by_name), Text()),
            literal([str(step) for step in path], ARRAY(Text)),
        )
        kind = func.coalesce(_KindAt(*arguments), "null")
        value = _ValueAt(*arguments)
        as_text = cast(value, Text())
        self.is_number = kind.in_(_NUMBERS)
        self.is_text = kind.in_(_TEXTS)
        self.is_truth = kind.in_(_TRUTHS)
        self.number = case((self.is_number, cast(value, Double())), else_=None)
        self.truth = case((self.is_truth, as_text.in_(("true", "1"))), else_=None)
        self.text = case((self.is_text, value), else_=None)
        self.written = case((kind.in_((*_TEXTS, *_NESTED, *_NUMBERS)), as_text), else_=None)
        blank = and_(self.is_text, func.trim(self.text) == "")
        nothing = and_(kind.in_(_NESTED), value.in_(("[]", "{}")))
        self.is_filled: ColumnElement[bool] = not_(or_(kind == "null", blank, nothing))


class _ValueAt(FunctionElement[str]):
    """The value at a path: in SQLite with its type, in PostgreSQL as text; NULL without a value.

    Its arguments are the data, SQLite's path with list indexes, that with names, and PostgreSQL's.
    """

    type = Text()
    inherit_cache = True
    name = "value_at"
    sqlite: ClassVar = "json_extract({}, {})"
    postgresql: ClassVar = "({} #>> {})"


class _KindAt(_ValueAt):
    """The JSON type of the value at a path, as the database names it."""

    inherit_cache = True
    name = "kind_at"
    sqlite: ClassVar = "json_type({}, {})"
    postgresql: ClassVar = "json_typeof({} #> {})"


class _ByCode(FunctionElement[str]):
    """A text that is compared and sorted by code point, whatever the collation."""

    type = Text()
    inherit_cache = True
    name = "by_code"


@compiles(_ByCode)
def _compile_by_code(element: _ByCode, compiler: SQLCompiler, **options: Any) -> str:
    text = compiler.process(next(iter(element.clauses)), **options)
    return text if compiler.dialect.name == "sqlite" else f'({text}) COLLATE "C"'


@compiles(_ValueAt)
def _compile_value_at(element: _ValueAt, compiler: SQLCompiler, **options: Any) -> str:
    data, by_index, by_name, path = element.clauses
    where = compiler.process(data, **options)
    if compiler.dialect.name != "sqlite":
        return element.postgresql.format(where, compiler.process(path, **options))
    ways = (compiler.process(way, **options) for way in (by_index, by_name))
    return f"coalesce({', '.join(element.sqlite.format(where, way) for way in ways)})"
