"""Search finds text as people see it, whatever signs it holds."""

from __future__ import annotations

import pytest

from longline.storage.query import RecordQuery
from longline.storage.store import Store
from tests.storage.given import record
from tests.virtual import EPOCH

TITLES = {
    "percent": "100% cotton",
    "under": "snake_case hat",
    "plain": "100 snakes of cotton, sbake-case",
    "cyrillic": "Шапка из хлопка",
    "german": "Größe ÜBER alles",
    "quoted": 'the "best" hat',
    "slash": r"C:\hats",
    "lines": "two\nlines",
    "emoji": "a hat 🎩",
}


@pytest.fixture
async def full(store: Store) -> Store:
    for key, title in TITLES.items():
        await store.records.create(record(key, {"title": title}), at=EPOCH)
    return store


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100%", ["percent"]),
        ("%", ["percent"]),
        ("snake_case", ["under"]),
        ("_case", ["under"]),
        ("COTTON", ["percent", "plain"]),
        ("хлопк", ["cyrillic"]),
        ("ШАПКА", ["cyrillic"]),
        ("größe", ["german"]),
        ("über", ["german"]),
        ('"best"', ["quoted"]),
        (r"C:\hats", ["slash"]),
        ("two\nlines", ["lines"]),
        ("🎩", ["emoji"]),
        ("shop.test/emoji", ["emoji"]),
        ("quoted", ["quoted"]),
        ("nowhere", []),
        ("' OR 1=1 --", []),
    ],
)
async def test_a_search_finds_what_holds_the_text(
    full: Store, text: str, expected: list[str]
) -> None:
    assert [row["key"] for row in await full.records.list(RecordQuery(text=text))] == expected
    assert await full.records.count(RecordQuery(text=text)) == len(expected)


async def test_a_search_has_a_limit(full: Store) -> None:
    assert len(await full.records.list(RecordQuery(text="hat", limit=2))) == 2


async def test_a_search_goes_with_the_other_filters(full: Store) -> None:
    query = RecordQuery(text="hat", key="emoji")

    assert [row["key"] for row in await full.records.list(query)] == ["emoji"]
