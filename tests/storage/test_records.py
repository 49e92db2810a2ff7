"""Records: one row each, a row for each version before, and the same answer however it is asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from longline.core.errors import UnknownRecord
from longline.core.model import Outcome, OutcomeAction, Quality
from longline.storage.query import RecordQuery
from longline.storage.store import Store
from tests.storage.given import attempt, complete, leased, queued, record, stored
from tests.virtual import EPOCH


async def filled(store: Store, count: int, *, source: str = "shop") -> None:
    for number in range(count):
        await store.records.create(
            record(str(number), source=source, score=number * 10.0), at=EPOCH + number, job="job 1"
        )


async def keys(store: Store, query: RecordQuery) -> list[str]:
    return [row["key"] for row in await store.records.list(query)]


async def test_a_new_record_is_stored_with_its_provenance(store: Store) -> None:
    made = record("1", {"title": "Größe 42", "sizes": [40, 42], "price": None}, score=83.5)

    assert await store.records.create(made, at=EPOCH, job="job 1")

    row = await store.records.get("1")
    assert row["data"] == {"title": "Größe 42", "sizes": [40, 42], "price": None}
    assert (row["version"], row["score"], row["grade"]) == (1, 83.5, "Good")
    assert {row["first_seen_at"], row["changed_at"], row["seen_at"]} == {EPOCH}
    assert row["about"]["notes"] == [{"field": "price", "text": "sold out"}]
    assert row["about"]["provenance"] == {"title": "page"}
    assert row["about"]["quality"]["parts"][0]["reasons"] == ["no price"]


async def test_an_unchanged_record_gets_no_new_version(store: Store) -> None:
    await store.records.create(record("1"), at=EPOCH, job="job 1")

    assert not await store.records.create(record("1"), at=EPOCH + 5, job="job 2")

    row = await store.records.get("1")
    assert (row["version"], row["changed_at"], row["seen_at"]) == (1, EPOCH, EPOCH + 5)
    assert (row["first_seen_at"], row["job_id"]) == (EPOCH, "job 2")
    assert await store.records.versions("1") == []


async def test_what_changes_all_the_time_is_refreshed_without_a_new_version(store: Store) -> None:
    await store.records.create(record("1", {"title": "Hat", "views": 10}), at=EPOCH)

    await store.records.create(record("1", {"title": "Hat", "views": 99}), at=EPOCH + 1)

    row = await store.records.get("1")
    assert (row["version"], row["data"]["views"]) == (1, 99)


async def test_a_changed_record_leaves_its_old_version_behind(store: Store) -> None:
    await store.records.create(record("1", {"title": "Hat"}, score=50.0), at=EPOCH, job="job 1")

    changed = record("1", {"title": "Cap"}, fingerprint="second")
    assert await store.records.create(changed, at=EPOCH + 5, job="job 2")

    row = await store.records.get("1")
    assert (row["version"], row["data"], row["first_seen_at"]) == (2, {"title": "Cap"}, EPOCH)
    assert row["changed_at"] == EPOCH + 5
    (old,) = await store.records.versions("1")
    assert (old["version"], old["data"], old["job_id"]) == (1, {"title": "Hat"}, "job 1")
    assert (old["since"], old["until"]) == (EPOCH, EPOCH + 5)
    assert (old["score"], old["fingerprint"]) == (50.0, "first")


async def test_versions_follow_each_other_without_a_gap(store: Store) -> None:
    changes = [record("1", {"n": n}, fingerprint=str(n)) for n in range(4)]
    assert [await store.records.create(one, at=EPOCH + one.data["n"]) for one in changes] == [
        True
    ] * 4

    old = await store.records.versions("1")

    assert [(row["version"], row["data"]["n"]) for row in old] == [(1, 0), (2, 1), (3, 2)]
    assert [(row["since"], row["until"]) for row in old] == [
        (EPOCH + n, EPOCH + n + 1) for n in range(3)
    ]


async def test_records_that_change_together_each_keep_their_own_time(store: Store) -> None:
    await asyncio.gather(*(store.records.create(record(key), at=EPOCH) for key in "ab"))
    job = await queued(store, "a", "b")
    leases = await leased(store, job, 2)
    for_each = (
        attempt(
            lease,
            Outcome(OutcomeAction.STORE, record(lease.item.key, {}, fingerprint="second")),
            EPOCH + 10 + number,
        )
        for number, lease in enumerate(leases)
    )

    await asyncio.gather(*(complete(store, finish) for finish in for_each))

    ends = [(await store.records.versions(key))[0]["until"] for key in "ab"]
    assert ends == [EPOCH + 10, EPOCH + 11]


async def test_the_same_key_twice_in_one_transaction_is_two_versions(store: Store) -> None:
    job = await queued(store, "a")
    other = await queued(store, "a")
    (lease,), (again,) = await leased(store, job), await leased(store, other)
    cap = record("a", {"title": "Cap"}, fingerprint="second")
    changed = Outcome(OutcomeAction.STORE, cap)

    states = await asyncio.gather(
        complete(store, stored(lease)),
        complete(store, attempt(again, changed, EPOCH + 1)),
    )

    assert list(states) == ["stored", "stored"]
    assert (await store.records.get("a"))["version"] == 2
    assert await store.records.count() == 1


async def test_a_manual_edit_is_a_version_and_the_next_run_is_one_too(store: Store) -> None:
    await store.records.create(record("1", {"title": "Hat", "price": 5}), at=EPOCH)

    row = await store.records.update("1", {"price": 7, "note": "called"}, at=EPOCH + 1)
    is_changed = await store.records.create(record("1", {"title": "Hat", "price": 5}), at=EPOCH + 2)

    assert row["data"] == {"title": "Hat", "price": 7, "note": "called"}
    assert (row["version"], row["changed_at"]) == (2, EPOCH + 1)
    assert is_changed
    assert [old["data"].get("price") for old in await store.records.versions("1")] == [5, 7]


async def test_edits_at_the_same_time_are_all_kept(store: Store) -> None:
    await store.records.create(record("1", {"title": "Hat"}), at=EPOCH)

    await asyncio.gather(
        *(store.records.update("1", {f"field {n}": n}, at=EPOCH + n) for n in range(8))
    )

    row = await store.records.get("1")
    assert row["version"] == 9
    assert len(row["data"]) == 9


async def test_an_unknown_record_is_named_by_its_key(store: Store) -> None:
    await store.records.create(record("1"), at=EPOCH)

    for_each = (
        store.records.get("2"),
        store.records.get("1", source="market"),
        store.records.update("2", {}, at=EPOCH),
        store.records.versions("2"),
    )
    answers = await asyncio.gather(*for_each, return_exceptions=True)

    assert [type(answer) for answer in answers] == [UnknownRecord] * 4


async def test_the_same_key_of_two_sources_is_two_records(store: Store) -> None:
    await store.records.create(record("1"), at=EPOCH)
    await store.records.create(record("1", {"title": "Fish"}, source="market"), at=EPOCH)

    await store.records.update("1", {"fresh": True}, at=EPOCH, source="market")

    assert (await store.records.get("1", source="shop"))["data"] == {"title": "Thing 1"}
    fish = await store.records.get("1", source="market")
    assert fish["data"] == {"title": "Fish", "fresh": True}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (RecordQuery(), ["0", "1", "2", "3", "0"]),
        (RecordQuery(source="market"), ["0"]),
        (RecordQuery(job="job 1"), ["0", "1", "2", "3", "0"]),
        (RecordQuery(job="job 2"), []),
        (RecordQuery(key="2"), ["2"]),
        (RecordQuery(min_score=20), ["2", "3"]),
        (RecordQuery(grade="Good"), []),
        (RecordQuery(since=EPOCH + 2), ["2", "3"]),
        (RecordQuery(limit=2), ["0", "1"]),
        (RecordQuery(limit=2, offset=3), ["3", "0"]),
        (RecordQuery(source="shop", min_score=10, since=EPOCH + 1, limit=1), ["1"]),
    ],
)
async def test_list_count_and_stream_agree_on_a_query(
    store: Store, query: RecordQuery, expected: list[str]
) -> None:
    await filled(store, 4)
    await filled(store, 1, source="market")

    assert await keys(store, query) == expected
    assert await store.records.count(query) == len(expected)
    assert [row["key"] for row in store.records.stream(query, size=2)] == expected


@pytest.mark.parametrize("size", [1, 3, 7, 8, 500])
async def test_a_stream_in_pages_is_the_same_as_the_list(store: Store, size: int) -> None:
    await filled(store, 7)

    assert list(store.records.stream(RecordQuery(), size=size)) == await store.records.list(
        RecordQuery()
    )


async def test_a_stream_is_a_snapshot_whatever_is_stored_while_it_runs(store: Store) -> None:
    await filled(store, 3)
    stream = store.records.stream(RecordQuery(), size=2)

    first = next(stream)
    await store.records.create(record("new"), at=EPOCH)

    assert [row["key"] for row in [first, *stream]] == ["0", "1", "2"]
    assert await store.records.count() == 4


async def test_the_scores_of_some_records(store: Store) -> None:
    await filled(store, 4)
    await store.records.create(record("x"), at=EPOCH)

    scores = await store.records.scores("shop", ["1", "3", "x", "absent"])

    assert scores == {"1": 10.0, "3": 30.0, "x": None}


async def test_statistics_are_by_source(store: Store) -> None:
    await filled(store, 3)
    await store.records.create(record("1", source="market"), at=EPOCH + 9)
    great = replace(record("9"), quality=Quality(96.0, "Excellent"))
    await store.records.create(great, at=EPOCH + 4)

    assert await store.records.statistics() == [
        {
            "source": "market",
            "records": 1,
            "mean_score": None,
            "last_seen_at": EPOCH + 9,
            "grades": {"unscored": 1},
        },
        {
            "source": "shop",
            "records": 4,
            "mean_score": 31.5,
            "last_seen_at": EPOCH + 4,
            "grades": {"Poor": 3, "Excellent": 1},
        },
    ]


async def test_an_empty_store_has_empty_answers(store: Store) -> None:
    assert await store.records.list(RecordQuery()) == []
    assert list(store.records.stream(RecordQuery())) == []
    assert await store.records.statistics() == []
    assert await store.records.count() == 0
