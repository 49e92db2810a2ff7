"""History: what records were, what changed in them, and when a field had which value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longline.core.errors import BadOption, UnknownRecord
from longline.core.json import diff_json, json_value_at
from longline.storage.query import RecordQuery
from longline.storage.records import History
from longline.storage.store import Store
from tests.storage.given import record
from tests.virtual import EPOCH

FLAT = [
    {"price": 100, "rooms": [2, 1], "address": {"city": "Bern", "floor": 3}},
    {"price": 90, "rooms": [2, 1], "address": {"city": "Bern", "floor": 3}},
    {"price": 90, "rooms": [2, 2], "address": {"city": "Bern"}, "sold": True},
]


@pytest.fixture
def history(store: Store) -> History:
    return store.history


@pytest.fixture
async def flat(store: Store) -> Store:
    """A flat of three versions, and one that never changed."""
    for number, data in enumerate(FLAT):
        flat = record("flat", data, fingerprint=str(number))
        await store.records.create(flat, at=EPOCH + 10 * number, job=f"job {number}")
    await store.records.create(record("still", {"price": 1}), at=EPOCH + 5)
    return store


def diffs_of(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one.as_dict() for one in diff_json(old, new)]


@pytest.mark.usefixtures("flat")
async def test_each_diff_has_the_fields_that_changed(history: History) -> None:
    first, second = await history.diff("flat")

    assert (first.older, first.newer, first.at, first.job) == (1, 2, EPOCH + 10, "job 1")
    assert [one.as_dict() for one in first.differences] == [
        {"field": "price", "old": 100, "new": 90}
    ]
    assert [one.as_dict() for one in second.differences] == [
        {"field": "rooms.1", "old": 1, "new": 2},
        {"field": "address.floor", "old": 3},
        {"field": "sold", "new": True},
    ]


@pytest.mark.usefixtures("flat")
async def test_two_distant_versions_are_compared(history: History) -> None:
    (step,) = await history.diff("flat", older=1, newer=3)
    (last,) = await history.diff("flat", newer=2)
    (from_first,) = await history.diff("flat", older=1)

    assert (step.older, step.newer, len(step.differences)) == (1, 3, 4)
    assert (last.older, last.newer) == (1, 2)
    assert (from_first.older, from_first.newer) == (1, 3)


@pytest.mark.usefixtures("flat")
async def test_a_record_that_never_changed_has_no_step(history: History) -> None:
    assert await history.diff("still") == []


@pytest.mark.usefixtures("flat")
async def test_a_version_that_there_is_not_is_refused(history: History) -> None:
    with pytest.raises(BadOption) as refused:
        await history.diff("flat", newer=4)

    assert refused.value.option == "version"
    assert re.findall(r"\d+", refused.value.problem) == ["4", "1", "3"]


async def test_an_unknown_record_has_no_history(history: History) -> None:
    with pytest.raises(UnknownRecord):
        await history.diff("nothing")
    with pytest.raises(UnknownRecord):
        await history.timeline("nothing", "price")


@pytest.mark.usefixtures("flat")
async def test_a_timeline_has_a_point_for_each_value(history: History) -> None:
    prices = await history.timeline("flat", "price")
    floors = await history.timeline("flat", "address.floor")

    assert [(one.version, one.since, one.until, one.value) for one in prices] == [
        (1, EPOCH, EPOCH + 10, 100),
        (2, EPOCH + 10, None, 90),
    ]
    assert [(one.version, one.value) for one in floors] == [(1, 3), (3, None)]


@pytest.mark.usefixtures("flat")
async def test_records_are_read_as_of_a_time(store: Store) -> None:
    then = list(store.records.stream(RecordQuery(as_of=EPOCH + 12)))
    cheap = list(store.records.stream(RecordQuery(as_of=EPOCH + 12, key="still")))

    assert [(row["key"], row["data"]["price"]) for row in then] == [("flat", 90), ("still", 1)]
    assert [row["key"] for row in cheap] == ["still"]


@pytest.mark.usefixtures("flat")
async def test_what_happened_since_is_one_step_a_record(history: History) -> None:
    steps = list(history.since(EPOCH + 5))

    assert [(step.key, step.older, step.newer) for step in steps] == [
        ("flat", 1, 3),
        ("still", None, 1),
    ]
    assert [step.key for step in history.since(EPOCH + 11)] == ["flat"]
    assert list(history.since(EPOCH + 21)) == []


async def test_an_unchanged_record_adds_nothing_to_its_history(
    store: Store, history: History
) -> None:
    for number in range(3):
        await store.records.create(record("1"), at=EPOCH + number, job=f"job {number}")

    assert await history.diff("1") == []
    assert len(await history.versions("1")) == 1
    assert len(await history.timeline("1", "title")) == 1


async def test_the_same_key_of_two_sources_has_two_histories(
    store: Store, history: History
) -> None:
    await store.records.create(record("1", {"n": 1}), at=EPOCH)
    await store.records.create(record("1", {"n": 2}, source="market"), at=EPOCH)
    await store.records.create(
        record("1", {"n": 3}, source="market", fingerprint="second"), at=EPOCH + 1
    )

    assert [one.value for one in await history.timeline("1", "n", source="market")] == [2, 3]
    assert [one.value for one in await history.timeline("1", "n", source="shop")] == [1]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, [{"field": "a", "old": 1, "new": 1.0}]),
        ({"a": 1}, {"a": True}, [{"field": "a", "old": 1, "new": True}]),
        ({"a": None}, {}, [{"field": "a", "old": None}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"field": "a", "old": [1], "new": [1, 2]}]),
        ({"a": {"b": 1}}, {"a": 2}, [{"field": "a", "old": {"b": 1}, "new": 2}]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, []),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, [{"field": "a.0.b", "old": 1, "new": 2}]),
    ],
)
def test_differences_have_a_path(
    old: dict[str, Any], new: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    assert diffs_of(old, new) == expected


def test_what_is_nested_without_end_is_compared_as_a_whole() -> None:
    old: dict[str, Any] = {"x": 1}
    new: dict[str, Any] = {"x": 2}
    for _ in range(200):
        old, new = {"x": old}, {"x": new}

    (one,) = diff_json(old, new)

    assert one.field.count(".") == 11


names = st.text("abc", min_size=1, max_size=2)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(names, values, max_size=4), st.dictionaries(names, values, max_size=4))
def test_every_difference_holds_the_values_of_both_sides(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    def at(data: dict[str, Any], field: str) -> Any:
        return json_value_at(
            data, tuple(int(step) if step.isdigit() else step for step in field.split("."))
        )

    found = diff_json(old, new)

    assert all(at(old, one.field) == one.values.get("old") for one in found)
    assert all(at(new, one.field) == one.values.get("new") for one in found)
    assert diff_json(old, old) == ()
    assert [one.field for one in diff_json(new, old)] == sorted(
        (one.field for one in found), key=[one.field for one in diff_json(new, old)].index
    )


async def test_a_version_names_the_job_that_made_it_not_who_saw_it_last(
    store: Store, history: History
) -> None:
    for number, price in enumerate([100, 100, 90, 90, 80]):
        hat = record("hat", {"price": price}, fingerprint=str(price))
        await store.records.create(hat, at=EPOCH + number, job=f"job {number}")
    await store.records.create(
        record("hat", {"price": 80}, fingerprint="80"), at=EPOCH + 9, job="job 9"
    )

    versions = await history.versions("hat")
    first, second = await history.diff("hat")

    assert [one.job for one in versions] == ["job 0", "job 2", "job 4"]
    assert (first.job, second.job) == ("job 2", "job 4")
    assert [step.job for step in history.since(EPOCH + 4)] == ["job 4"]
    assert (await store.records.get("hat"))["job_id"] == "job 9"


@pytest.mark.usefixtures("flat")
async def test_a_manual_edit_names_no_job(store: Store, history: History) -> None:
    await store.records.update("flat", {"price": 1}, at=EPOCH + 99)

    (step,) = await history.diff("flat", newer=4)

    assert step.job is None
    assert "job" not in step.as_dict()
