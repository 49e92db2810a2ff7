"""Floors of houses as ads write them: 3/6, 3-ти ет. от 6, ground floor, EG, 3. OG von 6."""

from __future__ import annotations

import re

from longline.sources.values_numbers import plain

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
    text = _plain(value)
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
    floors = value if isinstance(value, int) else _floors_in(_plain(value))
    if floors is None:
        raise ValueError("it does not say how many floors there are, as 3/6 or 6 floors do")
    return floors


def _plain(value: str | float) -> str:
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
