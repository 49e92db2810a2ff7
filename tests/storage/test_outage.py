"""A server that goes away: writers wait for it, and nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import StoreGone
from longline.core.model import ItemState, Usage
from longline.monitoring.log_store import follow_logs, storing_logs
from longline.storage.database import open_database
from longline.storage.monitoring.logs import LogFilter
from longline.storage.query import RecordQuery
from longline.storage.store import Store, open_store
from tests.servers import PostgresServer, postgres_running
from tests.storage.cutting_proxy import Cut, CuttingProxy, proxy_to
from tests.storage.given import complete, leased, new_job, queued, record, stored
from tests.virtual import EPOCH

pytestmark = pytest.mark.real_time
NUMBERS = count(1)


@pytest.fixture(scope="module")
def mortal(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server that these tests may kill; other tests have another."""
    del postgres  # where there is none, these tests are skipped too
    with postgres_running() as server:
        yield server


@pytest.fixture
def name(mortal: PostgresServer) -> str:
    name = f"mortal_{next(NUMBERS)}"
    mortal.execute(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def outlasting(mortal: PostgresServer, name: str) -> Iterator[Store]:
    with open_store(mortal.url(name)) as store:
        yield store


@pytest.fixture
def proxy(mortal: PostgresServer) -> Iterator[CuttingProxy]:
    with proxy_to(mortal.port) as proxy:
        yield proxy


@pytest.fixture
def cut_off(proxy: CuttingProxy, mortal: PostgresServer, name: str) -> Iterator[Store]:
    """A store whose way to the server can be cut."""
    with open_store(mortal.url(name).replace(str(mortal.port), str(proxy.port))) as store:
        yield store


def reborn(server: PostgresServer) -> None:
    """Kill the server and start it again."""
    server.kill()
    server.start()


async def work_off(store: Store, job: Any, done: asyncio.Queue[str]) -> None:
    while leases := await leased(store, job, 3):
        ends = [stored(lease, usage=Usage(requests=1)) for lease in leases]
        states = await asyncio.gather(*(complete(store, end) for end in ends))
        for state in states:
            done.put_nowait(state)


async def test_a_server_killed_among_writes_loses_and_doubles_nothing(
    outlasting: Store, mortal: PostgresServer
) -> None:
    job = await queued(outlasting, *(str(number) for number in range(300)), is_last=True)
    done: asyncio.Queue[str] = asyncio.Queue()
    workers = [asyncio.create_task(work_off(outlasting, job, done)) for _ in range(4)]
    begun = [await done.get() for _ in range(20)]

    await asyncio.to_thread(reborn, mortal)
    await asyncio.gather(*workers)

    assert done.qsize() + len(begun) == 300
    assert (await outlasting.queue.counts(job.id))[ItemState.STORED] == 300
    assert await outlasting.records.count() == 300
    assert (await outlasting.events.statistics(job.id))["requests"] == 300
    events = await outlasting.events.list(job.id, types=["item.stored"])
    assert len({event.key for event in events}) == len(events) == 300


async def test_log_lines_do_not_wait_for_a_lost_server(
    outlasting: Store, mortal: PostgresServer
) -> None:
    settings = Settings(home=Path("nowhere"))
    with storing_logs(outlasting, settings, SystemClock()) as handler:
        mortal.kill()
        writing = asyncio.create_task(outlasting.events.append())
        while not outlasting.logs.is_away:  # noqa: ASYNC110  # a thread notices it
            await asyncio.sleep(0.01)
        logging.getLogger("longline.test").warning("meanwhile")

        assert handler.pass_on() is None

        mortal.start()
        await writing
        line = await anext(follow_logs(outlasting.logs, SystemClock(), LogFilter(), 0))
        assert (line.message, handler.dropped) == ("meanwhile", 0)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
async def test_a_commit_whose_answer_is_lost_counts_once(
    cut_off: Store, proxy: CuttingProxy, cut: Cut
) -> None:
    job = await cut_off.jobs.create(new_job())
    proxy.cut = cut

    await cut_off.events.add_statistics(job.id, {"requests": 1})

    assert proxy.cuts == 1
    assert await cut_off.events.statistics(job.id) == {"requests": 1}


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
async def test_an_answer_is_the_same_whether_the_commit_was_lost_or_not(
    cut_off: Store, proxy: CuttingProxy, cut: Cut
) -> None:
    proxy.cut = cut

    is_new = await cut_off.records.create(record("1"), at=EPOCH)

    assert proxy.cuts == 1
    assert is_new
    assert [row["version"] for row in await cut_off.records.list(RecordQuery())] == [1]


async def test_readers_wait_for_the_server_too(outlasting: Store, mortal: PostgresServer) -> None:
    await outlasting.records.create(record("1"), at=EPOCH)
    mortal.kill()

    counting = asyncio.create_task(outlasting.records.count())
    streaming = asyncio.to_thread(lambda: list(outlasting.records.stream(RecordQuery())))
    await asyncio.to_thread(mortal.start)

    assert await counting == 1
    assert len(await streaming) == 1


async def test_a_server_that_does_not_come_back_fails_all_who_wait(
    mortal: PostgresServer, name: str
) -> None:
    database = open_database(mortal.url(name), timeout=0.3)
    store = Store(database)
    await asyncio.to_thread(mortal.kill)

    tries = [store.records.create(record(str(n)), at=EPOCH) for n in range(5)]
    answers = await asyncio.gather(*tries, store.records.count(), return_exceptions=True)
    first = answers[0]
    await asyncio.to_thread(mortal.start)

    assert [type(answer) for answer in answers] == [StoreGone] * 6
    assert isinstance(first, StoreGone)
    assert first.exit_code == 4
    assert first.seconds <= 0.3
    assert await store.records.count() == 0
    assert await store.records.create(record("1"), at=EPOCH)
    database.close()


async def test_two_who_wait_for_each_other_are_both_served(
    mortal: PostgresServer, name: str
) -> None:
    both_hold_one = threading.Barrier(2)
    attempts: list[str] = []

    def change(connection: Connection, keys: tuple[str, str]) -> None:
        attempts.append(keys[0])
        connection.execute(text("SET LOCAL deadlock_timeout = '20ms'"))
        change = text("UPDATE statistics SET value = value + 1 WHERE name = :name")
        connection.execute(change, {"name": keys[0]})
        both_hold_one.wait(10) if len(attempts) <= 2 else None
        connection.execute(change, {"name": keys[1]})

    one, other = open_database(mortal.url(name)), open_database(mortal.url(name))
    await Store(one).events.add_statistics("job", {"a": 0, "b": 0})

    await asyncio.gather(one.write(change, ("a", "b")), other.write(change, ("b", "a")))

    assert len(attempts) == 3
    assert await Store(one).events.statistics("job") == {"a": 2, "b": 2}
    one.close()
    other.close()
