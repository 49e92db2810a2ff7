"""JSON as it was written: no digit of a whole number is lost, and no list for half a character."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

import orjson

_LARGEST = 2**64  # of 64 bits, signed or not: what is written as JSON again goes no further
_MOST_DIGITS = 20
_ROOM = 2  # levels that are put around a value until it is stored
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19  # a shorter number always fits
_HALF = rb"\ud"
_CONSTANTS = (b"NaN", b"Infinity")
_INFINITE = "number is infinity"  # in the words of orjson
_HALVES = re.compile("[\ud800-\udfff]")
_UNKNOWN = "\ufffd"  # what Unicode has for a character that cannot be told
_SMALL = 2_000_000  # bytes; whatever they hold takes less memory than may be taken
_MOST_MEMORY = 200_000_000
_MEMORY_OF = {b"{": 200, b"[": 80, b",": 50}
"""Bytes that an object, a list and one more value take, about."""


def read_json(text: bytes | str) -> Any:
    """Return what a JSON text says; a whole number that 64 bits cannot hold is its digits, as text.

    Half a character (the escape of one half of a surrogate pair) is U+FFFD: nothing can store it,
    and all the rest of the text is sound. NaN, Infinity and numbers that are too large for a
    decimal are texts, too.

    Raises:
        orjson.JSONDecodeError: it is not JSON.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if _HALF in raw.lower():
            return _without_halves(text, error)
        if _INFINITE in str(error) or any(word in raw for word in _CONSTANTS):
            return _leniently(text, error)
        raise
    # Most answers have no such run of digits, which is told faster than they were parsed.
    if _LONG not in raw.translate(_ZEROS):
        return found
    return _exactly(text)


def takes_too_much_memory(text: bytes) -> bool:
    """Whether the values in a JSON text would take over 200 MB of memory, by an estimate."""
    if len(text) <= _SMALL:
        return False
    return sum(text.count(sign) * size for sign, size in _MEMORY_OF.items()) > _MOST_MEMORY


def is_too_deep(value: Any) -> bool:
    """Whether values are nested too deeply to be written as JSON, with some room around them."""
    for _ in range(_ROOM):
        value = [value]
    try:
        orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        return "Recursion" in str(error)
    return False


def whole_number(digits: str) -> int | str:
    """Return the number that digits are; those that 64 bits cannot hold as they are."""
    if len(digits.removeprefix("-")) > _MOST_DIGITS:
        return digits
    number = int(digits)
    return number if -_LARGEST // 2 <= number < _LARGEST else digits


def decimal(digits: str) -> float | str:
    """Return the number that digits are; those that are too large for it as they are."""
    number = float(digits)
    return number if isfinite(number) else digits


def _leniently(text: bytes | str, error: orjson.JSONDecodeError) -> Any:
    try:
        return _exactly(text)
    except ValueError:  # that was not all
        raise error from None


def _without_halves(text: bytes | str, error: orjson.JSONDecodeError) -> Any:
    try:
        written = json.dumps(_exactly(text), ensure_ascii=False)
        return orjson.loads(_HALVES.sub(_UNKNOWN, written))
    except (ValueError, RecursionError):  # that was not all
        raise error from None


def _exactly(text: bytes | str) -> Any:
    try:
        return json.loads(text, parse_int=whole_number, parse_float=decimal, parse_constant=str)
    except RecursionError as error:
        raise orjson.JSONDecodeError("it is nested too deeply", "", 0) from error


# ---------------- Values as JSON, with all their digits


def as_bytes(value: Any, *, option: int = 0) -> bytes:
    """Return a value as JSON in UTF-8."""
    try:
        return orjson.dumps(value, default=str, option=option)
    except TypeError:  # numbers of more than 64 bits, or texts that are no UTF-8
        text = json.dumps(_plain(value), default=str, allow_nan=False)
        return text.encode() + (b"\n" if option & orjson.OPT_APPEND_NEWLINE else b"")


def as_text(value: Any) -> str:
    """Return a value as a JSON text."""
    return as_bytes(value).decode()


def _plain(value: Any) -> Any:
    """Return a value without what only orjson would mend: numbers that are none."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
