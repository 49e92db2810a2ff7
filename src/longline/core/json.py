"""JSON: read and write it without losing digits, convert values to it, compare two objects."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from math import isfinite
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any
from uuid import UUID

import orjson
import pydantic_core
from pydantic import AnyUrl, BaseModel
from yarl import URL

_LARGEST = 2**64  # orjson writes integers of 64 bits, signed or unsigned
_MAX_DIGITS = 20
_ENVELOPE = 2  # levels that storage adds around a value
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19  # a shorter integer always fits
_SURROGATE = rb"\ud"
_CONSTANTS = (b"NaN", b"Infinity")
_INFINITE = "number is infinity"  # the message of orjson
_SURROGATES = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_SMALL = 2_000_000  # bytes; their values always take less memory than the limit
_MAX_MEMORY = 200_000_000
_MEMORY_OF = {b"{": 200, b"[": 80, b",": 50}
"""Approximate bytes of an object, a list and one more value."""


def typed_value(text: str) -> Any:
    """Return a value that a person has typed: true, false and numbers keep their type."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, (bool, int, float)) else text


def read_json(text: bytes | str) -> Any:
    """Parse a JSON text; an integer of more than 64 bits becomes a string of its digits.

    A lone surrogate becomes U+FFFD, since nothing can store it. NaN, Infinity and numbers that are
    too large for a float become strings, too.

    Raises:
        orjson.JSONDecodeError: it is not JSON.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        is_lenient = any(word in raw for word in _CONSTANTS) or _INFINITE in str(error)
        if not is_lenient and _SURROGATE not in raw.lower():
            raise
        try:
            found = _parse_exactly(text)
            written = json.dumps(found, ensure_ascii=False)
            if _SURROGATES.search(written):
                found = orjson.loads(_SURROGATES.sub(_REPLACEMENT, written))
        except (ValueError, RecursionError):  # it has other errors, too
            raise error from None
        return found
    # Most texts have no such run of digits, and searching is faster than parsing.
    if _LONG not in raw.translate(_ZEROS):
        return found
    return _parse_exactly(text)


def takes_too_much_memory(text: bytes) -> bool:
    """Return whether the values of a JSON text would take over 200 MB of memory (estimated)."""
    if len(text) <= _SMALL:
        return False
    return sum(text.count(character) * size for character, size in _MEMORY_OF.items()) > _MAX_MEMORY


def is_too_deep(value: Any) -> bool:
    """Return whether a value is nested too deeply to be stored as JSON."""
    for _ in range(_ENVELOPE):
        value = [value]
    try:
        orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        return "Recursion" in str(error)
    return False


def whole_number(digits: str) -> int | str:
    """Return digits as an integer; unchanged when it has more than 64 bits."""
    if len(digits.removeprefix("-")) > _MAX_DIGITS:
        return digits
    number = int(digits)
    return number if -_LARGEST // 2 <= number < _LARGEST else digits


def decimal(digits: str) -> float | str:
    """Return digits as a float; unchanged when it is too large."""
    number = float(digits)
    return number if isfinite(number) else digits


def _parse_exactly(text: bytes | str) -> Any:
    try:
        return json.loads(text, parse_int=whole_number, parse_float=decimal, parse_constant=str)
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deeply", "", 0) from error


def as_bytes(value: Any, *, option: int = 0) -> bytes:
    """Return a value as JSON in UTF-8."""
    try:
        return orjson.dumps(value, default=str, option=option)
    except TypeError:  # integers of more than 64 bits, or strings that are not UTF-8
        text = json.dumps(_without_nan(value), default=str, allow_nan=False)
        return text.encode() + (b"\n" if option & orjson.OPT_APPEND_NEWLINE else b"")


def as_text(value: Any) -> str:
    """Return a value as a JSON text."""
    return as_bytes(value).decode()


def _without_nan(value: Any) -> Any:
    """Return a value with None for NaN and infinity, as orjson writes them."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(name): _without_nan(one) for name, one in value.items()}
    return [_without_nan(one) for one in value] if isinstance(value, list | tuple) else value


# ---------------- Convert values to JSON, and name the field of a value that has no JSON form

_AS_TEXT = (
    *(date, time, timedelta, Decimal, Fraction, UUID, PurePath),
    *(URL, AnyUrl, pydantic_core.Url, IPv4Address, IPv6Address, IPv4Network, IPv6Network),
)
_OPTIONS = orjson.OPT_NON_STR_KEYS
_DATA = "text, numbers, lists, mappings or dates"


class NoData:
    """A value that was not data; only its type and its repr are stored."""

    def __init__(self, kind: str, shown: str) -> None:
        self.kind = kind
        self.shown = shown


def plain(value: Any) -> Any:
    """Return the JSON form of a value that orjson does not know.

    A set becomes a sorted list: numbers by size, the rest by text.

    Raises:
        TypeError: it has none, such as bytes or an object.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return sorted(value, key=_rank)
    if isinstance(value, tuple | deque):  # a tuple with names
        return list(value)
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, Real):  # of a class of its own, as those of numpy are
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(kind_of_value(value))


def to_json(value: Any, *, default: Callable[[Any], Any] = plain, option: int = 0) -> bytes:
    """Return a value as JSON; `default` makes what orjson knows of what it does not know.

    Raises:
        TypeError: a part of it is not data, or cannot be encoded; the message names the field.
    """
    try:
        return orjson.dumps(value, default=default, option=_OPTIONS | option)
    except TypeError as error:
        try:
            problem = _problem_of(value, "", default)
        except RecursionError:  # it contains itself, for example
            problem = None
        raise TypeError(problem or str(error)) from error


def kind_of_value(value: Any) -> str:
    """Return the name of a value's type."""
    return value.kind if isinstance(value, NoData) else type(value).__name__


def _rank(value: Any) -> tuple[bool, Any, bytes]:
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0, to_json(value)


def _problem_of(value: Any, place: str, default: Callable[[Any], Any]) -> str | None:
    """Return what is wrong with the first part that cannot be written; None when all can."""
    where = f"field {place}" if place else "it"
    if not isinstance(value, Mapping | list | tuple):
        try:
            orjson.dumps(value, default=default, option=_OPTIONS)
        except TypeError as error:
            if isinstance(value, str | int | time):
                return f"{where}: {error}"
            kind = kind_of_value(value)
            return f"{where} is of type {kind}, which cannot be stored; return {_DATA}"
        return None
    for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        try:
            orjson.dumps({name: None}, option=_OPTIONS)
        except TypeError as error:
            is_text = isinstance(name, str)
            problem = str(error) if is_text else f"it is of type {kind_of_value(name)}"
            return f"{where} has a name that is not text: {problem}"
        if found := _problem_of(inner, f"{place}.{name}" if place else str(name), default):
            return found
    return None


# ---------------- Compare two JSON objects field by field

Path = tuple[str | int, ...]
_MAX_DEPTH = 12  # deeper values are compared as a whole


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One field that differs; `values` lacks `old` for an added field, `new` for a removed one."""

    path: Path
    values: Mapping[str, Any]

    @property
    def field(self) -> str:
        """The path with dots between its steps."""
        return ".".join(map(str, self.path))

    @property
    def change(self) -> str:
        """`added`, `removed` or `changed`."""
        if "old" not in self.values:
            return "added"
        return "changed" if "new" in self.values else "removed"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"field": self.field, **self.values}


def diff_json(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    max_depth: int = _MAX_DEPTH,
    ignored: Collection[str] = (),
    by_leaf: bool = False,
) -> tuple[FieldDiff, ...]:
    """Return the fields that differ, in the order of `old`, then of `new`.

    Args:
        old: the object before.
        new: the object after.
        max_depth: deeper values are compared as a whole; 1 compares top-level fields only.
        ignored: top-level fields that are not compared.
        by_leaf: report added and removed objects value by value, and compare lists of different
            lengths element by element. Otherwise both are reported as a whole.
    """
    return tuple(
        diff
        for diff in _diff((), old, new, max_depth, by_leaf=by_leaf)
        if diff.path[0] not in ignored
    )


def is_same_json(old: Any, new: Any) -> bool:
    """Return whether two values are equal; unlike `==`, 1, 1.0 and true all differ."""
    try:
        return _dump(old) == _dump(new)
    except TypeError:  # an integer of more than 64 bits
        return type(old) is type(new) and bool(old == new)


def json_value_at(data: Any, path: Path) -> Any:
    """Return the value at a path; None when there is none."""
    for step in path:
        if isinstance(data, list) and isinstance(step, int):
            data = data[step] if step < len(data) else None
        elif isinstance(data, Mapping):
            data = data.get(str(step))
        else:
            return None
    return data


def _diff(
    path: Path, old: Mapping[Any, Any], new: Mapping[Any, Any], depth: int, *, by_leaf: bool
) -> Iterator[FieldDiff]:
    for name in dict.fromkeys([*old, *new]):
        values = {side: data[name] for side, data in (("old", old), ("new", new)) if name in data}
        if len(values) == 2 and is_same_json(*values.values()):  # noqa: PLR2004  # both sides
            continue
        inner = _sides_to_compare(values, by_leaf=by_leaf) if depth > 1 else None
        if inner is None:
            yield FieldDiff((*path, name), values)
        else:
            yield from _diff((*path, name), *inner, depth - 1, by_leaf=by_leaf)


def _sides_to_compare(
    values: Mapping[str, Any], *, by_leaf: bool
) -> tuple[Mapping[Any, Any], Mapping[Any, Any]] | None:
    """Return both sides as mappings to compare further; None to compare them as a whole."""
    present = list(values.values())
    if not any(present) or (len(present) == 1 and not by_leaf):
        return None
    if all(isinstance(one, list) for one in present):
        if len({len(one) for one in present}) > 1 and not by_leaf:
            return None
        return dict(enumerate(values.get("old", ()))), dict(enumerate(values.get("new", ())))
    if all(isinstance(one, Mapping) for one in present):
        return values.get("old", {}), values.get("new", {})
    return None


def _dump(value: Any) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS)
