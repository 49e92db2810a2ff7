"""Values as pages and APIs write them, parsed by type.

A value that cannot be read in exactly one way raises ValueError with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from longline.config.validation import invalid, nearest
from longline.core.json import read_json
from longline.core.output import count_text
from longline.http.messages import without_userinfo
from longline.sources.parsing.dates import check_format, read_date, read_datetime
from longline.sources.parsing.money import CURRENCIES, CURRENCY_SIGNS, SHARED_SIGNS, read_money
from longline.sources.parsing.numbers import (
    EXACT_IN_FLOATS,
    amount_of,
    only_number,
    plain,
    read_integer,
    read_number,
)

_TIME_UNITS = {
    1: """
        s sec secs second seconds sek sekunde sekunden sekund seconde secondes segundo segundos
        secondi
    """,
    60: "m min mins minute minutes minuten minuto minutos minuti minuut minut minuty",
    3600: "h hr hrs hour hours std stunde stunden heure heures hora horas ora ore uur godz",
    86400: "d day days tag tage tagen jour jours día días dia dias giorno giorni dag dagen",
    604800: "w week weeks woche wochen semaine semaines semana semanas settimana settimane weken",
}
SECONDS = {name: seconds for seconds, names in _TIME_UNITS.items() for name in names.split()}
"""Seconds of a unit of time."""
_AREA_UNITS = {
    1.0: """
        m²|m2|m^2|qm|sqm|sq m|sq.m|sq. m|mq|m.q.|square metres|square meters|square metre|
        square meter|quadratmeter|mètres carrés|metros cuadrados|кв.м|кв. м|кв м|м²|м2|
        квадратни метра
    """,
    1e6: "km²|km2|sq km|square kilometres|square kilometers",
    1e-4: "cm²|cm2",
    1e4: "ha|hectare|hectares|hektar|hectáreas|ettari",
    0.09290304: "ft²|ft2|sqft|sq ft|sq. ft|sq.ft|square feet|square foot|sf",
    0.83612736: "yd²|yd2|sq yd|square yards",
    2589988.110336: "mi²|mi2|sq mi|square miles",
    4046.8564224: "acre|acres|ac",
}
AREAS = {name.strip(): size for size, names in _AREA_UNITS.items() for name in names.split("|")}
"""Square metres of a unit of area."""

_CLOCKS = ("m:s", "h:m")


def check_form(kind: str | None, form: str | None) -> None:
    """Check that a form fits values of this type."""
    if form is None or kind is None:
        return
    if kind in {"date", "datetime"}:
        try:
            check_format(form, is_day=kind == "date")
        except ValueError as error:
            raise invalid(f"form: {error}") from None
    elif kind == "money" and form not in CURRENCY_SIGNS and form not in SHARED_SIGNS:
        _check_one_of(form.upper(), form, CURRENCIES, "a currency: three letters such as EUR")
    elif kind == "duration" and form not in _CLOCKS:
        _check_one_of(form.lower(), form, SECONDS, "a unit of time: minutes, or m:s, or h:m")
    elif kind == "area":
        _check_one_of(form.lower(), form, AREAS, "a unit of area such as m² or sqft")


def _check_one_of(meant: str, form: str, known: Iterable[str], wanted: str) -> None:
    names = sorted(known)
    if meant not in names:
        like = nearest(meant, names)
        raise invalid(
            f"form: {form!r} is not {wanted}{f'; did you mean {like!r}?' if like else ''}"
        )


# ---------------- Durations and areas: numbers with units, as seconds and as square metres

_ISO = re.compile(
    r"P(?:(?P<w>[\d.,]+)W)?(?:(?P<d>[\d.,]+)D)?"
    r"(?:T(?:(?P<h>[\d.,]+)H)?(?:(?P<m>[\d.,]+)M)?(?:(?P<s>[\d.,]+)S)?)?"
)
_CLOCK = re.compile(r"(?:(?P<h>\d+):)?(?P<m>\d{1,2}):(?P<s>\d{2})(?:[.,](?P<f>\d+))?")
_PART = re.compile(r"(\d+(?:[.,]\d+)*)\s?([^\W\d_]+)\.?")
_BETWEEN = re.compile(r"[\s,]*(?:and|und|et|y|e|en|i)?[\s,]*")
_UNIT = re.compile(
    "|".join(rf"(?<![^\W\d_]){re.escape(u)}(?!\w)" for u in sorted(AREAS, key=len, reverse=True))
)
_PRECISION = 6


def read_duration(value: str | float, locale: str | None, form: str | None) -> float:
    """Return seconds. `form` is the unit of a bare number, or `m:s` or `h:m` for 12:34."""
    if isinstance(value, int | float):
        return float(value) * _seconds_of(form)
    text = plain(value)
    if found := _ISO.fullmatch(text):
        parts = {name: part for name, part in found.groupdict().items() if part}
        if not parts:
            raise ValueError("it is an empty duration")
        return sum(float(part.replace(",", ".")) * SECONDS[n] for n, part in parts.items())
    if found := _CLOCK.fullmatch(text):
        return _clock(found, form)
    if text.replace(".", "").replace(",", "").isdecimal():
        return amount_of(only_number(text), locale) * _seconds_of(form)
    return _sum_of_units(text.lower(), locale)


def read_area(value: str | float, locale: str | None, form: str | None) -> float:
    """Return square metres. `form` is the unit of numbers without one."""
    text = plain(f"{value!r}" if isinstance(value, int | float) else value).lower()
    named = {AREAS[unit] for unit in _UNIT.findall(text)}
    if len(named) > 1:
        raise ValueError(f"there are {len(named)} units in it")
    unit = named.pop() if named else AREAS.get((form or "").lower())
    if unit is None:
        raise ValueError("there is no unit of area in it; set form, such as m²")
    own = "en" if isinstance(value, int | float) else locale
    amount = amount_of(only_number(_UNIT.sub(" ", text)), own)
    return round(amount * unit, _PRECISION)


def _clock(found: re.Match[str], form: str | None) -> float:
    seconds = int(found["m"]) * 60 + int(found["s"]) + float(f"0.{found['f'] or 0}")
    if found["h"]:
        return int(found["h"]) * 3600 + seconds
    if form == "h:m":
        return seconds * 60
    if form == "m:s":
        return seconds
    raise ValueError("it may be minutes and seconds or hours and minutes; set form to m:s or h:m")


def _seconds_of(form: str | None) -> int:
    if form is None or form.lower() not in SECONDS:
        raise ValueError("there is no unit of time in it; set form, such as minutes")
    return SECONDS[form.lower()]


def _sum_of_units(text: str, locale: str | None) -> float:
    total, place = 0.0, 0
    units: set[int] = set()
    while place < len(text):
        part = _PART.match(text, place)
        if not part or part[2] not in SECONDS:
            raise ValueError("it is not a duration such as 1 h 30 min or PT1H30M")
        unit = SECONDS[part[2]]
        if unit in units:
            raise ValueError(f"it has {part[2]} twice, so there are two durations in it")
        units.add(unit)
        total += amount_of(only_number(part[1]), locale) * unit
        gap = _BETWEEN.match(text, part.end())
        place = gap.end() if gap else part.end()
    return total


# ---------------- Floors of houses as ads write them: 3/6, 3-ти ет. от 6, ground floor, EG, 3. OG

_WORDS_FOR_GROUND = """
    ground|street level|g/f|gf|партер|приземен|приземие|erdgeschoss|erdgeschoß|eg|parterre|
    rez-de-chaussée|rdc|planta baja|piano terra|begane grond|parter
"""
_WORDS_FOR_BELOW = """
    lower ground|basement|сутерен|souterrain|untergeschoss|untergeschoß|ug|sous-sol|sótano
"""
_WORDS_FOR_FLOORS = """
    floors|storeys|stories|етажа|етажи|etagen|stockwerke|geschosse|étages|plantas|piani|pięter
"""


def _one_of(words: str) -> str:
    return "|".join(re.escape(word.strip()) for word in words.split("|"))


_GROUND = re.compile(rf"(?<!\w)(?:{_one_of(_WORDS_FOR_GROUND)})(?!\w)")
_BELOW = re.compile(rf"(?<!\w)(?:{_one_of(_WORDS_FOR_BELOW)})(?!\w)")
_OF = re.compile(
    r"(?:(?<=[\w.\s])/|(?<!\w)(?:of|out of|от|von|sur|de|di|z)(?!\w))\s*(?:общо\s+)?(\d{1,3})(?!\w)"
    rf"(?:\s*(?:{_one_of(_WORDS_FOR_FLOORS)})(?!\w))?"
)
_ALL = re.compile(rf"(?<![\w.,/-])(\d{{1,3}})\s*-?\s*(?:{_one_of(_WORDS_FOR_FLOORS)})(?!\w)")
# A three-storey house (3-етажна) has no floor number, but 2nd or 3-ти is one.
_NUMBER = re.compile(
    r"(?<![\w.,-])(?P<sign>-)?(?P<digits>\d{1,3})"
    r"(?:st|nd|rd|th|er|e|ème|te[rn]?|[º°ª]|-?(?:ви|ри|ти|ми))?(?![\w,-]|\.\d)"
)


def read_floor(value: str | float, _locale: str | None, _form: str | None) -> int:
    """Return the floor as it is written; 0 for the ground floor, -1 for one below it."""
    text = _floor_text(value)
    floors = _floors_in(text)
    rest = _ALL.sub(" ", _OF.sub(" ", text))
    found = [int(f"{m['sign'] or ''}{m['digits']}") for m in _NUMBER.finditer(rest)]
    # The ground floor is part of the lower ground floor's name.
    if _BELOW.search(rest):
        found.append(-1)
    elif _GROUND.search(rest):
        found.append(0)
    if len(found) != 1:
        raise ValueError(
            f"there are {len(found)} floors in it" if found else "there is no floor in it"
        )
    if floors is not None and found[0] > floors:
        building = f"a building with {count_text(floors, 'floor')}"
        raise ValueError(f"there is no floor {found[0]} in {building}")
    return found[0]


def read_floors(value: str | float, _locale: str | None, _form: str | None) -> int:
    """Return how many floors the house has: 6 for 3/6, or for 6 floors."""
    floors = value if isinstance(value, int) else _floors_in(_floor_text(value))
    if floors is None:
        raise ValueError("there is no number of floors in it, as in 3/6 or 6 floors")
    return floors


def _floor_text(value: str | float) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return plain(str(int(value) if is_whole else value)).lower()


def _floors_in(text: str) -> int | None:
    found = {int(number) for kind in (_OF, _ALL) for number in kind.findall(text)}
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} numbers of floors in it")
    return found.pop() if found else None


_WORDS_FOR_YES = "true yes y on 1 ja oui sí si sim tak igen ✓ ✔"
_WORDS_FOR_NO = "false no n off 0 nein non não nao nie nee nem ✗ ✘"
_YES, _NO = frozenset(_WORDS_FOR_YES.split()), frozenset(_WORDS_FOR_NO.split())
_SCHEMES = frozenset({"http", "https", ""})
_STARTS = ("/", "./", "../", "http:", "https:")
_SUFFIX = re.compile(r"\.\w{1,8}$")
_SRCSET = re.compile(r" \d+(\.\d+)?[wx]\b")

_LARGEST = 2**64  # JSON is not written with larger integers
_ALSO_NUMBERS = frozenset(
    {"number", "integer", "date", "datetime", "duration", "area", "floor", "floors"}
)
"""Kinds that are read from text or numbers, and from nothing else."""


def read_value(kind: str, value: Any, *, locale: str | None = None, form: str | None = None) -> Any:
    """Return a value of a `ValueKind`.

    Dates are ISO 8601, durations seconds, areas square metres, money is an amount and a currency,
    the ground floor is 0.

    Args:
        kind: the type.
        value: text, or a JSON value.
        locale: how numbers and dates are written there, such as de or en-US.
        form: what the text leaves out: the format of a date, a currency, a unit.

    Raises:
        ValueError: the value cannot be read in exactly one way.
    """
    if kind in _ALSO_NUMBERS and not (isinstance(value, str) or _is_numeric(value)):
        raise ValueError("it is not text")
    return _READERS[kind](value, locale, form)


def _parse_text(value: Any, _locale: str | None, _form: str | None) -> str:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise ValueError("it is not text")


def _parse_number(value: str | float, locale: str | None, _form: str | None) -> float:
    number = read_number(value, locale) if isinstance(value, str) else value
    # A long int would lose digits as a float.
    if isinstance(number, int) and abs(number) > EXACT_IN_FLOATS:
        return _within_64_bits(number)
    return _finite_float(number)


def _parse_integer(value: Any, locale: str | None, _form: str | None) -> int:
    if isinstance(value, str):
        return _within_64_bits(read_integer(value, locale))
    if isinstance(value, float) and not _finite_float(value).is_integer():
        raise ValueError("it is not a whole number")
    return _within_64_bits(int(value))


def _parse_boolean(value: Any, _locale: str | None, _form: str | None) -> bool:
    word = str(value).strip().lower()
    if word not in _YES and word not in _NO:
        raise ValueError("it is neither yes nor no")
    return word in _YES


def _parse_money(value: Any, locale: str | None, form: str | None) -> Any:
    if not isinstance(value, str | Mapping) and not _is_numeric(value):
        raise ValueError("it is not text")
    return read_money(value, locale, form)


def _parse_url_value(value: Any, _locale: str | None, _form: str | None) -> str:
    text = value.strip() if isinstance(value, str) else ""
    try:
        scheme = urlsplit(text).scheme.lower()
    except ValueError:
        raise ValueError("it is not a URL") from None
    if not text or scheme not in _SCHEMES or any(char.isspace() for char in text):
        raise ValueError("it is not the URL of a web page")
    return without_userinfo(text)


def _parse_file_url(value: Any, locale: str | None, form: str | None) -> str:
    text = value.strip() if isinstance(value, str) else ""
    # As browsers do; other texts with spaces are no URLs, such as those of a srcset.
    if (text.startswith(_STARTS) or _SUFFIX.search(text)) and not _SRCSET.search(text):
        text = text.replace(" ", "%20")
    return _parse_url_value(text, locale, form)


def _parse_json(value: Any, _locale: str | None, _form: str | None) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from None


def _is_numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite_float(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("it is not a finite number")
    return float(value)


def _within_64_bits(number: int) -> int:
    if not -_LARGEST // 2 <= number < _LARGEST:
        raise ValueError("it has more than 64 bits; write type: text")
    return number


_READERS: Mapping[str, Callable[[Any, str | None, str | None], Any]] = {
    "text": _parse_text,
    "number": _parse_number,
    "integer": _parse_integer,
    "money": _parse_money,
    "date": read_date,
    "datetime": read_datetime,
    "boolean": _parse_boolean,
    "duration": read_duration,
    "area": read_area,
    "floor": read_floor,
    "floors": read_floors,
    "url": _parse_url_value,
    "file": _parse_file_url,  # the URL, which is then downloaded
    "image": _parse_file_url,
    "json": _parse_json,
}

# fmt: off
ValueKind = Literal[
    "text", "number", "integer", "money", "date", "datetime",
    "boolean", "duration", "area", "floor", "floors", "url", "file", "image", "json",
]
