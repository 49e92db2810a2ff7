"""Durations and areas: numbers with units, as seconds and as square metres."""

from __future__ import annotations

import re

from longline.sources.parsing.locales import AREAS, SECONDS
from longline.sources.parsing.numbers import amount_of, only_number, plain

_ISO = re.compile(
    r"P(?:(?P<w>[\d.,]+)W)?(?:(?P<d>[\d.,]+)D)?"
    r"(?:T(?:(?P<h>[\d.,]+)H)?(?:(?P<m>[\d.,]+)M)?(?:(?P<s>[\d.,]+)S)?)?"
)
_ISO_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(?P<h>\d+):)?(?P<m>\d{1,2}):(?P<s>\d{2})(?:[.,](?P<f>\d+))?")
_PART = re.compile(r"(\d+(?:[.,]\d+)*)\s?([^\W\d_]+)\.?")
_BETWEEN = re.compile(r"[\s,]*(?:and|und|et|y|e|en|i)?[\s,]*")
_SQUARE_METRES = {
    "m²": 1.0,
    "km²": 1e6,
    "cm²": 1e-4,
    "ha": 1e4,
    "ft²": 0.09290304,
    "yd²": 0.83612736,
    "mi²": 2589988.110336,
    "acre": 4046.8564224,
}
_UNIT = re.compile(
    "|".join(rf"(?<![^\W\d_]){re.escape(u)}(?!\w)" for u in sorted(AREAS, key=len, reverse=True))
)
_PRECISION = 6


def read_duration(value: str | float, locale: str | None, form: str | None) -> float:
    """Return seconds. `form` is the unit of a bare number, or `m:s` or `h:m` for 12:34.

    Raises:
        ValueError: it is no duration, or what its numbers count is not said.
    """
    if isinstance(value, int | float):
        return float(value) * _seconds_of(form)
    text = plain(value)
    if found := _ISO.fullmatch(text):
        return _iso(found)
    if found := _CLOCK.fullmatch(text):
        return _clock(found, form)
    if text.replace(".", "").replace(",", "").isdecimal():
        return amount_of(only_number(text), locale) * _seconds_of(form)
    return _in_words(text.lower(), locale)


def read_area(value: str | float, locale: str | None, form: str | None) -> float:
    """Return square metres. `form` is the unit of numbers that have none.

    Raises:
        ValueError: there is not one area in it, or no unit is known.
    """
    text = plain(f"{value!r}" if isinstance(value, int | float) else value).lower()
    named = {AREAS[unit] for unit in _UNIT.findall(text)}
    if len(named) > 1:
        raise ValueError(f"there are {len(named)} units in it")
    unit = named.pop() if named else AREAS.get((form or "").lower())
    if unit is None:
        raise ValueError("there is no unit of area in it; say which is meant with form, such as m²")
    own = "en" if isinstance(value, int | float) else locale
    amount = amount_of(only_number(_UNIT.sub(" ", text)), own)
    return round(amount * _SQUARE_METRES[unit], _PRECISION)


def _iso(found: re.Match[str]) -> float:
    parts = {name: part for name, part in found.groupdict().items() if part}
    if not parts:
        raise ValueError("it is an empty duration")
    return sum(float(part.replace(",", ".")) * _ISO_SECONDS[n] for n, part in parts.items())


def _clock(found: re.Match[str], form: str | None) -> float:
    seconds = int(found["m"]) * 60 + int(found["s"]) + float(f"0.{found['f'] or 0}")
    if found["h"]:
        return int(found["h"]) * 3600 + seconds
    if form == "h:m":
        return seconds * 60
    if form == "m:s":
        return seconds
    raise ValueError("minutes and seconds, or hours and minutes? Say form: m:s or form: h:m")


def _seconds_of(form: str | None) -> int:
    if form is None or form.lower() not in SECONDS:
        raise ValueError("there is no unit of time in it; say which is meant with form: minutes")
    return SECONDS[form.lower()]


def _in_words(text: str, locale: str | None) -> float:
    total, place = 0.0, 0
    units: set[int] = set()
    while place < len(text):
        part = _PART.match(text, place)
        if not part or part[2] not in SECONDS:
            raise ValueError("it is no duration that can be read, such as 1 h 30 min or PT1H30M")
        unit = SECONDS[part[2]]
        if unit in units:
            raise ValueError(f"it says {part[2]} twice, so there are two durations in it")
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
# A three-storey house (3-етажна) says nothing of a floor, and 2nd or 3-ти does.
_NUMBER = re.compile(
    r"(?<![\w.,-])(?P<sign>-)?(?P<digits>\d{1,3})"
    r"(?:st|nd|rd|th|er|e|ème|te[rn]?|[º°ª]|-?(?:ви|ри|ти|ми))?(?![\w,-]|\.\d)"
)


def read_floor(value: str | float, _locale: str | None, _form: str | None) -> int:
    """Return the floor, counted as it is written; 0 for the ground floor, -1 for one below it.

    Raises:
        ValueError: there is not one floor in it, or it lies above the last.
    """
    text = _floor_text(value)
    floor = _floor_in(_ALL.sub(" ", _OF.sub(" ", text)))
    floors = _floors_in(text)
    if floors is not None and floor > floors:
        raise ValueError(f"there is no floor {floor} in a house of {floors}")
    return floor


def read_floors(value: str | float, _locale: str | None, _form: str | None) -> int:
    """Return how many floors the house has: the 6 of 3/6, or of 6 floors.

    Raises:
        ValueError: it does not say.
    """
    floors = value if isinstance(value, int) else _floors_in(_floor_text(value))
    if floors is None:
        raise ValueError("it does not say how many floors there are, as 3/6 or 6 floors do")
    return floors


def _floor_text(value: str | float) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return plain(str(int(value) if is_whole else value)).lower()


def _floors_in(text: str) -> int | None:
    found = {int(number) for kind in (_OF, _ALL) for number in kind.findall(text)}
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} numbers of floors in it")
    return found.pop() if found else None


def _floor_in(text: str) -> int:
    numbers = [int(f"{m['sign'] or ''}{m['digits']}") for m in _NUMBER.finditer(text)]
    # The ground floor is part of the lower ground floor's name.
    named = [-1] if _BELOW.search(text) else [0] if _GROUND.search(text) else []
    found = [*named, *numbers]
    if not found:
        raise ValueError("there is no floor in it")
    if len(found) > 1:
        raise ValueError(f"there are {len(found)} floors in it")
    return found[0]
