"""One thread writes: what waits shares a transaction, and each caller gets its own answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import IntegrityError

from longline.core.errors import StoreBusy
from longline.storage.database import Database, Writer


class Transactions:
    """Real transactions that are counted, and that wait to be committed while the door is shut."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.count = 0
        self.at_the_door = threading.Event()
        self.door = threading.Event()
        self.door.set()

    def __call__(self, work: Callable[[Connection], Any]) -> Any:
        self.count += 1
        with self._engine.begin() as connection:
            result = work(connection)
            self.at_the_door.set()
            self.door.wait()
            return result


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE rows (n INTEGER PRIMARY KEY)")
    connection.close()
    return path


@pytest.fixture
def transactions(file: Path) -> Iterator[Transactions]:
    engine = create_engine(f"sqlite:///{file}")
    yield Transactions(engine)
    engine.dispose()


@pytest.fixture
def writer(transactions: Transactions) -> Iterator[Writer]:
    writer = Writer(transactions)
    yield writer
    transactions.door.set()
    writer.shutdown()
    writer.has_ended(None)


def add(connection: Connection, number: int) -> int:
    connection.exec_driver_sql("INSERT INTO rows VALUES (?)", (number,))
    return number


def rows(file: Path) -> list[int]:
    connection = sqlite3.connect(file)
    found = [number for (number,) in connection.execute("SELECT n FROM rows ORDER BY n")]
    connection.close()
    return found


def shut(transactions: Transactions, writer: Writer) -> None:
    """Keep the writer busy with a write of 0 until the door is opened."""
    transactions.door.clear()
    writer.submit(add, 0)
    transactions.at_the_door.wait()


def test_writes_that_wait_share_a_transaction(
    transactions: Transactions, writer: Writer, file: Path
) -> None:
    shut(transactions, writer)
    futures = [writer.submit(add, number) for number in range(1, 101)]

    transactions.door.set()

    assert [future.result() for future in futures] == list(range(1, 101))
    assert transactions.count == 2  # the one at the door, and one for all the others
    assert len(rows(file)) == 101


def test_a_write_that_fails_does_not_fail_its_neighbours(
    transactions: Transactions, writer: Writer, file: Path
) -> None:
    shut(transactions, writer)
    before, twice, after = (writer.submit(add, number) for number in (1, 0, 2))

    transactions.door.set()

    assert isinstance(twice.exception(), IntegrityError)
    assert (before.result(), after.result()) == (1, 2)
    assert rows(file) == [0, 1, 2]


def test_a_future_is_done_only_when_its_row_is_committed(
    transactions: Transactions, writer: Writer, file: Path
) -> None:
    transactions.door.clear()
    future = writer.submit(add, 7)
    transactions.at_the_door.wait()
    was_done, were_there = future.done(), rows(file)

    transactions.door.set()

    assert (was_done, were_there) == (False, [])
    assert future.result() == 7
    assert rows(file) == [7]


def test_a_lock_that_was_not_to_be_had_is_waited_for_once(
    transactions: Transactions, writer: Writer
) -> None:
    def wait_in_vain(_connection: Connection) -> None:
        raise StoreBusy("rows.sqlite", 60.0)

    shut(transactions, writer)
    futures: list[Future[Any]] = [writer.submit(add, n) for n in (1, 2, 3)]
    futures.append(writer.submit(wait_in_vain))

    transactions.door.set()

    assert all(isinstance(future.exception(), StoreBusy) for future in futures)
    assert transactions.count == 2  # not once more for each of the four


async def test_a_caller_cancelled_before_its_turn_does_not_get_its_write(
    transactions: Transactions, writer: Writer, file: Path
) -> None:
    shut(transactions, writer)
    future = asyncio.wrap_future(writer.submit(add, 1))

    future.cancel()
    await asyncio.sleep(0)  # the loop hands a cancellation on in its next round
    transactions.door.set()

    assert writer.submit(add, 2).result() == 2
    assert rows(file) == [0, 2]


async def test_a_caller_cancelled_while_its_write_runs_has_written(
    transactions: Transactions, writer: Writer, file: Path
) -> None:
    transactions.door.clear()
    future = asyncio.wrap_future(writer.submit(add, 1))
    transactions.at_the_door.wait()

    future.cancel()
    transactions.door.set()

    assert writer.submit(add, 2).result() == 2
    assert rows(file) == [1, 2]


def test_what_is_queued_when_the_writer_ends_is_still_written(
    transactions: Transactions, writer: Writer, file: Path
) -> None:
    shut(transactions, writer)
    futures = [writer.submit(add, number) for number in (1, 2)]
    transactions.door.set()

    writer.shutdown()
    writer.has_ended(None)

    assert [future.result() for future in futures] == [1, 2]
    assert rows(file) == [0, 1, 2]


def test_a_closed_writer_refuses_work(writer: Writer) -> None:
    writer.shutdown()

    with pytest.raises(RuntimeError, match="closed"):
        writer.submit(add, 1)


async def test_a_read_sees_one_snapshot_while_others_write(database: Database) -> None:
    def look(connection: Connection) -> tuple[Any, Any]:
        query = "SELECT count(*) FROM statistics"
        before = connection.exec_driver_sql(query).scalar()
        between.set()
        written.wait()
        return before, connection.exec_driver_sql(query).scalar()

    between, written = threading.Event(), threading.Event()
    reading = asyncio.create_task(database.read(look))
    await asyncio.to_thread(between.wait)
    await database.write(
        lambda connection: connection.exec_driver_sql(
            "INSERT INTO statistics VALUES ('job', 'requests', 1)"
        )
    )
    written.set()

    assert await reading == (0, 0)
