"""Queries find the same in both databases: odd names, numbers and characters."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from longline.core.errors import BadOption
from longline.core.model import Item
from longline.storage.database import open_database
from longline.storage.matches import BlockedRecord
from longline.storage.query import RecordQuery, parse_condition, parse_order
from longline.storage.queue.enqueue import Discovered
from longline.storage.store import Store
from tests.export.sample_answers import answered, asked
from tests.storage.given import item, leased, new_job, queued, record
from tests.virtual import EPOCH

ODD: dict[str, dict[str, Any]] = {
    "paths": {
        "k{}": 1,
        "x,y": 2,
        "NULL": 3,
        "back\\slash": 4,
        "it's": {"a b": 5},
        "reactions": {"+1": 6, "-1": 7},
        "codes": {"0": "zero", "007": "bond"},
        "list": ["a", "b", "c"],
    },
    "numbers": {"n": 18446744073709551615, "sold": True},
    "text": {"title": "a\x00b", "n": "7", "sold": "true"},
    "Words": {"title": "Éclair", "n": 1e20, "sold": False},
}

CONDITIONS: dict[str, list[str]] = {
    "k{}=1": ["paths"],
    "x,y=2": ["paths"],
    "NULL=3": ["paths"],
    "back\\slash=4": ["paths"],
    "it's.a b=5": ["paths"],
    "reactions.+1=6": ["paths"],
    "reactions.-1=7": ["paths"],
    "codes.0=zero": ["paths"],
    "codes.007=bond": ["paths"],
    "list.1=b": ["paths"],
    "list.9223372036854775808=a": [],
    "n>1e19": ["numbers", "Words"],
    "n<1e400": [],
    "sold=true": ["numbers"],
    "sold!=true": ["text", "Words"],
    "title~é": ["Words"],
    'title~"\\u0000"': ["text"],
    'title="a\\u0000b"': ["text"],
    '@key~"\\u0000"': [],
    '@key="a\\u0000"': [],
    "@version<99999999999": list(ODD),
    "@version=1.5": [],
    "@version!=1.5": list(ODD),
    "@id<1e300": list(ODD),
    "@key>a": ["paths", "numbers", "text"],
}
ORDERS: dict[str, list[str]] = {
    "@key": ["Words", "numbers", "paths", "text"],
    "-title": ["Words", "text", "paths", "numbers"],
    "codes.0": ["paths", "numbers", "text", "Words"],
}


@pytest.fixture
async def odd(store: Store) -> Store:
    for key, data in ODD.items():
        await store.records.create(record(key, data), at=EPOCH)
    return store


async def found(store: Store, **query: Any) -> list[str]:
    return [row["key"] for row in await store.records.list(RecordQuery(**query))]


async def test_a_condition_finds_the_same(odd: Store) -> None:
    parsed = {one: (parse_condition(one),) for one in CONDITIONS}

    assert {one: await found(odd, where=parsed[one]) for one in parsed} == CONDITIONS
    then = {one: await found(odd, where=parsed[one], as_of=EPOCH + 1) for one in parsed}
    assert then == CONDITIONS


async def test_an_order_is_the_same(odd: Store) -> None:
    assert {one: await found(odd, order=(parse_order(one),)) for one in ORDERS} == ORDERS


async def test_unstorable_characters_are_searched_for_as_they_were_stored(odd: Store) -> None:
    assert await found(odd, text="A\x00B") == ["text"]
    assert await found(odd, key="a\x00") == []


async def test_bytes_that_are_not_text_are_not_found(odd: Store) -> None:
    assert await found(odd, text="\udcff") == []
    assert await found(odd, key="\udcff") == []


async def test_a_count_may_be_larger_than_databases_count(odd: Store) -> None:
    assert await found(odd, limit=2**64) == list(ODD)
    assert await found(odd, offset=2**64) == []
    with pytest.raises(BadOption, match="limit"):
        await found(odd, limit=-1)


async def test_an_edit_that_cannot_be_stored_is_refused(odd: Store) -> None:
    with pytest.raises(BadOption, match="changes"):
        await odd.records.update("paths", {"n": 2**64}, at=EPOCH + 1)
    with pytest.raises(BadOption, match="changes"):
        await odd.records.update("paths", {"n": "\ud800"}, at=EPOCH + 1)
    with pytest.raises(BadOption, match=r"\bn\b.*\bbytes\b"):
        await odd.records.update("paths", {"n": b"7"}, at=EPOCH + 1)


async def test_an_answer_is_read_as_it_was_given(odd: Store) -> None:
    await answered(odd, "paths", 7)
    await answered(odd, "numbers", -2.5)
    await answered(odd, "text", "7")
    await answered(odd, "Words", {"n": 7})

    rows = odd.records.stream(RecordQuery(), size=1, with_enrichments=True)

    assert [row["enrichments"][0]["answer"] for row in rows] == [7, -2.5, "7", {"n": 7}]


async def test_a_key_may_be_longer_than_an_index_takes(store: Store) -> None:
    # Such as an address with a session in it; what is random cannot be packed.
    noise = "".join(hashlib.sha512(bytes([number])).hexdigest() for number in range(90))
    long = [Item(f"{noise}{end}", f"https://{noise}.test/", 2**40) for end in "äb"]
    job = await store.jobs.create(new_job())
    await store.jobs.start(job.id, EPOCH)

    count = await store.queue.enqueue(Discovered(job.id, [*long, *long], EPOCH, limit=9))
    again = await store.queue.enqueue(Discovered(job.id, long, EPOCH, is_last=True))
    (lease, _) = await leased(store, job, 2)
    await store.records.create(record(long[0].key), at=EPOCH)
    is_changed = await store.records.create(record(lease.item.key), at=EPOCH)

    assert (count, again, is_changed) == (2, 2, False)
    assert lease.item.key.startswith(noise[:1900])
    assert (await store.records.get(long[0].key))["key"] == lease.item.key


async def test_a_key_with_a_nul_is_found_again(store: Store) -> None:
    job = await queued(store, "a\x00b")

    assert await store.queue.enqueue(Discovered(job.id, [item("a\x00b")], EPOCH, is_last=True)) == 1
    assert await store.records.create(record("a\x00b"), at=EPOCH)
    assert not await store.records.create(record("a\x00b"), at=EPOCH)
    assert (await store.records.get("a\x00b"))["key"] == "a\ufffdb"


async def test_blocks_may_be_longer_than_an_index_takes(odd: Store) -> None:
    noise = "".join(hashlib.sha512(bytes([number])).hexdigest() for number in range(90))
    entry = BlockedRecord(1, 1, frozenset({noise}), 2)

    await odd.matches.assign_blocks("things", "mark", [entry])

    assert await odd.matches.block_members("things", "mark", [noise, "other"]) == {noise: [1]}


async def test_a_question_that_another_is_about_to_take_is_not_waited_for(
    postgres_address: str,
) -> None:
    database = open_database(postgres_address, timeout=1.0)
    store = Store(database)
    await store.records.create(record("a"), at=EPOCH)
    first = await asked(store, "a")
    engine = create_engine(postgres_address)
    with engine.begin() as other:
        other.execute(text("SELECT id FROM questions FOR UPDATE"))
        second = await asked(store, "a", version="v4")

        taken = await store.questions.lease("moods", "me", at=EPOCH, until=EPOCH + 9)

    engine.dispose()
    database.close()
    assert taken is not None
    assert (taken.id, first.id) == (second.id, "moods v3 about a 1")
