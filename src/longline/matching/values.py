"""Values of records, made comparable: what is missing, texts in one form, numbers, sets."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from longline.config.matching import Normaliser

PLAIN = Normaliser()
_PIECE = 3  # letters of a piece by which texts are compared
# The streamlined system of Bulgarian law, which is how the names stand on signs and maps; letters
# that only other languages have are added in the same spirit.
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъьюяёыэіїєґјљњћђџ"
_AS_LATIN = (
    "a b v g d e zh z i y k l m n o p r s t u f h ts ch sh sht a y yu ya "
    "e y e i yi ye g j lj nj c dj dz"
)
_LATIN = str.maketrans(dict(zip(_CYRILLIC, _AS_LATIN.split(), strict=True)))


def value_at(data: Mapping[str, Any], path: str) -> Any:
    """Return what stands at a path of names; None where it leads nowhere or to nothing."""
    value: Any = data
    if path in data:
        value = data[path]
    else:
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
    return None if is_missing(value) else value


def is_missing(value: Any) -> bool:
    """Say whether a value says nothing; false and 0 say something."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, list | dict | tuple | set) and not value


def canonical(value: Any, rules: Normaliser = PLAIN) -> str | None:
    """Return a value as a text that equal values share; None when it says nothing."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        return normal_text(value, rules) or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return str(value)
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS).decode()


def number(value: Any) -> float | None:
    """Return a number; None for anything else, true and false included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def members(value: Any, rules: Normaliser = PLAIN) -> frozenset[str] | None:
    """Return the members of a list, or the one value; None when there is none."""
    several = value if isinstance(value, list | tuple | set) else [value]
    found = frozenset(text for one in several if (text := canonical(one, rules)) is not None)
    return found or None


def pieces(value: Any, rules: Normaliser = PLAIN) -> frozenset[str] | None:
    """Return the overlapping pieces of a text's words; None when it is no text or has none."""
    if not isinstance(value, str):
        return None
    words = f" {normal_text(value, rules)} "
    return frozenset(words[at : at + _PIECE] for at in range(len(words) - _PIECE + 1)) or None


def normal_text(text: str, rules: Normaliser = PLAIN) -> str:
    """Return a text in small letters and single spaces, cut and spelled as the rules say."""
    plain = _without(_folded(text), tuple(rules.cut))
    plain = _spelling(plain, rules)
    return _in_latin(plain) if rules.latin else plain


def _spelling(text: str, rules: Normaliser) -> str:
    for name, others in rules.same.items():
        if text in (_folded(name), *(_folded(one) for one in others)):
            return _folded(name)
    return text


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@lru_cache(maxsize=256)
def _prefixes(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted((_folded(word) for word in words), key=len, reverse=True))


def _without(text: str, words: tuple[str, ...]) -> str:
    """Cut the first of these words that the text begins with, unless it is all of it."""
    for prefix in _prefixes(words):
        rest = text[len(prefix) :]
        if text.startswith(prefix) and _is_whole_word(prefix, rest):
            return rest.strip()
    return text


def _is_whole_word(prefix: str, rest: str) -> bool:
    """Say whether a new word begins after a prefix; a dot ends one, with or without a space."""
    if not rest.strip():
        return False
    return rest[0].isspace() or (not prefix[-1].isalnum() and rest[0].isalnum())


@lru_cache(maxsize=4096)
def _in_latin(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.translate(_LATIN))
    return "".join(part for part in parts if not unicodedata.combining(part))
