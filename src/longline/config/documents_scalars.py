"""What a word in a YAML file means: text, unless it can only be a number, true, false or null."""

from __future__ import annotations

import math
import re

Scalar = str | int | float | bool | None

_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# No zero in front: 007 and 01234 are numbers of agents and postcodes, not quantities.
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})?(\.[0-9]*)?([eE][-+]?[0-9]{1,4})?")


def value_of(text: str) -> Scalar:
    """Return what a word without quotes means.

    Days, times, yes and no, on and off, octal numbers, .nan and .inf stay the text they are:
    where a truth or a number is wanted, the check of the setting makes one of it or says why not.
    """
    if text in _NOTHING:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if any(sign.isdigit() for sign in text) and _DECIMAL.fullmatch(text):
        return _decimal(text)
    return text


def _decimal(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:  # e5
        return text
    return number if math.isfinite(number) else text
