"""Column types that detect damaged values, and values made storable in every database.

A value that longline cannot have written raises `DamagedValue` with its table and column. The
database adds its address and the remedy, and raises `StoreDamaged`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, Column, Dialect, Double, Text, TypeDecorator

from longline.core.errors import StoreDamaged
from longline.core.json import to_json

_FIRST_TIME, _LAST_TIME = -62_135_596_800.0, 253_402_300_799.0  # the years 1 to 9999
_REMEDY = "Nothing was changed. Restore a backup of the database, or correct that value"
_SHOWN = 40  # characters of a damaged value


class DamagedValue(Exception):
    """A stored value that longline did not write; the message names its table and column."""

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
    """A number; SQLite would return text from such a column, too."""

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
    """Build an object from the JSON in a column; a key or value that does not fit is damage.

    Raises:
        DamagedValue: the object cannot be built.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"does not have the expected content ({type(error).__name__}: {error})"
        raise DamagedValue(str(column), problem) from error


# ---------------- Text that every database can store


def sanitize_text(text: str) -> str:
    """Return text with lone surrogates, as broken JSON has them, written as escapes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def sanitize_value(value: Any) -> Any:
    """Return a JSON value with all text sanitized, and other objects as text."""
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, Mapping):
        return {
            (sanitize_text(name) if isinstance(name, str) else name): sanitize_value(one)
            for name, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [sanitize_value(one) for one in value]
    if value is None or isinstance(value, int | float):
        return value
    try:
        to_json(value)
    except TypeError:
        return sanitize_text(str(value))
    return value


# ---------------- Keys that every database can index; PostgreSQL limits the size of an index row

_MAX_KEY_BYTES = 2000  # the rest is for the other columns of the index
_MAX_CHARACTER_BYTES = 4
_PREFIX_BYTES = 1900  # readable start of a longer key


def sanitize_key(key: str) -> str:
    """Return a key as it is stored: a long one is cut and ends in a hash of the whole.

    A NUL character becomes U+FFFD, a lone surrogate its escape.
    """
    readable = sanitize_text(key.replace("\x00", "\ufffd") if "\x00" in key else key)
    if len(readable) * _MAX_CHARACTER_BYTES <= _MAX_KEY_BYTES:
        return readable
    written = readable.encode()
    if len(written) <= _MAX_KEY_BYTES:
        return readable
    prefix = written[:_PREFIX_BYTES].decode(errors="ignore")  # drops a cut character
    return f"{prefix}~{hashlib.sha256(written).hexdigest()}"
