"""Column types that check what the database returns: a flipped byte is damage, not a bug.

A value that longline cannot have written raises `DamagedValue` with its table and column. The
database adds its address and what to do, and raises `StoreDamaged`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, Column, Dialect, Double, Text, TypeDecorator

from longline.core.errors import StoreDamaged
from longline.core.json_values import to_json

_FIRST_TIME, _LAST_TIME = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999
_REMEDY = "Nothing was changed. Restore a backup of the database, or correct that value"
_SHOWN = 40  # characters of a damaged value


class DamagedValue(Exception):
    """A value that longline has not written; the message names its table and column."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"{column} {problem}")

    def at(self, address: str) -> StoreDamaged:
        """Return the error for the database at an address."""
        return StoreDamaged(address, str(self), _REMEDY)


class Checked(TypeDecorator[Any]):
    """A column type whose values are checked when they are read."""

    impl: Any = Text
    cache_ok = True
    name = "a column"
    """Table and column, for messages."""

    def damaged(self, value: object, expected: str) -> DamagedValue:
        """Return the error for a value."""
        text = repr(value)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return DamagedValue(self.name, f"holds {shown}, which is not {expected}")


class Choice(Checked):
    """Text that is one of the values of an enumeration."""

    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__()
        self.kind = kind
        self._allowed = frozenset(one.value for one in kind)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        del dialect
        if value is None or value in self._allowed:
            return value
        raise self.damaged(value, f"one of {', '.join(sorted(self._allowed))}")


class Number(Checked):
    """A number; SQLite would keep text in its column, too."""

    impl = Double
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        del dialect
        if value is None or isinstance(value, float | int):
            return value
        raise self.damaged(value, "a number")


class Time(Number):
    """Seconds since the epoch."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if (
            value is None
            or _FIRST_TIME <= super().process_result_value(value, dialect) <= _LAST_TIME
        ):
            return value
        raise self.damaged(value, "a time")


class Json(Checked):
    """JSON as text, so that objects keep the order of their keys; JSONB would sort them."""

    impl = JSON
    cache_ok = True

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        return self.impl_instance.coerce_compared_value(op, value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        load = super().result_processor(dialect, coltype)
        if load is None:
            return None

        def check(value: Any) -> Any:
            try:
                return load(value)
            except ValueError as error:
                raise DamagedValue(self.name, f"should be JSON and is not: {error}") from error

        return check


@contextmanager
def decoding(column: Column[Any]) -> Iterator[None]:
    """Make an object of the JSON in a column; a key or value that does not fit is damage.

    Raises:
        DamagedValue: the object cannot be made.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"does not have the expected content ({type(error).__name__}: {error})"
        raise DamagedValue(str(column), problem) from error


# ---------------- Text as every database can keep it: half a surrogate pair, as broken JSON has


def kept_text(text: str) -> str:
    """Return a text as it is stored."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def kept_value(value: Any) -> Any:
    """Return what is to be JSON with every text as it is stored, and what is no data as text."""
    if isinstance(value, str):
        return kept_text(value)
    if isinstance(value, Mapping):
        return {_kept_name(name): kept_value(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [kept_value(one) for one in value]
    return value if value is None or isinstance(value, int | float) else _kept_data(value)


def _kept_data(value: Any) -> Any:
    try:
        to_json(value)
    except TypeError:
        return kept_text(str(value))
    return value


def _kept_name(name: Any) -> Any:
    return kept_text(name) if isinstance(name, str) else name


# ---------------- Keys as every database can keep them: an index of PostgreSQL takes no more than

_LONGEST = 2000  # bytes; the rest is for what else stands in the same index
_WIDEST = 4  # bytes of one sign
_BEGINNING = 1900  # bytes that stay of a longer one, so that people know it again


def kept_key(key: str) -> str:
    """Return a key as it is stored: one that is too long ends in a hash of the whole.

    The sign of code 0, which PostgreSQL cannot keep, becomes U+FFFD; half a surrogate pair, which
    no database can, its escape.
    """
    readable = kept_text(key.replace("\x00", "\ufffd") if "\x00" in key else key)
    if len(readable) * _WIDEST <= _LONGEST:
        return readable
    written = readable.encode()
    if len(written) <= _LONGEST:
        return readable
    beginning = written[:_BEGINNING].decode(errors="ignore")  # not half a sign
    return f"{beginning}~{hashlib.sha256(written).hexdigest()}"
