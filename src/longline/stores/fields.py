"""Fields of a record's data inside SQL: what kind of value stands at a path, and the value itself.

A value is read as a number only where it is one, so that no database is asked to make a number of
a text. A field that is missing and one that is null are the same here: empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, case, func, not_, or_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from longline.errors import BadOption

_NUMBERS = ("integer", "real", "number")  # what SQLite says, then what PostgreSQL does
_TEXTS = ("text", "string")
_TRUTHS = ("true", "false", "boolean")
_NESTED = ("array", "object")


class _KindOf(FunctionElement[str]):
    """The kind of the value at a path, in the words of the database; NULL when there is none."""

    type = Text()
    inherit_cache = True
    name = "kind_of"


@compiles(_KindOf)
def _in_sqlite(element: _KindOf, compiler: SQLCompiler, **options: Any) -> str:
    data, path = (compiler.process(one, **options) for one in element.clauses)
    return f"json_type({data}, {path})"


@compiles(_KindOf, "postgresql")
def _in_postgresql(element: _KindOf, compiler: SQLCompiler, **options: Any) -> str:
    data, path = (compiler.process(one, **options) for one in element.clauses)
    return f"jsonb_typeof({data} #> {path})"


@dataclass(frozen=True)
class Field:
    """The value at a path of the data, as SQL."""

    data: Any
    path: tuple[str | int, ...]

    @cached_property
    def kind(self) -> ColumnElement[str]:
        """What kind of value it is."""
        return func.coalesce(_KindOf(self._value.left, self._value.right), "null")

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
        return case((self.is_number, self._value.as_float()), else_=None)

    @cached_property
    def truth(self) -> ColumnElement[bool]:
        """Whether it is true, or NULL."""
        return case((self.is_truth, self._value.as_boolean()), else_=None)

    @cached_property
    def text(self) -> ColumnElement[str]:
        """The text, or NULL."""
        return case((self.is_text, self._value.as_string()), else_=None)

    @cached_property
    def written(self) -> ColumnElement[str]:
        """A text as it is, a list or an object as JSON, a number as digits; or NULL."""
        readable = (*_TEXTS, *_NESTED, *_NUMBERS)
        return case((self.kind.in_(readable), self._value.as_string()), else_=None)

    @cached_property
    def is_filled(self) -> ColumnElement[bool]:
        """Whether there is anything in it: 0 and false are something, blank text is not."""
        blank = and_(self.is_text, func.trim(self.text) == "")
        nothing = and_(self.kind.in_(_NESTED), self._value.as_string().in_(("[]", "{}")))
        return not_(or_(self.kind == "null", blank, nothing))

    @property
    def _value(self) -> Any:
        return self.data[self.path]


def field_at(data: Any, dotted: str) -> Field:
    """Return the field at a dotted path; a step of digits counts the elements of a list from 0.

    Raises:
        BadOption: that is no path.
    """
    return Field(data, path_of(dotted))


def path_of(dotted: str) -> tuple[str | int, ...]:
    """Return a dotted path as its steps.

    Raises:
        BadOption: that is no path.
    """
    steps = dotted.split(".")
    if not all(step.strip() for step in steps) or '"' in dotted:
        raise BadOption("field", f"{dotted!r} is no path of fields, such as price or address.city")
    return tuple(int(step) if step.isascii() and step.isdigit() else step for step in steps)
