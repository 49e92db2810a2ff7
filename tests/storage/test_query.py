"""Conditions, orders, times and text searches: which records a query returns, now or then."""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest
from sqlalchemy.dialects import postgresql

from longline.core.errors import BadOption
from longline.storage.database import Database
from longline.storage.query import (
    Condition,
    Operator,
    Order,
    RecordQuery,
    parse_condition,
    parse_order,
    parse_timestamp,
    select_records,
)
from longline.storage.records import Records, store_records
from longline.storage.store import Store, open_store
from tests.storage.given import record
from tests.virtual import EPOCH

FLATS: dict[str, dict[str, Any]] = {
    "cheap": {"price": 90, "city": "Berlin", "address": {"floor": 0}, "photos": []},
    "dear": {"price": 1500.5, "city": "Bern", "sold": True, "photos": ["a.jpg", "b.jpg"]},
    "asked": {"price": "on request", "city": "Sofia", "sold": False},
    "bare": {"price": None, "city": " ", "address": {"floor": None}},
    "empty": {},
    "zip": {"price": 100, "city": "10115", "tags": ["Größe", "50%"], "photos": {}},
}


@pytest.fixture(scope="module")
def flats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that all tests only read from."""
    path = tmp_path_factory.mktemp("flats") / "longline.sqlite"
    with open_store(f"sqlite:///{path}") as store:
        asyncio.run(fill(store))
        yield store


async def fill(store: Store) -> None:
    for number, (key, data) in enumerate(FLATS.items()):
        score = None if key == "empty" else 10.0 * number
        await store.records.create(record(key, data, score=score), at=EPOCH + number)


async def found(store: Store, *conditions: str, order: tuple[str, ...] = ()) -> list[str]:
    where = tuple(map(parse_condition, conditions))
    query = RecordQuery(where=where, order=tuple(map(parse_order, order)))
    listed = [row["key"] for row in await store.records.list(query)]
    assert await store.records.count(query) == len(listed)
    assert [row["key"] for row in store.records.stream(query, size=2)] == listed
    return listed


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("price>100", ["dear"]),
        ("price >= 100", ["dear", "zip"]),
        ("price<100", ["cheap"]),
        ("price<=1500.5", ["cheap", "dear", "zip"]),
        ("price=90", ["cheap"]),
        ("price==90.0", ["cheap"]),
        ('price="90"', []),
        ("price=on request", ["asked"]),
        ("price>on", ["asked"]),
        ("price!=90", ["dear", "asked", "zip"]),
        ("price=null", ["bare", "empty"]),
        ("price!=null", ["cheap", "dear", "asked", "zip"]),
        ("price?", ["cheap", "dear", "asked", "zip"]),
        ("city?", ["cheap", "dear", "asked", "zip"]),
        ("photos?", ["dear"]),
        ("address.floor=0", ["cheap"]),
        ("address.floor?", ["cheap"]),
        ("photos.1=b.jpg", ["dear"]),
        ("photos~A.JPG", ["dear"]),
        ("city~ber", ["cheap", "dear"]),
        ("city!=Berlin", ["dear", "asked", "zip"]),
        ('city="10115"', ["zip"]),
        ("city=10115", []),
        ("tags~größe", ["zip"]),
        ("tags~%", ["zip"]),
        ("city~_", []),
        ("price~15", ["dear"]),
        ("sold=true", ["dear"]),
        ("sold=false", ["asked"]),
        ("sold!=true", ["asked"]),
        ("sold=1", []),
        ("absent>1", []),
        ("absent!=1", []),
        ("@key=zip", ["zip"]),
        ("@key~E", ["cheap", "dear", "asked", "bare", "empty"]),
        ("@score>=30", ["bare", "zip"]),
        ("@score!=30", ["cheap", "dear", "asked", "zip"]),
        ("@score?", ["cheap", "dear", "asked", "bare", "zip"]),
        ("@score=null", ["empty"]),
        ("@changed_at<2000-01-01", []),
        ("@changed_at>2000-01-01T12:00:00+01:00", list(FLATS)),
    ],
)
async def test_a_condition_compares_like_with_like(
    flats: Store, condition: str, expected: list[str]
) -> None:
    assert await found(flats, condition) == expected


async def test_several_conditions_all_hold(flats: Store) -> None:
    assert await found(flats, "price>1", "city~ber", "price<100") == ["cheap"]


async def test_an_empty_field_can_be_asked_for_from_python(flats: Store) -> None:
    query = RecordQuery(where=(Condition("price", "?", value=False),))

    assert [row["key"] for row in await flats.records.list(query)] == ["bare", "empty"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (("price",), ["cheap", "zip", "dear", "asked", "bare", "empty"]),
        (("-price",), ["dear", "zip", "cheap", "asked", "bare", "empty"]),
        (("sold",), ["asked", "dear", "cheap", "bare", "empty", "zip"]),
        (("-sold", "price"), ["dear", "asked", "cheap", "zip", "bare", "empty"]),
        (("-@score",), ["zip", "bare", "asked", "dear", "cheap", "empty"]),
        (("@score",), ["cheap", "dear", "asked", "bare", "zip", "empty"]),
        (("-@changed_at",), list(reversed(FLATS))),
    ],
)
async def test_what_lacks_the_field_comes_last_whichever_way(
    flats: Store, order: tuple[str, ...], expected: list[str]
) -> None:
    assert await found(flats, order=order) == expected


async def test_text_is_sorted_without_regard_to_case(store: Store) -> None:
    for key in ("b", "A", "ä", "Z"):
        await store.records.create(record(key, {"name": key}), at=EPOCH)

    assert await found(store, order=("name",)) == ["A", "b", "Z", "ä"]


async def test_a_limit_takes_the_first_of_the_order(flats: Store) -> None:
    query = RecordQuery(order=(Order("price", is_descending=True),), limit=2, offset=1)

    assert [row["key"] for row in flats.records.stream(query)] == ["zip", "cheap"]


async def test_a_stream_in_any_order_holds_only_some_of_the_records(database: Database) -> None:
    for start in range(0, 2_000, 100):
        deposits = [
            (record(str(n), {"n": n, "text": "x" * 5_000}), None, EPOCH)
            for n in range(start, start + 100)
        ]
        await database.write(store_records, deposits)
    query = RecordQuery(order=(Order("n", is_descending=True),))

    tracemalloc.start()
    numbers = [row["data"]["n"] for row in Records(database).stream(query, size=50)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert numbers == list(range(1_999, -1, -1))
    assert peak < 3_000_000  # of 10 MB


@pytest.fixture
async def changing(store: Store) -> Store:
    """A hat that costs 5, then 7, then 9; and a shoe that came in between."""
    for number, price in enumerate((5, 7, 9)):
        hat = record("hat", {"price": price}, fingerprint=str(price), score=50.0 + 20 * number)
        await store.records.create(hat, at=EPOCH + 10 * number, job=f"job {number}")
    await store.records.create(record("shoe", {"price": 1}), at=EPOCH + 15)
    return store


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (-1, []),
        (0, [("hat", 1, 5)]),
        (9.9, [("hat", 1, 5)]),
        (10, [("hat", 2, 7)]),
        (15, [("hat", 2, 7), ("shoe", 1, 1)]),
        (20, [("hat", 3, 9), ("shoe", 1, 1)]),
        (1000, [("hat", 3, 9), ("shoe", 1, 1)]),
    ],
)
async def test_records_are_given_as_they_were(
    changing: Store, after: float, expected: list[tuple[str, int, int]]
) -> None:
    rows = await changing.records.list(RecordQuery(as_of=EPOCH + after))

    assert [(row["key"], row["version"], row["data"]["price"]) for row in rows] == expected


async def test_an_old_version_has_the_columns_of_a_record(changing: Store) -> None:
    (row,) = await changing.records.list(RecordQuery(as_of=EPOCH + 12))
    (now,) = await changing.records.list(RecordQuery(key="hat"))

    assert list(row) == list(now)
    assert (row["score"], row["grade"], row["job_id"]) == (70.0, "Good", "job 1")
    assert (row["changed_at"], row["seen_at"], row["first_seen_at"]) == (
        EPOCH + 10,
        EPOCH + 10,
        EPOCH,
    )
    assert row["about"]["provenance"] == {"title": "page"}


async def test_a_later_sighting_is_left_out(store: Store) -> None:
    await store.records.create(record("1"), at=EPOCH)
    await store.records.create(record("1"), at=EPOCH + 50)

    (row,) = await store.records.list(RecordQuery(as_of=EPOCH + 10))

    assert row["seen_at"] == EPOCH


async def test_conditions_and_orders_apply_to_the_past_values(changing: Store) -> None:
    query = RecordQuery(
        as_of=EPOCH + 16, where=(Condition("price", "<", 9),), order=(Order("price"),)
    )

    assert [row["data"]["price"] for row in changing.records.stream(query)] == [1, 7]
    assert await changing.records.count(query) == 2


@pytest.mark.parametrize(
    "text",
    ["", "price", ">5", "price>", "price=", "price?yes", "@nothing=1", "a..b=1", 'a"b=1', "@=1"],
)
def test_an_invalid_condition_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        parse_condition(text)


@pytest.mark.parametrize("text", ["price>>3", "price=<3", "price===3", "title~?"])
def test_text_that_begins_with_an_operator_needs_quotes(text: str) -> None:
    with pytest.raises(BadOption, match=re.escape(repr(text))):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('title~"?"', "?"),
        ('title>">3"', ">3"),
        ("@url~list?page=2", "list?page=2"),
        ("a=b=c", "b=c"),
    ],
)
def test_text_may_contain_an_operator(text: str, value: str) -> None:
    assert parse_condition(text).value == value


@pytest.mark.parametrize("text", ["", "-", " - ", "@nothing", "a..b"])
def test_an_invalid_order_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        parse_order(text)


@pytest.mark.parametrize(
    "condition",
    [
        Condition("@score", ">", "much"),
        Condition("@score", ">", value=True),
        Condition("price", "<", None),
        Condition("price", cast("Operator", "like"), 1),
        Condition("@data", "=", 1),
        Condition("@changed_at", ">", "yesterday"),
    ],
)
def test_a_condition_that_cannot_be_asked_is_refused(condition: Condition) -> None:
    with pytest.raises(BadOption):
        select_records(RecordQuery(where=(condition,)))


def test_the_same_query_can_be_asked_of_postgresql() -> None:
    query = RecordQuery(
        where=(parse_condition("price>1"), parse_condition("address.city~x")),
        order=(parse_order("-price"),),
        as_of=EPOCH,
    )

    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy types it not
    sql = str(select_records(query).compile(dialect=dialect))

    assert "json_typeof" in sql
    assert "json_type(" not in sql


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-01", 1793491200.0),
        ("2026-11-01T08:30", 1793521800.0),
        ("2026-11-01T08:30:00+02:00", 1793514600.0),
        ("2d", EPOCH - 172_800),
        ("1.5h", EPOCH - 5_400),
        ("30m", EPOCH - 1_800),
    ],
)
def test_a_time_is_a_date_or_a_duration_ago(text: str, seconds: float) -> None:
    assert parse_timestamp(text, option="--since", now=EPOCH) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "5", "d", "-2d", "9999999d"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(BadOption) as refused:
        parse_timestamp(text, option="--since", now=EPOCH)

    assert refused.value.option == "--since"
    assert repr(text) in refused.value.problem


# ---------------- Text search: records with the text as people see it

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
async def test_a_search_finds_records_with_the_text(
    full: Store, text: str, expected: list[str]
) -> None:
    assert [row["key"] for row in await full.records.list(RecordQuery(text=text))] == expected
    assert await full.records.count(RecordQuery(text=text)) == len(expected)


async def test_a_search_has_a_limit(full: Store) -> None:
    assert len(await full.records.list(RecordQuery(text="hat", limit=2))) == 2


async def test_a_search_goes_with_the_other_filters(full: Store) -> None:
    query = RecordQuery(text="hat", key="emoji")

    assert [row["key"] for row in await full.records.list(query)] == ["emoji"]
