"""Stored log lines: search, order, limits and retention."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from longline.storage.monitoring.logs import NOT_STORED, LogFilter, LogLine
from longline.storage.store import Store, open_store
from tests.storage.given import new_job

ALL = LogFilter()


async def add(store: Store, *lines: LogLine, max_per_job: int | None = 1000) -> None:
    await asyncio.wrap_future(store.logs.add_soon(lines, max_per_job=max_per_job))


def line(number: int = 1, **more: Any) -> LogLine:
    values = {"at": float(number), "level": logging.WARNING, "logger": "longline.test", **more}
    return LogLine(**{"message": f"line {number}", **values})


async def messages(store: Store, wanted: LogFilter = ALL, limit: int = 100) -> list[str]:
    found, _ = await store.logs.search(wanted, limit=limit)
    return [one.message for one in found]


async def test_a_line_is_read_back_as_it_was_stored(store: Store) -> None:
    stored = line(
        exception="Traceback",
        job="shop-1",
        source="shop",
        domain="a.test",
        item="7",
        flow="f-1",
        worker="host-1",
        fields={"status": 503, "urls": ["https://a.test/"]},
    )

    await add(store, stored)

    (found,), cursor = await store.logs.search(ALL)
    assert found.id == cursor
    assert found == LogLine(
        **{name: getattr(stored, name) for name in LogLine.__slots__ if name != "id"}, id=cursor
    )


async def test_odd_text_is_stored(store: Store) -> None:
    await add(store, line(message="a\x00\ud800", item="k\x00" * 5000, fields={"a": "\x00\ud800"}))

    (found,), _ = await store.logs.search(LogFilter(item="k\x00" * 5000))

    assert "\x00" not in found.message + str(found.fields) + str(found.item)


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (LogFilter(job="shop-1"), [1]),
        (LogFilter(source="shop"), [1, 2]),
        (LogFilter(level=logging.ERROR), [3]),
        (LogFilter(text="LEASE of Ü"), [4]),
        (LogFilter(text="100%"), []),
        (LogFilter(text="deep"), [2, 5]),
        (LogFilter(domain="a.test"), [2]),
        (LogFilter(item="7"), [1]),
        (LogFilter(since=2.0, until=4.0), [2, 3]),
        (LogFilter(source="shop", level=logging.ERROR), []),
    ],
)
async def test_lines_are_found_by_what_they_contain(
    store: Store, wanted: LogFilter, numbers: list[int]
) -> None:
    await add(
        store,
        line(1, job="shop-1", source="shop", item="7"),
        line(2, source="shop", domain="a.test", exception="deep below"),
        line(3, level=logging.ERROR),
        line(4, message="the lease of ü"),
        line(5, fields={"where": "Deep"}),
    )

    found, _ = await store.logs.search(wanted)

    assert [int(one.at) for one in found] == numbers


async def test_lines_of_a_job_are_found_by_its_source(store: Store) -> None:
    job = await store.jobs.create(new_job(source="shop"))
    await add(store, line(1, job=job.id))

    assert await messages(store, LogFilter(source="shop")) == ["line 1"]


async def test_the_newest_lines_are_returned_oldest_first(store: Store) -> None:
    await add(store, *(line(number) for number in range(1, 6)))

    assert await messages(store, limit=2) == ["line 4", "line 5"]


async def test_a_reader_gets_every_line_once(store: Store, address: str) -> None:
    with open_store(address) as other:
        _, cursor = await store.logs.search(ALL)
        adding = [add(one, line(number)) for number in range(20) for one in (store, other)]
        seen: list[int] = []

        async with asyncio.TaskGroup() as group:
            for one in adding:
                group.create_task(one)
            while len(seen) < len(adding):
                found, cursor = await store.logs.read(cursor, ALL, limit=3)
                seen += [one.id for one in found]

    assert len(set(seen)) == len(adding)
    assert seen == sorted(seen)


async def test_a_job_has_a_limited_number_of_lines(store: Store, address: str) -> None:
    with open_store(address) as other:
        own = [line(number, job="shop-1", source="shop") for number in range(8)]
        await add(store, *own[:2], line(9), max_per_job=3)
        await add(other, *own[2:5], max_per_job=3)
        await add(store, *own[5:], line(10), max_per_job=3)

    found, _ = await store.logs.search(LogFilter(job="shop-1"))
    last = found.pop()
    assert [one.at for one in found] == [0.0, 1.0, 2.0]
    assert (last.logger, last.fields, last.at) == (NOT_STORED, {"not_stored": 5}, 7.0)
    assert await messages(store, LogFilter(since=9.0)) == ["line 9", "line 10"]


async def test_old_lines_are_deleted(store: Store) -> None:
    day = 86400.0
    await add(store, *(line(at=number * day) for number in range(10)))

    deleted = await store.logs.prune_old(10 * day, max_days=4.5, max_count=None)

    found, _ = await store.logs.search(ALL)
    assert (deleted, [one.at / day for one in found]) == (6, [6, 7, 8, 9])


async def test_only_the_newest_lines_are_kept(store: Store) -> None:
    await add(store, *(line(number) for number in range(10)))

    deleted = await store.logs.prune_old(0.0, max_days=None, max_count=3)

    assert (deleted, await messages(store)) == (7, ["line 7", "line 8", "line 9"])


async def test_nothing_is_deleted_without_limits(store: Store) -> None:
    await add(store, line())

    assert await store.logs.prune_old(1e12, max_days=None, max_count=None) == 0
