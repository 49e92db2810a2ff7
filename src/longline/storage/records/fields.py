"""Fields of a record's JSON data in SQL: the type and the value at a path.

A value is cast to a number only where it is one, so that no cast fails. Missing and null fields are
both empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson
from sqlalchemy import (
    ColumnElement,
    Double,
    Integer,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    or_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from longline.core.errors import BadOption

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
