"""Values as pages and APIs write them, read as what they are; what cannot be read is an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from longline.core.json import read_json
from longline.http.messages import without_userinfo
from longline.sources.parsing.dates import read_date, read_datetime
from longline.sources.parsing.measures import read_area, read_duration, read_floor, read_floors
from longline.sources.parsing.money import read_money
from longline.sources.parsing.numbers import EXACT_IN_FLOATS, read_integer, read_number

_WORDS_FOR_YES = "true yes y on 1 ja oui sí si sim tak igen ✓ ✔"
_WORDS_FOR_NO = "false no n off 0 nein non não nao nie nee nem ✗ ✘"
_YES, _NO = frozenset(_WORDS_FOR_YES.split()), frozenset(_WORDS_FOR_NO.split())
_SCHEMES = frozenset({"http", "https", ""})

Reader = Callable[[Any, str | None, str | None], Any]
_LARGEST = 2**64  # what JSON is written with goes no further


def read_value(kind: str, value: Any, *, locale: str | None = None, form: str | None = None) -> Any:
    """Return a value of this kind.

    Dates are ISO 8601, durations seconds, areas square metres, money is an amount and a currency,
    the ground floor is 0.

    Args:
        kind: one of KINDS.
        value: as it was found: text, or what JSON holds.
        locale: how numbers and dates are written there, such as de or en-US.
        form: what the text leaves unsaid: the format of a date, the currency of an amount, the
            unit of a duration or an area.

    Raises:
        ValueError: it cannot be read, or only by a guess; says why.
    """
    return _READERS[kind](value, locale, form)


def value_parser(kind: str) -> Reader:
    """Return the parser of a kind of value: (value, locale, form)."""
    return _READERS[kind]


def _parse_text(value: Any, _locale: str | None, _form: str | None) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise ValueError("it is not text")


def _parse_number(value: Any, locale: str | None, _form: str | None) -> float:
    if not _is_numeric(value):
        return read_number(_require_text(value), locale)
    # An int is a float to those who only read it, and the long ones keep their last digits.
    return (
        value if isinstance(value, int) and abs(value) > EXACT_IN_FLOATS else _finite_float(value)
    )


def _parse_integer(value: Any, locale: str | None, _form: str | None) -> int:
    if not _is_numeric(value):
        return read_integer(_require_text(value), locale)
    if isinstance(value, float) and not _finite_float(value).is_integer():
        raise ValueError("it is not a whole number")
    return int(value)


def _parse_boolean(value: Any, _locale: str | None, _form: str | None) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise ValueError("it is neither yes nor no")


def _parse_money(value: Any, locale: str | None, form: str | None) -> Any:
    own = value if _is_numeric(value) or isinstance(value, Mapping) else _require_text(value)
    return read_money(own, locale, form)


def _parse_url_value(value: Any, _locale: str | None, _form: str | None) -> str:
    text = _require_text(value).strip()
    try:
        scheme = urlsplit(text).scheme.lower()
    except ValueError:
        raise ValueError("it is no address") from None
    if not text or scheme not in _SCHEMES or any(char.isspace() for char in text):
        raise ValueError("it is no address of a page")
    return without_userinfo(text)


def _parse_json(value: Any, _locale: str | None, _form: str | None) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from None


def _with_measure(read: Callable[[str | float, str | None, str | None], Any]) -> Reader:
    def measured(value: Any, locale: str | None, form: str | None) -> Any:
        return read(value if _is_numeric(value) else _require_text(value), locale, form)

    return measured


def _is_numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite_float(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("it is not a finite number")
    return float(value)


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it is not text")  # noqa: TRY004  # one kind of error for what is not read
    return value


def _within_64_bits(read: Reader) -> Reader:
    def reader(value: Any, locale: str | None, form: str | None) -> Any:
        number = read(value, locale, form)
        if isinstance(number, int) and not -_LARGEST // 2 <= number < _LARGEST:
            raise ValueError("it has more digits than a number can keep; write type: text")
        return number

    return reader


_READERS: Mapping[str, Reader] = {
    "text": _parse_text,
    "number": _within_64_bits(_parse_number),
    "integer": _within_64_bits(_parse_integer),
    "money": _parse_money,
    "date": _with_measure(read_date),
    "datetime": _with_measure(read_datetime),
    "boolean": _parse_boolean,
    "duration": _with_measure(read_duration),
    "area": _with_measure(read_area),
    "floor": _with_measure(read_floor),
    "floors": _with_measure(read_floors),
    "url": _parse_url_value,
    "json": _parse_json,
}
KINDS = tuple(_READERS)
"""What a value can be read as."""

# fmt: off
ValueKind = Literal[
    "text", "number", "integer", "money", "date", "datetime",
    "boolean", "duration", "area", "floor", "floors", "url", "json",
]
