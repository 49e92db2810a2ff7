"""Read and write JSON without losing digits, and tolerate lone surrogates and NaN."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

import orjson

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
        if _SURROGATE in raw.lower():
            return _without_surrogates(text, error)
        if _INFINITE in str(error) or any(word in raw for word in _CONSTANTS):
            return _leniently(text, error)
        raise
    # Most texts have no such run of digits, and searching is faster than parsing.
    if _LONG not in raw.translate(_ZEROS):
        return found
    return _exactly(text)


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


def _leniently(text: bytes | str, error: orjson.JSONDecodeError) -> Any:
    try:
        return _exactly(text)
    except ValueError:  # it has other errors, too
        raise error from None


def _without_surrogates(text: bytes | str, error: orjson.JSONDecodeError) -> Any:
    try:
        written = json.dumps(_exactly(text), ensure_ascii=False)
        return orjson.loads(_SURROGATES.sub(_REPLACEMENT, written))
    except (ValueError, RecursionError):  # it has other errors, too
        raise error from None


def _exactly(text: bytes | str) -> Any:
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
