"""What a value is by the look of it; only what can be read on every page is said."""

from __future__ import annotations

import re
from collections.abc import Sequence

from longline.sources.values import read_value

_SHAPES = {"integer": re.compile(r"[1-9]\d{0,8}|0"), "number": re.compile(r"-?\d[\d.,\s]*")}
_TIME = re.compile(r"\d[T ]\d{1,2}:\d{2}")
_CODES = re.compile(
    r"sku|code|ref|isbn|ean|gtin|phone|tel|zip|postal|plz|number|nummer|^no$|^id$", re.IGNORECASE
)
_LONGEST_DATE = 40


def kind_of(name: str, values: Sequence[str], locale: str | None) -> str | None:
    """Return what all of these values can be read as; None keeps them as they are."""
    for kind in ("money", "datetime", "date", "integer", "number"):
        if values and all(_is(kind, value, locale) for value in values):
            # A code of digits is nothing to reckon with.
            is_code = kind in {"integer", "number"} and _CODES.search(name)
            return None if is_code else kind
    return None


def _is(kind: str, value: str, locale: str | None) -> bool:
    if len(value) > _LONGEST_DATE or not any(char.isdigit() for char in value):
        return False
    if kind == "money":
        return _has_currency(value, locale)
    if kind in _SHAPES:
        return bool(_SHAPES[kind].fullmatch(value)) and _reads(kind, value, locale)
    if kind == "datetime" and not _TIME.search(value):
        return False
    # Four digits alone may be a year, a size or a house number.
    return not value.isdecimal() and _reads(kind, value, locale)


def _has_currency(value: str, locale: str | None) -> bool:
    try:
        return read_value("money", value, locale=locale)["currency"] is not None
    except ValueError:
        return False


def _reads(kind: str, value: str, locale: str | None) -> bool:
    try:
        read_value(kind, value, locale=locale)
    except ValueError:
        return False
    return True
