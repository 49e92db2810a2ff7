"""Convert values to JSON, and name the field of a value that has no JSON form."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any
from uuid import UUID

import orjson
import pydantic_core
from pydantic import AnyUrl, BaseModel
from yarl import URL

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
        raise TypeError(_problem(value, default) or str(error)) from error


def kind_of_value(value: Any) -> str:
    """Return the name of a value's type."""
    return value.kind if isinstance(value, NoData) else type(value).__name__


def _rank(value: Any) -> tuple[bool, Any, bytes]:
    is_number = isinstance(value, int | float)
    return not is_number, value if is_number else 0, to_json(value)


def _problem(value: Any, default: Callable[[Any], Any]) -> str | None:
    try:
        return _unfit(value, "", default)
    except RecursionError:  # it holds itself, say
        return None


def _unfit(value: Any, place: str, default: Callable[[Any], Any]) -> str | None:
    """Say what is wrong with the first part that cannot be written; None: each of them can."""
    if not isinstance(value, Mapping | list | tuple):
        return _unfit_leaf(value, place, default)
    parts = value if isinstance(value, Mapping) else dict(enumerate(value))
    strange = (_unfit_name(name, place) for name in parts)
    inner = (_unfit(v, f"{place}.{n}" if place else str(n), default) for n, v in parts.items())
    return next(filter(None, (*strange, *inner)), None)


def _unfit_name(name: Any, place: str) -> str | None:
    try:
        orjson.dumps({name: None}, option=_OPTIONS)
    except TypeError as error:
        problem = str(error) if isinstance(name, str) else f"it is of type {kind_of_value(name)}"
        return f"{_named(place)} has a name that is not text: {problem}"
    return None


def _unfit_leaf(value: Any, place: str, default: Callable[[Any], Any]) -> str | None:
    try:
        orjson.dumps(value, default=default, option=_OPTIONS)
    except TypeError as error:
        if isinstance(value, str | int | time):
            return f"{_named(place)}: {error}"
        kind = kind_of_value(value)
        return f"{_named(place)} is of type {kind}, which is not data; return {_DATA}"
    return None


def _named(place: str) -> str:
    return f"field {place}" if place else "it"
