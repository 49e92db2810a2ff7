"""Queries for records, present or past: conditions, order, and the SELECT for them.

A condition compares values of the same type: numbers, text, booleans. An empty field (missing,
null, blank) matches only `= null`; `!=` requires a filled field with another value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import orjson
from sqlalchemy import (
    ColumnElement,
    Double,
    FromClause,
    Integer,
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
from longline.storage.bulk import sanitize_key
from longline.storage.schema import record_versions, records

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "?"]
OWN_FIELDS = tuple(column.name for column in records.c if column.name not in {"data", "about"})
"""Columns that a condition or an order may name, with `@` before them."""

_CONDITION = re.compile(r"\s*(@?[^@=!<>~?]+?)\s*(<=|>=|!=|==?|<|>|~|\?)\s*(.*?)\s*", re.DOTALL)
_OPERATORS = re.compile("[=!<>~?]")
_MAX_COUNT = 2**63 - 1  # the largest number that the databases take
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
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
    """Which records; an empty query selects all, oldest first.

    `as_of` selects each record as it was at that time, without those not yet seen by then.
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
    text. Text that begins with an operator, or contains one after <, <=, > or >=, needs quotes.

    Raises:
        BadOption: it is not a condition.
    """
    found = _CONDITION.fullmatch(text)
    if not found:
        raise BadOption("where", f"{text!r} is not a condition, such as price>100 or title~hat")
    field, test, written = found.groups()
    _check_field(field, "where")
    if test == "?":
        if written:
            raise BadOption("where", f"{text!r}: nothing may follow the ?")
        return Condition(field, "?")
    if not written:
        raise BadOption("where", f"{text!r} has no value; use =null for empty fields")
    _check_stray_operator(text, test, written)
    value = _parse_value(written)
    is_contained = test == "~"
    if is_contained and not isinstance(value, str):
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
    if not field:
        raise BadOption("order", f"{text!r} names no field, such as price or -@score")
    if not all(part.strip() for part in field.split(",")):
        problem = f"{text!r} has an empty part; repeat the option for several fields"
        raise BadOption("order", problem)
    _check_field(field, "order")
    return Order(field, is_descending)


def select_records(query: RecordQuery) -> Select[Any]:
    """Return the SELECT for a query, sorted by record id by default.

    Raises:
        BadOption: a condition or an order names an unknown column.
    """
    table = records if query.as_of is None else _records_as_of(query.as_of)
    columns = table.c
    conditions = [*_basic_conditions(query, columns)]
    conditions += [_condition_clause(columns, condition) for condition in query.where]
    keys = [key for order in query.order for key in _sort_keys(columns, order)]
    return (
        select(*columns)
        .where(*conditions)
        .order_by(*keys, columns.id)
        .limit(_clamp_count(query.limit, "limit"))
        .offset(_clamp_count(query.offset, "offset") or None)
    )


def _records_as_of(at: float) -> FromClause:
    """Select the records as they were at a time, with their present columns.

    `seen_at` is not later than that time; the URL is the present one.
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


def _basic_conditions(query: RecordQuery, columns: Any) -> list[ColumnElement[bool]]:
    equal = {
        columns.source: query.source,
        columns.job_id: query.job,
        columns.key: None if query.key is None else sanitize_key(_encodable(query.key, "key")),
        columns.grade: query.grade,
    }
    conditions = [
        column == _encodable(value, column.name)
        for column, value in equal.items()
        if value is not None
    ]
    if query.min_score is not None:
        conditions.append(columns.score >= query.min_score)
    if query.since is not None:
        conditions.append(columns.changed_at >= query.since)
    if query.text:
        text = _stored_text(query.text, "text")
        written = orjson.dumps(text).decode()[1:-1]  # as it is escaped in the data
        places = (
            (cast(columns.data, Text), written),
            (columns.url, text),
            (columns.key, text),
        )
        conditions.append(or_(*(_contains(column, wanted) for column, wanted in places)))
    return conditions


def _condition_clause(columns: Any, condition: Condition) -> ColumnElement[bool]:
    if condition.test not in get_args(Operator):
        raise BadOption("where", f"{condition.test!r} is none of {' '.join(get_args(Operator))}")
    if condition.field.startswith("@"):
        return _own_clause(_own_column(columns, condition.field, "where"), condition)
    field = Field(columns.data, path_of(condition.field))
    test, value = condition.test, condition.value
    if test == "?":
        return field.is_filled if value else not_(field.is_filled)
    if test == "~":
        return _contains(field.written, _stored_text(str(value), "where"))
    if test == "!=":
        return and_(field.is_filled, not_(_is_equal(field, value)))
    return _compare_field(field, test, value)


def _is_equal(field: Field, value: Any) -> ColumnElement[bool]:
    # Never NULL, so that it can be negated.
    return func.coalesce(_compare_field(field, "=", value), literal(value=False))


def _compare_field(field: Field, test: str, value: Any) -> ColumnElement[bool]:
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
        text = _stored_text(str(value), "where")
        clause = compare(_ByCode(field.text), text)
    return clause


def _own_clause(column: Any, condition: Condition) -> ColumnElement[bool]:
    clause: ColumnElement[bool]
    test, value = condition.test, condition.value
    is_text = isinstance(column.type, Text)
    if test == "?" or value is None:
        is_empty = (test == "?" and not value) or (test == "=" and value is None)
        clause = column.is_(None) if is_empty else column.is_not(None)
    elif test == "~":
        text = _stored_text(str(value), "where")
        clause = _contains(column if is_text else cast(column, Text), text)
    else:
        # Bound as the column's own type, a number would be rounded or overflow.
        bound: Any = (
            _stored_text(str(value), "where")
            if is_text
            else literal(_number_of(value, condition), Double())
        )
        is_sorted = is_text and test not in {"=", "!="}
        place = _ByCode(column) if is_sorted else column  # for equality there is an index
        clause = place != bound if test == "!=" else _COMPARE[test](place, bound)
    return clause


def _number_of(value: Any, condition: Condition) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    if condition.field.endswith("_at"):
        return parse_timestamp(str(value), option="where")
    raise BadOption("where", f"{condition.field} is a number, {value!r} is not")


def _sort_keys(columns: Any, order: Order) -> list[ColumnElement[Any]]:
    if order.field.startswith("@"):
        column = _own_column(columns, order.field, "order")
        value = _ByCode(column) if isinstance(column.type, Text) else column
        return [case((column.is_(None), 1), else_=0), _directed(value, order)]
    field = Field(columns.data, path_of(order.field))
    rank = case((field.is_number, 0), (field.is_text, 1), (field.is_truth, 2), else_=3)
    values = (field.number, _ByCode(func.lower(field.text)), field.truth)
    # Empty and unsortable values come last; the databases disagree on the place of NULL.
    return [rank, *(_directed(value, order) for value in values)]


def _directed(value: ColumnElement[Any], order: Order) -> ColumnElement[Any]:
    return value.desc() if order.is_descending else value.asc()


def _own_column(columns: Any, field: str, option: str) -> Any:
    _check_field(field, option)
    return columns[field[1:]]


def _check_field(field: str, option: str) -> None:
    if not field.startswith("@"):
        path_of(field)
    elif field[1:] not in OWN_FIELDS:
        known = ", ".join(f"@{name}" for name in OWN_FIELDS)
        raise BadOption(option, f"there is no {field}; there are {known}")


def _check_stray_operator(text: str, test: str, written: str) -> None:
    """Raise BadOption for likely typing errors such as price>>3 or 1<price<5."""
    is_quoted = written.startswith('"') and isinstance(_parse_value(written), str)
    at = written if test in {"<", "<=", ">", ">="} else written[:1]
    if not is_quoted and (stray := _OPERATORS.search(at)):
        raise BadOption(
            "where",
            f"{text!r} has a stray {stray.group()}; text that contains one needs quotes, "
            f"such as title~{orjson.dumps(stray.group()).decode()}",
        )


def _parse_value(written: str) -> Any:
    try:
        value = orjson.loads(written)
    except orjson.JSONDecodeError:
        return written
    return written if isinstance(value, (list, dict)) else value


def _stored_text(text: str, option: str) -> str:
    """Return a text as it is stored in the data."""
    return _encodable(text, option).replace("\x00", "\ufffd")  # as `as_json` writes it


def _encodable(text: str, option: str) -> str:
    """Return the text; raise BadOption if it cannot be encoded for a database."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadOption(option, f"{text!r} contains bytes that are not text") from error
    return text


def _clamp_count(count: int | None, option: str) -> int | None:
    if count is not None and count < 0:
        raise BadOption(option, f"{count} is negative")
    return None if count is None else min(count, _MAX_COUNT)


def _contains(place: ColumnElement[Any], text: str) -> ColumnElement[bool]:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return place.ilike(f"%{escaped}%", escape="\\")


# ---------------- Times as people write them

_AGO = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_timestamp(text: str, *, option: str, now: float | None = None) -> float:
    """Return the seconds since the epoch of a text: 2026-11-01, 2026-11-01T08:30, 2d, 3h.

    Without a time zone it is UTC. Durations mean "ago" and require `now`.

    Raises:
        BadOption: it is not a time; names `option`.
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
        arguments = _path_arguments(path)
        kind = func.coalesce(_KindAt(data, *arguments), "null")
        value = _ValueAt(data, *arguments)
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


def _path_arguments(path: FieldPath) -> list[ColumnElement[Any]]:
    by_name = ["." + orjson.dumps(str(step)).decode() for step in path]
    by_number = [
        f"[{step}]" if isinstance(step, int) else name
        for step, name in zip(path, by_name, strict=True)
    ]
    steps: list[ColumnElement[Any]] = [
        literal(step, Integer() if isinstance(step, int) else Text()) for step in path
    ]
    return [*(literal("$" + "".join(way), Text()) for way in (by_number, by_name)), *steps]


class _KindAt(FunctionElement[str]):
    """The JSON type of the value at a path, as the database names it; NULL when there is none."""

    type = Text()
    inherit_cache = True
    name = "kind_at"


class _ValueAt(FunctionElement[str]):
    """The value at a path: in SQLite with its type, in PostgreSQL as text."""

    type = Text()
    inherit_cache = True
    name = "value_at"


class _ByCode(FunctionElement[str]):
    """A text that is compared and sorted by code point, whatever the collation."""

    type = Text()
    inherit_cache = True
    name = "by_code"


@compiles(_ByCode)
def _compile_by_code(element: _ByCode, compiler: SQLCompiler, **options: Any) -> str:
    text = compiler.process(next(iter(element.clauses)), **options)
    return text if compiler.dialect.name == "sqlite" else f'({text}) COLLATE "C"'


@compiles(_KindAt)
def _compile_kind(element: _KindAt, compiler: SQLCompiler, **options: Any) -> str:
    if compiler.dialect.name == "sqlite":
        return _in_sqlite("json_type", element, compiler, options)
    return f"json_typeof({_in_postgresql(element, compiler, options)})"


@compiles(_ValueAt)
def _compile_value(element: _ValueAt, compiler: SQLCompiler, **options: Any) -> str:
    if compiler.dialect.name == "sqlite":
        return _in_sqlite("json_extract", element, compiler, options)
    return f"({_in_postgresql(element, compiler, options)} #>> '{{}}')"


def _in_sqlite(function: str, element: Any, compiler: SQLCompiler, options: Any) -> str:
    data, by_number, by_name, *steps = element.clauses
    where = compiler.process(data, **options)
    ways = (by_number, by_name) if any(map(_is_number, steps)) else (by_name,)
    found = [f"{function}({where}, {compiler.process(way, **options)})" for way in ways]
    return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"


def _in_postgresql(element: Any, compiler: SQLCompiler, options: Any) -> str:
    data, _, _, *steps = element.clauses
    found = compiler.process(data, **options)
    for step in steps:
        # Step by step: a path in one text needs escaping, and accepts "-1" for a list.
        name = compiler.process(step, **options)
        ways = (f"{found} -> {name}", f"{found} -> CAST({name} AS TEXT)")
        found = f"coalesce({', '.join(ways)})" if _is_number(step) else f"({ways[0]})"
    return found


def _is_number(step: Any) -> bool:
    return isinstance(step.type, Integer)
