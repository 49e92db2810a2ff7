"""JSON as it was written: no digit of a whole number is lost."""

from __future__ import annotations

import json
from typing import Any

import orjson

_LARGEST = 2**64  # of 64 bits, signed or not: what is written as JSON again goes no further
_MOST_DIGITS = 20
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19  # a shorter number always fits


def read_json(text: bytes | str) -> Any:
    """Return what a JSON text says; a whole number that 64 bits cannot hold is its digits, as text.

    Raises:
        orjson.JSONDecodeError: it is not JSON.
    """
    found = orjson.loads(text)
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    # Most answers have no such run of digits, which is told faster than they were parsed.
    if _LONG not in raw.translate(_ZEROS):
        return found
    return _exactly(text)


def whole_number(digits: str) -> int | str:
    """Return the number that digits are; those that 64 bits cannot hold as they are."""
    if len(digits.removeprefix("-")) > _MOST_DIGITS:
        return digits
    number = int(digits)
    return number if -_LARGEST // 2 <= number < _LARGEST else digits


def _exactly(text: bytes | str) -> Any:
    try:
        return json.loads(text, parse_int=whole_number)
    except RecursionError as error:
        raise orjson.JSONDecodeError("it is nested too deeply", "", 0) from error
