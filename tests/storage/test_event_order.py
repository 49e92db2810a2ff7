"""Readers by cursor see every event once, in the order of the commits, whoever writes."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from sqlalchemy import delete

from longline.core.errors import BadOption
from longline.storage.database import Database
from longline.storage.events.events import EventFilter, event_row
from longline.storage.schema import events
from longline.storage.store import Store, open_store
from tests.storage.given import new_job
from tests.virtual import EPOCH

PROGRAM = Path(__file__).with_name("event_writers.py")
PROCESSES = 8
TRANSACTIONS = 125
EVENTS = 50
READERS = 3
EVERY = EventFilter()

Committed = dict[str, tuple[float, float]]
"""When the write of each transaction was called, and when it returned."""


async def read_until_done(address: str, done: asyncio.Event) -> list[str]:
    """Read by cursor while others write; return the keys in the order in which they were seen."""
    seen: list[str] = []
    cursor = 0
    with open_store(address) as store:
        while True:
            is_last = done.is_set()
            found, cursor = await store.events.read(cursor, EVERY, limit=1000)
            seen += [event.key or "" for event in found]
            if is_last and not found:
                return seen
            if not found:
                await asyncio.sleep(0.01)


async def write_and_read(address: str, *words: str) -> tuple[Committed, list[list[str]]]:
    done = asyncio.Event()
    readers = [asyncio.create_task(read_until_done(address, done)) for _ in range(READERS)]
    numbers = map(str, (PROCESSES, TRANSACTIONS, EVENTS))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), address, *numbers, *words),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    done.set()
    seen = await asyncio.gather(*readers)
    assert process.returncode == 0
    lines = (json.loads(line) for line in output.splitlines())
    return {name: (called, returned) for name, called, returned in lines}, seen


def transactions_of(seen: list[str]) -> list[str]:
    return [key.rpartition("-")[0] for key in seen[::EVENTS]]


def is_in_commit_order(order: list[str], committed: Committed) -> bool:
    """Return whether no transaction comes after one that was called when it had returned."""
    latest_call = 0.0
    for name in order:
        called, returned = committed[name]
        if returned < latest_call:
            return False
        latest_call = max(latest_call, called)
    return True


@pytest.mark.real_time
async def test_every_reader_sees_every_event_once_in_commit_order(
    store: Store, address: str
) -> None:
    del store  # creates the tables
    committed, seen = await write_and_read(address)

    first = seen[0]
    assert len(first) == len(set(first)) == PROCESSES * TRANSACTIONS * EVENTS
    assert seen == [first] * READERS
    assert is_in_commit_order(transactions_of(first), committed)


@pytest.mark.real_time
async def test_readers_miss_events_when_writers_take_no_turns(
    postgres_address: str,
) -> None:
    _, seen = await write_and_read(postgres_address, "no-turns")

    assert min(len(set(one)) for one in seen) < PROCESSES * TRANSACTIONS * EVENTS


async def test_a_deleted_event_gives_its_number_to_no_other(
    store: Store, database: Database
) -> None:
    await store.events.append(event_row(None, EPOCH, "custom.a"))
    cursor = await store.events.newest()
    await database.write(lambda connection: connection.execute(delete(events)).rowcount)

    await store.events.append(event_row(None, EPOCH, "custom.b"))

    found, _ = await store.events.read(cursor, EVERY)
    assert [event.type for event in found] == ["custom.b"]


async def test_a_cursor_passes_events_that_are_not_wanted(store: Store) -> None:
    learned = event_row("job", EPOCH, "limit.learned", domain="a.test", rate=2.0)
    await store.events.append(
        event_row("job", EPOCH, "job.created", source="shop", settings={}),
        learned,
        event_row("job", EPOCH, "job.complete", reason=None),
        learned,
    )

    found, cursor = await store.events.read(0, EventFilter(("job.*",)))
    domain, _ = await store.events.read(0, EventFilter(subject="domain/a.test"))

    assert [event.type for event in found] == ["job.created", "job.complete"]
    assert cursor == await store.events.newest()
    assert [event.subject for event in domain] == ["domain/a.test"] * 2


async def test_a_cursor_from_the_future_is_refused(store: Store) -> None:
    with pytest.raises(BadOption):
        await store.events.read(await store.events.newest() + 1, EVERY)


async def test_pruning_keeps_what_others_need(store: Store) -> None:
    ended = await store.jobs.create(new_job())
    await store.jobs.cancel(ended.id, EPOCH, "done")
    rows = [event_row(ended.id, EPOCH + n, "item.skipped", key=str(n)) for n in range(10)]
    await store.events.append(*rows)
    newest = await store.events.newest()
    await store.subscribers.add("slow", EVERY, EPOCH, newest - 3)
    running = await store.jobs.create(new_job())
    await store.events.append(event_row(running.id, EPOCH, "item.skipped", key="open"))

    steps = [await store.events.prune(before=EPOCH + 8, most=5) for _ in range(3)]

    found, _ = await store.events.read(0, EVERY)
    assert [(step.deleted, step.is_done) for step in steps] == [(3, False), (4, True), (0, True)]
    assert [event.key for event in found if event.type == "item.skipped"] == ["7", "8", "9", "open"]
    assert [event.type for event in found][:2] == ["job.created", "job.cancelled"]


async def test_pruning_keeps_the_newest(store: Store) -> None:
    rows = [event_row(None, EPOCH, "item.skipped", key=str(n)) for n in range(5)]
    await store.events.append(*rows)

    assert (await store.events.prune(max_count=2)).deleted == 3


async def test_old_events_are_deleted_in_steps(store: Store) -> None:
    rows = [event_row(None, EPOCH + n, "item.skipped", key=str(n)) for n in range(5)]
    await store.events.append(*rows)
    day = 86400.0

    deleted = [
        await store.events.prune_old(EPOCH + day + 2, max_days=1, max_count=None),
        await store.events.prune_old(EPOCH, max_days=None, max_count=1),
        await store.events.prune_old(EPOCH, max_days=None, max_count=None),
    ]

    assert deleted == [2, 2, 0]


async def test_a_pattern_selects_custom_types(store: Store) -> None:
    names = ("custom.a_b", "custom.axb", "custom.c")
    await store.events.append(*(event_row(None, EPOCH, name) for name in names))

    found, _ = await store.events.read(0, EventFilter(("custom.a_*", "job.*")))

    assert [event.type for event in found] == ["custom.a_b"]
