"""Numbers as people write them, and the locales that say how.

A value that cannot be read in exactly one way raises ValueError with the reason.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import AfterValidator

from longline.config.validation import invalid

_DATA = orjson.loads(Path(__file__).with_name("cldr.json").read_bytes())

MONTHS: Mapping[str, int] = _DATA["months"]
"""Month number by name; names that two languages use for different months are left out."""
HALF_DAYS: Mapping[str, str] = _DATA["half_days"]
"""Part of the day (am, pm, noon, unclear) by phrase."""
RARE_HALF_DAYS: frozenset[str] = frozenset(_DATA["rare_half_days"])
"""Phrases for parts of the day in all other languages."""
SYMBOLS: Mapping[str, tuple[str, ...]] = {k: tuple(v) for k, v in _DATA["symbols"].items()}
"""Currency codes by symbol, over all locales."""
MARKS: Mapping[str, str] = _DATA["marks"]
"""Decimal mark of a language; of a locale where it differs."""
ORDERS: Mapping[str, str] = _DATA["orders"]
"""Order of day, month and year of a language; of a locale where it differs."""
REGIONS: Mapping[str, str] = _DATA["regions"]
"""Currency of a region that has one."""
CODES: frozenset[str] = frozenset(_DATA["codes"])
"""Currency codes, including historical ones."""


_LOCALE = re.compile(r"(?P<language>[a-z]{2})(?:[-_](?P<region>[A-Z]{2}))?")
_LANGUAGES = """
    bg ca cs da de el en es et eu fi fr gl he hi hr hu id is it ja ko lt lv ms nb nl nn no pl pt ro
    ru sk sl sq sr sv th tr uk vi zh
"""
_KNOWN = frozenset(_LANGUAGES.split())
_POINT_REGIONS = frozenset({"CH", "LI", "MX", "US"})  # where CLDR does not say so for all languages
_MONTH_FIRST = frozenset({"US", "PH"})
_YEAR_FIRST = frozenset({"ja", "ko", "zh", "hu", "lt"})


def parts_of(locale: str | None) -> tuple[str, str]:
    """Return language and region, "" for what is not said: `de-AT`, `de` or None."""
    found = _LOCALE.fullmatch(locale or "")
    return (found["language"], found["region"] or "") if found else ("", "")


def is_known(locale: str) -> bool:
    """Return whether we know how numbers are written there."""
    return parts_of(locale)[0] in _KNOWN


def decimal_mark(locale: str | None) -> str | None:
    """Return the decimal mark; None when it is unknown, or both are used."""
    language, region = parts_of(locale)
    if language not in _KNOWN:
        return None
    mark = _of_cldr(MARKS, language, region)
    # English texts of a country with decimal commas have both.
    is_mixed = language == "en" and mark == ","
    return None if is_mixed or (region in _POINT_REGIONS and mark == ",") else mark


def is_day_first(locale: str | None) -> bool | None:
    """Return whether 1/2/2024 is in February; None when it is not known."""
    language, region = parts_of(locale)
    if not language or language in _YEAR_FIRST:
        return None
    order = _of_cldr(ORDERS, language, region)
    if language == "en" and order == "mdy":  # without a country, it is written both ways
        return False if region in _MONTH_FIRST else None
    if region in _MONTH_FIRST or (region and order not in {None, "dmy"}):
        return None
    return True


def _of_cldr(table: Mapping[str, str], language: str, region: str) -> str | None:
    return table.get(f"{language}-{region}") or table.get(language)


def _check_locale(text: str) -> str:
    if not is_known(text):
        raise invalid(f"{text!r} is not a locale known here; write a language such as de, or en-US")
    return text


Locale = Annotated[str, AfterValidator(_check_locale)]
"""How numbers and dates are written: a language such as de, or with its country: en-US."""

_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u202f\u2009\u2007\u2002\u2003\t\r\n", " "),
        **dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d", "-"),
        **dict.fromkeys("\u200e\u200f\u061c\u202a\u202b\u202c\u2066\u2067\u2068\u2069", None),
        "\uff0b": "+",
        "\uff0c": ",",
        "\uff0e": ".",
        **dict.fromkeys("\u2019\u02bc\u00b4", "'"),
        "\u066b": ".",  # Arabic has its own marks and digits
        "\u066c": ",",
    }
)
_TOKEN = re.compile(
    r"(?P<sign>(?<![\w)\]])[-+] ?)?"
    r"(?<![^\W_])"  # the 2 of H2O is not a number, nor is a part of the digits in RM50
    r"(?P<body>\d{1,3}(?:[ ']\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*|(?<!\d)\.\d+)"
    r"(?P<power>[eE][-+]?\d{1,3}(?![\w.,]))?"
)
_BEHIND_LETTER = re.compile(r"\d(?<=[^\W\d_]\d)")
_GLUED_NUMBER = re.compile(r"[^\W\d_]+\d[\d.,]*")
_IDENTIFIER = re.compile(r"[^\W\d_]{1,2}\d")
_SIZES = {
    **dict.fromkeys(("k", "tsd", "thousand", "mille", "mil", "tys", "тыс", "хил", "тис", "千"), 3),
    **dict.fromkeys(("万", "萬", "만"), 4),
    **dict.fromkeys(("lakh", "lakhs"), 5),
    **dict.fromkeys(("mio", "mln", "million", "millions", "millionen", "millones", "млн"), 6),
    **dict.fromkeys(("crore", "crores"), 7),
    **dict.fromkeys(("億", "亿", "억"), 8),
    **dict.fromkeys(("mrd", "bn", "milliarde", "milliarden", "miliardi", "млрд"), 9),
}
_SIZE = re.compile(r"\s?([^\W\d_]+)")
# Words that may follow the digits directly; 12abc and 0x1F are not numbers.
_WORDS_FOR_UNITS = """
    mg g kg t lb lbs oz mm cm dm m km in ft yd mi mm2 cm2 m2 km2 ft2 mm3 cm3 m3 ft3 mm² cm² m² km²
    ft² cm³ m³ qm sqm sqft ha ml cl dl l gal w kw mw wh kwh v mv kv a ma ah mah hz khz mhz ghz b kb
    mb gb tb mbps gbps px pt em dpi mp fps lm db rpm hp ps bar ms s sec min h hr hrs d w y yr yrs x
    st nd rd th er pc pcs stk c f k eur usd gbp chf sek nok dkk pln czk jpy cny cad aud inr kr lei
"""
_UNITS = frozenset(_WORDS_FOR_UNITS.split())
_GLUED = re.compile(r"[^\W_]+")
_BRACKETS = re.compile(r"[^\w()]*(?:[A-Z]{3}[^\w()]*)?\(([^()]*)\)[^\w()]*(?:[A-Z]{3}[^\w()]*)?")
_WORD = re.compile(r"(?<![^\W\d_])(?![A-Z]{3}(?!\w))[^\W\d_]+")
_MINUS_BEFORE = re.compile(r"-\s*[A-Z]{0,3}\W*")  # -€5: it is before the currency
_MINUS_BEHIND = re.compile(r"\s*(?:(?:[^\w\s.,]|[A-Z]{3})\s*)?-\W*(?:(?<=\s)[A-Z]{3}\W*)?")
# M is a million here and a metre there; a billion has nine zeros here and twelve there.
_UNCLEAR_SIZES = frozenset({"M", "B", "billion", "billions", "billionen"})


EXACT_IN_FLOATS = 2**53
"""Beyond it a float has no room for every whole number."""


@dataclass(frozen=True, slots=True)
class Token:
    """A number in a text: as it is written, and its place."""

    sign: str
    body: str
    power: str
    start: int
    end: int


def plain(text: str) -> str:
    """Return the text with plain spaces, minus signs, apostrophes and digits."""
    text = text.translate(_SIGNS)
    if not text.isascii():
        decimals = ((char, unicodedata.decimal(char, None)) for char in text)
        text = "".join(char if value is None else str(value) for char, value in decimals)
    return text.strip()


def only_number(text: str) -> Token:
    """Return the only number in a plain text."""
    found = [
        Token((m["sign"] or "").strip(), m["body"], m["power"] or "", m.start(), m.end())
        for m in _TOKEN.finditer(text)
    ]
    # m2, H2O and A4 are identifiers rather than numbers.
    glued = [
        m[0]
        for m in (_GLUED_NUMBER.finditer(text) if _BEHIND_LETTER.search(text) else ())
        if not _IDENTIFIER.fullmatch(m[0])
        and not any(token.start <= m.start() < token.end for token in found)
    ]
    if not found:
        raise ValueError(
            f"the digits of {glued[0]!r} are next to letters"
            if glued
            else "there is no number in it"
        )
    if len(found) + len(glued) > 1:
        raise ValueError(f"there are {len(found) + len(glued)} numbers in it")
    _check_neighbours(text, found[0])
    return found[0]


def only_signed(text: str) -> Token:
    """Return the only number in a plain text, with the sign before its currency."""
    token = only_number(text)
    glued = _GLUED.match(text, token.end)
    word = glued[0].lower() if glued else ""
    # Languages without spaces write 12個; `zeros_after` handles M.
    is_word = word.isascii() and word not in _UNITS and word not in _SIZES
    if word and is_word and word.upper() not in _UNCLEAR_SIZES:
        raise ValueError(f"{text[token.start : token.end + len(word)]} is not a number")
    if token.sign:
        return token
    brackets = _BRACKETS.fullmatch(text)
    if brackets and all(word.lower() in _SIZES for word in _WORD.findall(brackets[1])):
        raise ValueError("in brackets it may be negative; select a part with match")
    if _MINUS_BEHIND.fullmatch(text, token.end):
        raise ValueError("it may be negative, with a minus after it")
    if not _MINUS_BEFORE.fullmatch(text, 0, token.start):
        return token
    if text[1:2].isspace():
        raise ValueError("the dash before it may be a minus")
    return replace(token, sign="-")


def amount_of(token: Token, locale: str | None, *, is_whole: bool = False, zeros: int = 0) -> float:
    """Return the value of a number, times ten to the power of `zeros`.

    With `is_whole`, three digits after a single mark are a group, not decimals.
    """
    whole, fraction = _split_decimals(token.body, decimal_mark(locale), is_whole=is_whole)
    power = int(token.power[1:] or 0) + zeros
    value = float(f"{token.sign}{whole or '0'}.{fraction or '0'}e{power}")
    if not math.isfinite(value):
        raise ValueError("it is too large")
    return value


def read_number(text: str, locale: str | None) -> float:
    """Return the only number in a text; `1.2k` is 1200. An int if it is too long for a float."""
    text = plain(text)
    token = only_signed(text)
    zeros = zeros_after(text, token)
    value = amount_of(token, locale, zeros=zeros)
    if abs(value) < EXACT_IN_FLOATS or token.power:
        return value
    whole, fraction = _split_decimals(token.body, decimal_mark(locale), is_whole=False)
    return value if fraction.strip("0") else int(f"{token.sign}{whole}{'0' * zeros}")


def read_integer(text: str, locale: str | None) -> int:
    """Return the only whole number in a text."""
    text = plain(text)
    token = only_signed(text)
    zeros = zeros_after(text, token)
    whole, fraction = _split_decimals(token.body, decimal_mark(locale), is_whole=not zeros)
    if not token.power and not fraction.strip("0"):
        return int(f"{token.sign}{whole or '0'}{'0' * zeros}")
    value = amount_of(token, locale, zeros=zeros)
    if not value.is_integer():
        raise ValueError("it is not a whole number")
    return int(value)


def zeros_after(text: str, token: Token) -> int:
    """Return how many zeros the word after a number means: 3 for thousand, 0 for most."""
    found = _SIZE.match(text, token.end)
    if not found:
        return 0
    word = found[1]
    if not word.isascii() and word[0] in _SIZES:
        return _SIZES[word[0]]
    if word in _UNCLEAR_SIZES and (word != "B" or found[0] == word):
        raise ValueError(f"the meaning of {word!r} after it is unclear")
    return _SIZES.get(word.lower(), 0)


def _check_neighbours(text: str, token: Token) -> None:
    """Raise ValueError when a neighbour belongs to the number: 2½, 10², 5百万, or a dash."""
    if token.sign and token.start and text[token.start + 1] == " ":
        raise ValueError("the dash before it may be a minus")
    if text.isascii():
        return
    behind, before = text[token.end : token.end + 2], text[max(token.start - 1, 0) : token.start]
    is_part = _is_numeral(behind[:1]) or _is_numeral(before)
    if is_part or (behind[:1] in _SIZES and _is_numeral(behind[1:])):
        raise ValueError("a character next to its digits, such as ½ or ², changes the number")


def _is_numeral(char: str) -> bool:
    return bool(char) and char not in _SIZES and unicodedata.numeric(char, None) is not None


def _split_decimals(body: str, mark: str | None, *, is_whole: bool) -> tuple[str, str]:
    """Return the digits before and after the decimal mark."""
    digits = body.replace(" ", "").replace("'", "")
    if "." not in digits and "," not in digits:
        return digits, ""
    mark = mark or _detect_mark(digits, is_whole=is_whole, is_grouped=digits != body)
    head, _, fraction = digits.partition(mark)
    if not fraction.isdecimal() and fraction:
        raise ValueError("its points and commas contradict each other")
    return _ungrouped(head, "," if mark == "." else "."), fraction


def _detect_mark(digits: str, *, is_whole: bool, is_grouped: bool) -> str:
    last = max(digits.rfind("."), digits.rfind(","))
    mark, other = (".", ",") if digits[last] == "." else (",", ".")
    if other in digits:
        return mark
    if digits.count(mark) > 1:
        return other
    head, tail = digits[:last], digits[last + 1 :]
    if len(tail) != len("000") or is_grouped or not 1 <= len(head.lstrip("0")) <= len("000"):
        return mark
    if is_whole:
        return other
    raise ValueError("it can be read in two ways; set locale, such as en or de")


def _ungrouped(head: str, mark: str) -> str:
    if mark not in head:
        return head
    first, *groups = head.split(mark)
    *middle, last = groups
    # Hindi numbers go by two after the first three: 12,34,567.
    sizes = {len(group) for group in middle}
    is_sound = len(last) == len("000") and 1 <= len(first) <= len("000")
    if not is_sound or not (sizes <= {3} or (sizes == {2} and len(first) < len("000"))):
        raise ValueError("its points and commas are not in the places of this locale")
    return head.replace(mark, "")
