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
from functools import cached_property
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

# ---------------- Fields of a record's JSON data in SQL: the type and the value at a path

Path = tuple[str | int, ...]
"""The steps to a value: names, or numbers, which are list indexes or names of digits."""

_NUMBERS = ("integer", "real", "number")  # types of SQLite, then of PostgreSQL
_TEXTS = ("text", "string")
_TRUTHS = ("true", "false", "boolean")
_NESTED = ("array", "object")
_MAX_DIGITS = 9  # of a list index in PostgreSQL


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


class ByCode(FunctionElement[str]):
    """A text that is compared and sorted by code point, whatever the collation."""

    type = Text()
    inherit_cache = True
    name = "by_code"


@compiles(ByCode)
def _by_code_in_sqlite(element: ByCode, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(next(iter(element.clauses)), **options)


@compiles(ByCode, "postgresql")
def _by_code_in_postgresql(element: ByCode, compiler: SQLCompiler, **options: Any) -> str:
    return f'({compiler.process(next(iter(element.clauses)), **options)}) COLLATE "C"'


@compiles(_KindAt)
def _kind_in_sqlite(element: _KindAt, compiler: SQLCompiler, **options: Any) -> str:
    return _in_sqlite("json_type", element, compiler, options)


@compiles(_ValueAt)
def _value_in_sqlite(element: _ValueAt, compiler: SQLCompiler, **options: Any) -> str:
    return _in_sqlite("json_extract", element, compiler, options)


@compiles(_KindAt, "postgresql")
def _kind_in_postgresql(element: _KindAt, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_typeof({_in_postgresql(element, compiler, options)})"


@compiles(_ValueAt, "postgresql")
def _value_in_postgresql(element: _ValueAt, compiler: SQLCompiler, **options: Any) -> str:
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


@dataclass(frozen=True)
class Field:
    """The value at a path of the data, as SQL."""

    data: Any
    path: Path

    @cached_property
    def kind(self) -> ColumnElement[str]:
        """The JSON type."""
        return func.coalesce(_KindAt(self.data, *self._path_arguments), "null")

    @cached_property
    def is_number(self) -> ColumnElement[bool]:
        """Whether it is a number."""
        return self.kind.in_(_NUMBERS)

    @cached_property
    def is_text(self) -> ColumnElement[bool]:
        """Whether it is text."""
        return self.kind.in_(_TEXTS)

    @cached_property
    def is_truth(self) -> ColumnElement[bool]:
        """Whether it is true or false."""
        return self.kind.in_(_TRUTHS)

    @cached_property
    def number(self) -> ColumnElement[float]:
        """The number, or NULL."""
        return case((self.is_number, cast(self._value, Double())), else_=None)

    @cached_property
    def truth(self) -> ColumnElement[bool]:
        """Whether it is true, or NULL."""
        return case((self.is_truth, cast(self._value, Text()).in_(("true", "1"))), else_=None)

    @cached_property
    def text(self) -> ColumnElement[str]:
        """The text, or NULL."""
        return case((self.is_text, self._value), else_=None)

    @cached_property
    def written(self) -> ColumnElement[str]:
        """Text as it is, lists and objects as JSON, numbers as digits; or NULL."""
        readable = (*_TEXTS, *_NESTED, *_NUMBERS)
        return case((self.kind.in_(readable), cast(self._value, Text())), else_=None)

    @cached_property
    def is_filled(self) -> ColumnElement[bool]:
        """Whether it has a value; 0 and false are values, blank text is not."""
        blank = and_(self.is_text, func.trim(self.text) == "")
        nothing = and_(self.kind.in_(_NESTED), self._value.in_(("[]", "{}")))
        return not_(or_(self.kind == "null", blank, nothing))

    @cached_property
    def _value(self) -> ColumnElement[str]:
        return _ValueAt(self.data, *self._path_arguments)

    @cached_property
    def _path_arguments(self) -> list[ColumnElement[Any]]:
        by_name = ["." + orjson.dumps(str(step)).decode() for step in self.path]
        by_number = [
            f"[{step}]" if isinstance(step, int) else name
            for step, name in zip(self.path, by_name, strict=True)
        ]
        steps: list[ColumnElement[Any]] = [
            literal(step, Integer() if isinstance(step, int) else Text()) for step in self.path
        ]
        return [*(literal("$" + "".join(way), Text()) for way in (by_number, by_name)), *steps]


def field_at(data: Any, dotted: str) -> Field:
    """Return the field at a dotted path; digits are list indexes from 0.

    Raises:
        BadOption: it is not a path.
    """
    return Field(data, path_of(dotted))


def path_of(dotted: str) -> Path:
    """Return the steps of a dotted path.

    Raises:
        BadOption: it is not a path.
    """
    steps = dotted.split(".")
    if not all(step.strip() for step in steps) or '"' in dotted:
        raise BadOption("field", f"{dotted!r} is not a path, such as price or address.city")
    return tuple(int(step) if _is_index(step) else step for step in steps)


def _is_index(step: str) -> bool:
    is_plain = step == "0" or not step.startswith("0")  # 007 is a name
    return step.isascii() and step.isdigit() and is_plain and len(step) <= _MAX_DIGITS


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
    field = field_at(columns.data, condition.field)
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
        place = ByCode(column) if is_sorted else column  # for equality there is an index
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
        value = ByCode(column) if isinstance(column.type, Text) else column
        return [case((column.is_(None), 1), else_=0), _directed(value, order)]
    field = field_at(columns.data, order.field)
    rank = case((field.is_number, 0), (field.is_text, 1), (field.is_truth, 2), else_=3)
    values = (field.number, ByCode(func.lower(field.text)), field.truth)
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
