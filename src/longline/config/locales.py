"""How people of a language and a country write numbers and dates."""

from __future__ import annotations

import re
from collections.abc import Mapping

from longline.config.cldr import MARKS, ORDERS

_LOCALE = re.compile(r"(?P<language>[a-z]{2})(?:[-_](?P<region>[A-Z]{2}))?")
_COMMA_LANGUAGES = """
    bg ca cs da de el es et eu fi fr gl hr hu id is it lt lv nb nl nn no pl pt ro ru sk sl sq sr
    sv tr uk vi
"""
_COMMA = frozenset(_COMMA_LANGUAGES.split())
_POINT = frozenset({"en", "he", "hi", "ja", "ko", "ms", "th", "zh"})
# A country may write otherwise than the rest of its language.
_POINT_REGIONS = frozenset({"CH", "LI", "MX", "US", "PR", "GT", "HN", "NI", "PA", "PE", "SV", "DO"})
_MONTH_FIRST = frozenset({"US", "PH"})
# Where a bare `en` is from is unknown, and English is written both ways.
_UNKNOWN_ORDER = frozenset({"en"})
_YEAR_FIRST = frozenset({"ja", "ko", "zh", "hu", "lt"})


def parts_of(locale: str | None) -> tuple[str, str]:
    """Return language and region, "" for what is not said: `de-AT`, `de` or None."""
    found = _LOCALE.fullmatch(locale or "")
    return (found["language"], found["region"] or "") if found else ("", "")


def is_known(locale: str) -> bool:
    """Return whether we know how numbers are written there."""
    return parts_of(locale)[0] in _COMMA | _POINT


def decimal_mark(locale: str | None) -> str | None:
    """Return the sign before the decimals, or None when it is not known.

    Where CLDR has another one than the language is known for, both are in use: it is not known.
    """
    language, region = parts_of(locale)
    if language not in _POINT and language not in _COMMA:
        return None
    mark = "." if language in _POINT or region in _POINT_REGIONS else ","
    return mark if _of_cldr(MARKS, language, region) in {None, mark} else None


def is_day_first(locale: str | None) -> bool | None:
    """Return whether 1/2/2024 is in February; None when it is not known."""
    language, region = parts_of(locale)
    if not language or language in _YEAR_FIRST:
        return None
    if language in _UNKNOWN_ORDER and not region:
        return None
    order = _of_cldr(ORDERS, language, region)
    if not region and order != "mdy":
        order = None
    if region in _MONTH_FIRST:
        return False if order in {None, "mdy"} or language == "en" else None
    return True if order in {None, "dmy"} else None


def _of_cldr(table: Mapping[str, str], language: str, region: str) -> str | None:
    return table.get(f"{language}-{region}") or table.get(language)
