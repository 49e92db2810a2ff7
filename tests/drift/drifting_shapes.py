"""Records as a site with normal variation has them, and ways to break them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from longline.drift.profiles import Shape, shape_of

Change = Callable[[dict[str, Any]], dict[str, Any]]
_WORDS = ("lamp", "chair", "red", "old", "large", "harbour", "rope")


def data_of(draws: Random, number: int) -> dict[str, Any]:
    """Return a record: fields that are always, mostly, half the time and seldom there."""
    chance = draws.random
    return {
        "id": number,
        "title": f"{' '.join(draws.choices(_WORDS, k=draws.randint(2, 7)))} {number}",
        "price": None if chance() < 0.03 else round(draws.lognormvariate(4, 0.8), 2),
        "reserve": 5.0 if chance() < 0.03 else None,
        "signed": "by hand" if chance() < 0.5 else None,
        "tags": ["x"] * draws.randint(0, 5),
        "text": "word " * int(draws.lognormvariate(3, 0.8) + 1),
        "stock": draws.randint(0, 3),
        "category": draws.choice(("a", "b", "c")),
        "size": 5 if chance() < 0.8 else "five",
        "seller": {"name": draws.choice(_WORDS), "city": None if chance() < 0.4 else "Kiel"},
    }


def shapes_of(seed: int, count: int, change: Change = dict, *, start: int = 0) -> list[Shape]:
    """Return the shapes of `count` records, each changed first."""
    draws = Random(f"{seed} {start}")
    numbers = range(start, start + count)
    return [
        shape_of(str(number), change(data_of(draws, number)), 80 + 10 * draws.random())
        for number in numbers
    ]


def without(name: str) -> Change:
    return lambda data: {**data, name: None}


def put(name: str, make: Callable[[Any], Any]) -> Change:
    """Make another value of a field that is there."""
    return lambda data: {**data, name: None if data[name] is None else make(data[name])}
