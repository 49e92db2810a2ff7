"""Items of a job paired with what its source finds now."""

from __future__ import annotations

from typing import Any

from longline.analysis.rediscovery import pair_items
from longline.core.model import Item
from longline.sources.base import Source

PAGE = "https://quotes.test/"


class Elements(Source):
    """Items that carry the identity of their element, unless an older version queued them."""

    name = "elements"

    def identity_of(self, item: Item) -> str | None:
        identity: str | None = item.data.get("element")
        return identity


def item(key: str, element: str | None = None, url: str = PAGE) -> Item:
    return Item(key, url, data={} if element is None else {"element": element})


def row(key: str, element: str | None = None, url: str = PAGE) -> dict[str, Any]:
    one = item(key, element, url)
    return {"key": key, "url": url, "priority": 0, "data": one.data}


def pairs(
    rows: list[dict[str, Any]], found: list[Item], limit: int | None = None
) -> tuple[dict[str, str], list[str]]:
    """Return the new key of each row, and the keys of the new items."""
    paired = pair_items(Elements(), rows, found, limit)
    return {old: new.key for old, new in paired.items.items()}, [one.key for one in paired.new]


def test_an_element_is_known_again_under_another_key() -> None:
    found = [item("x", "2"), item("y", "1")]

    assert pairs([row("a", "1"), row("b", "2")], found) == ({"a": "y", "b": "x"}, [])


def test_an_element_counts_more_than_a_key() -> None:
    # The keys have moved on by one: each row is still its own element.
    found = [item("b", "1"), item("c", "2")]

    assert pairs([row("a", "1"), row("b", "2")], found) == ({"a": "b", "b": "c"}, [])


def test_equal_elements_keep_their_keys() -> None:
    found = [item("b", "1"), item("a", "1")]

    assert pairs([row("a", "1"), row("b", "1")], found) == ({"a": "a", "b": "b"}, [])


def test_a_key_is_enough_where_the_element_differs() -> None:
    assert pairs([row("a", "1")], [item("a", "9")]) == ({"a": "a"}, [])


def test_items_of_older_versions_are_known_by_their_place_on_the_page() -> None:
    found = [item("x", "1"), item("y", "2"), item("z", "3", f"{PAGE}2")]

    assert pairs([row("a"), row("b")], found) == ({"a": "x", "b": "y"}, ["z"])


def test_a_page_with_another_number_of_items_says_nothing_about_places() -> None:
    found = [item("x", "1"), item("y", "2")]

    assert pairs([row("a"), row("b"), row("c")], found) == ({}, ["x", "y"])


def test_a_limited_job_has_no_new_items_beyond_its_limit() -> None:
    found = [item("a", "1"), item("x", "2"), item("y", "3")]

    assert pairs([row("a", "1")], found, limit=2) == ({"a": "a"}, ["x"])
