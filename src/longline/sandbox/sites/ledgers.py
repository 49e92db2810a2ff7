"""The made-up records behind the practice API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from longline.sandbox.draws import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import Rows
from longline.sandbox.words import FIRST_NAMES, LAST_NAMES

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_HOURS = 5000

Make = Callable[[int, Picks], dict[str, Any]]


def make_rows(seed: int, subject: str, count: int, make: Make) -> Rows:
    """Return so many records, numbered from 1."""
    return [
        {"id": number, **make(number, Picks(draw(seed, subject, number)))}
        for number in range(1, count + 1)
    ]


def book(_number: int, picks: Picks) -> dict[str, Any]:
    """Return a book; its author is nested."""
    return {
        "title": f"{picks.of(words.BEGINNINGS)} and {picks.of(words.ENDINGS)}",
        "author": {"name": person(picks), "born": 1900 + picks.below(90)},
        "pages": 40 + picks.below(700),
        "tags": list(words.TAGS[: picks.below(3)]),
    }


def station(_number: int, picks: Picks) -> dict[str, Any]:
    """Return a weather station."""
    return {"place": picks.of(words.PLACES), "height": picks.below(900)}


def reading(number: int, picks: Picks) -> dict[str, Any]:
    """Return what a station measured; sometimes nothing."""
    taken = _BEGAN + timedelta(hours=number)
    celsius = (picks.below(400) - 100) / 10 if picks.below(10) else None
    return {"taken": taken.isoformat(), "celsius": celsius}


def invoice(number: int, picks: Picks) -> dict[str, Any]:
    """Return an invoice; amounts are texts, as many an API has them."""
    return {"number": f"R-{number:04d}", "amount": f"{picks.below(90000) / 100:.2f}"}


def part(number: int, picks: Picks) -> dict[str, Any]:
    """Return a spare part."""
    return {"sku": f"S{number:03d}", "name": f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)}"}


def customer(number: int, picks: Picks) -> dict[str, Any]:
    """Return a customer; the orders are asked for apart."""
    return {"name": person(picks), "city": picks.of(words.PLACES), "orders": (number * 7) % 4}


def change(_number: int, picks: Picks) -> dict[str, Any]:
    """Return something that was changed at a known moment."""
    moment = _BEGAN + timedelta(hours=picks.below(_HOURS), seconds=picks.below(3600))
    return {"title": picks.of(words.BEGINNINGS), "updated_at": written(moment)}


def person(picks: Picks) -> str:
    """Return a name."""
    return f"{picks.of(FIRST_NAMES)} {picks.of(LAST_NAMES)}"


def written(moment: datetime) -> str:
    """Return a moment as the API writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
