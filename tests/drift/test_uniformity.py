"""Which records are suspiciously alike, and which are alike by their nature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from longline.drift.detector import judge_run
from longline.drift.profiles import Profile, Shape, shape_of
from longline.drift.uniformity import ALIKE, find_uniformity

Row = Callable[[int], dict[str, Any]]


def shapes_of(row: Row, count: int = 137, key: str = "item-{}") -> list[Shape]:
    return [shape_of(key.format(n), row(n)) for n in range(count)]


def quotes(n: int) -> dict[str, Any]:
    return {"url": f"https://quotes.test/tag/{n}", "title": "Quotes to Scrape", "text": f"t{n}"}


def test_one_title_for_all_records_is_suspicious() -> None:
    assert len(find_uniformity(shapes_of(quotes))) == 1


def test_one_title_for_nearly_all_records_is_suspicious() -> None:
    mixed = shapes_of(lambda n: {**quotes(n), "title": "Quotes" if n % 50 else f"t{n}"})

    assert len(find_uniformity(mixed)) == 1


@pytest.mark.parametrize("constant", [("brand", "about"), ("intro", "about"), ("name", "about")])
def test_records_that_differ_only_in_their_address_are_suspicious(
    constant: tuple[str, ...],
) -> None:
    same = dict.fromkeys(constant, "The same for all")
    found = find_uniformity(
        shapes_of(lambda n: {"url": f"/p/{n}", "id": n, "text": "Welcome", **same})
    )

    assert len(found) == 1


@pytest.mark.parametrize("key", ["tag/t{}", "https://q.test/category/c{}/", "tag/t{}/page/1"])
def test_keys_of_categories_are_suspicious(key: str) -> None:
    assert len(find_uniformity(shapes_of(lambda n: {"title": f"t{n}"}, key=key))) == 1


@pytest.mark.parametrize("key", ["category/shoes/shoe-{}", "{}", "author/a{}", "books/tagged-{}"])
def test_keys_of_items_are_not(key: str) -> None:
    assert find_uniformity(shapes_of(lambda n: {"title": f"t{n}"}, key=key)) == []


@pytest.mark.parametrize(
    "row",
    [
        lambda n: {"title": f"t{n}", "currency": "EUR", "language": "de", "source": "shop"},
        lambda n: {"name": "EUR/USD", "date": f"2026-01-{n}", "rate": 1.1, "unit": "USD"},
        lambda n: {"title": "Mr", "name": f"n{n}"},
        lambda n: {"page_title": "Shop", "title": f"t{n}"},
        lambda n: {"url": f"/p/{n}", "status": "200", "content_type": "text/html"},
        lambda n: {"url": f"/p/{n}", "text": "in stock", "price": n, "about": "same"},
        lambda n: {"url": f"/p/{n}", "text": "a", "about": "b", "tags": ["x"] * (n % 5)},
        lambda n: {"url": f"/p/{n}", "text": "a", "about": "b", "seller": {"city": f"c{n}"}},
        lambda n: {"title": None, "url": f"/p/{n}"},
        lambda _: {},
        lambda n: {"title": "Untitled" if n % 2 else f"t{n}"},
    ],
)
def test_what_is_constant_by_nature_is_not_suspicious(row: Row) -> None:
    assert find_uniformity(shapes_of(row)) == []


def test_a_few_records_may_be_alike() -> None:
    assert find_uniformity(shapes_of(quotes, count=9)) == []


def test_a_judgement_warns_and_stays_sound() -> None:
    judgement = judge_run(shapes_of(quotes), None)

    assert (judgement.is_sound, len(judgement.alike)) == (True, 1)
    assert judgement.alike[0] in judgement.warnings


def test_what_a_person_has_accepted_is_not_warned_of_again() -> None:
    judgement = judge_run(shapes_of(quotes), Profile(quiet={ALIKE}))

    assert (judgement.alike, judgement.warnings) == ((), ())
    assert ALIKE in judgement.profile.quiet
