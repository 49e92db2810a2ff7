"""What the practice shop sells: the facts, before they become pages."""

from __future__ import annotations

from typing import Any

from longline.sandbox.draws import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import Rows
from longline.sandbox.titles import make_slug

_PRODUCTS = 60
_DEAREST = 250_000  # cents
_FEWEST = 990


def make_products(seed: int) -> Rows:
    """Return all products; a few have no rating, no description or nothing in stock."""
    return [_product(seed, number) for number in range(1, _PRODUCTS + 1)]


def _product(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "product", number))
    # The lower of two draws: categories differ in size, and the first has several pages.
    shelf = min(picks.below(len(words.CATEGORIES)), picks.below(len(words.CATEGORIES)))
    slug, category = words.CATEGORIES[shelf]
    name = f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)} {number}"
    cents = _FEWEST + picks.below(_DEAREST)
    stock = max(0, picks.below(24) - 3)
    return {
        "id": number,
        "name": name,
        "path": f"/shop/product/{number}-{make_slug(name)}",
        "category": category,
        "category_slug": slug,
        "price": cents / 100,
        "cents": cents,
        "stock": stock,
        "in_stock": stock > 0,
        "rating": picks.below(6) or None,
        "description": picks.of((None, *words.REMARKS)),
        "variants": _variants(number, cents, picks),
    }


def _variants(number: int, cents: int, picks: Picks) -> Rows:
    colours = words.COLOURS[: picks.below(4)]
    return [
        {"sku": f"P{number}-{colour[:2].upper()}", "colour": colour, "price": (cents + n) / 100}
        for n, colour in enumerate(colours)
    ]
