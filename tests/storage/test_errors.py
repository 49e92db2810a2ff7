"""A full disk and a lock held by others are reported, and nothing committed is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from longline.core.errors import StoreBusy, StoreDamaged, StoreFull
from longline.core.model import ItemState
from longline.storage.database import Database, open_database
from longline.storage.query import RecordQuery
from longline.storage.store import Store, open_store
from tests.storage.given import complete, leased, queued, record, stored
from tests.virtual import EPOCH

LARGE = {"title": "x" * 20_000}


@pytest.fixture
def address(sqlite_address: str) -> str:
    return sqlite_address


@pytest.fixture
def hasty(store: Store, address: str) -> Iterator[Store]:
    """The same file, opened by someone who does not wait."""
    del store
    database = open_database(address, timeout=0)
    yield Store(database)
    database.close()


@pytest.fixture
def lock(path: Path, hasty: Store) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of the file, as another process would."""
    del hasty  # opening the file needs the lock briefly
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


async def grow_by(database: Database, pages: int | None) -> None:
    """Let the file grow by at most this many pages, as a disk with that much room would."""

    def limit(connection: Connection) -> None:
        used: Any = connection.exec_driver_sql("PRAGMA page_count").scalar()
        most = 2**30 if pages is None else used + pages
        connection.exec_driver_sql(f"PRAGMA max_page_count={most}")

    await database.write(limit)


async def test_a_full_disk_is_reported_and_loses_nothing(
    database: Database, store: Store, path: Path
) -> None:
    await grow_by(database, pages=30)
    tries = [store.records.create(record(str(n), LARGE), at=EPOCH) for n in range(20)]

    answers = await asyncio.gather(*tries, return_exceptions=True)

    kept = [str(n) for n, answer in enumerate(answers) if answer is True]
    errors = [answer for answer in answers if isinstance(answer, StoreFull)]
    assert 0 < len(kept) < 20
    assert len(kept) + len(errors) == 20
    assert str(path) in str(errors[0])
    assert [row["key"] for row in await store.records.list(RecordQuery())] == kept


async def test_once_there_is_room_again_work_goes_on(database: Database, store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    await grow_by(database, pages=0)
    large = [store.records.create(record(str(n), LARGE), at=EPOCH) for n in range(3)]
    full = await asyncio.gather(*large, return_exceptions=True)

    await grow_by(database, pages=None)

    assert any(isinstance(answer, StoreFull) for answer in full)
    assert await complete(store, stored(lease)) == ItemState.STORED


async def test_a_lock_held_for_too_long_is_reported(hasty: Store, lock: sqlite3.Connection) -> None:
    with pytest.raises(StoreBusy) as raised:
        await hasty.records.create(record("1"), at=EPOCH)
    lock.execute("ROLLBACK")

    assert raised.value.seconds == 0
    assert raised.value.exit_code == 4
    assert await hasty.records.create(record("1"), at=EPOCH)


@pytest.mark.usefixtures("lock")
async def test_readers_do_not_wait_for_the_lock(hasty: Store) -> None:
    assert await hasty.records.count() == 0
    assert list(hasty.records.stream(RecordQuery())) == []


@pytest.mark.usefixtures("lock")
def test_a_file_that_is_locked_while_it_is_opened_is_busy_not_broken(address: str) -> None:
    with pytest.raises(StoreBusy):
        open_database(address, timeout=0)


async def test_a_write_waits_for_others_until_its_timeout(
    store: Store, lock: sqlite3.Connection
) -> None:
    writing = asyncio.create_task(store.records.create(record("1"), at=EPOCH))
    await asyncio.sleep(0)
    lock.execute("COMMIT")

    assert await writing


async def test_a_closed_store_says_so(address: str) -> None:
    with open_store(address) as store:
        pass

    with pytest.raises(RuntimeError, match="closed"):
        await store.records.create(record("1"), at=EPOCH)


async def test_a_value_that_is_not_json_is_reported_as_damage(
    database: Database, store: Store, path: Path
) -> None:
    await store.records.create(record("1"), at=EPOCH)
    await database.write(
        lambda connection: connection.exec_driver_sql("UPDATE records SET data = '{'")
    )

    with pytest.raises(StoreDamaged) as raised:
        await store.records.list(RecordQuery())

    assert str(path) in str(raised.value)
