"""Shutdown while the database does not respond."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from sqlalchemy import Connection, make_url
from sqlalchemy.exc import DBAPIError

from longline.core.errors import StoreGone
from longline.core.threads import Threads
from longline.storage import database
from longline.storage.backends import SqliteBackend
from longline.storage.database import Database, TransactionRetry

# A process one of whose readers never gets its answer.
HANGING = """
import asyncio, sys, threading
from longline.storage.database import open_database
def hang(connection):
    has_begun.set()
    threading.Event().wait()
async def main():
    reading = asyncio.ensure_future(database.read(hang))
    await asyncio.to_thread(has_begun.wait)
has_begun = threading.Event()
database = open_database(sys.argv[1])
asyncio.run(main())
print(database.close(within=0.1))
"""
ERROR = DBAPIError("SELECT 1", None, OSError("no response"))


class Steps:
    """A monotonic clock that moves on when the code sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    monkeypatch.setattr(database, "time", steps)
    return steps


class LostServer(SqliteBackend):
    """A backend all of whose errors mean that the server is gone."""

    def is_gone(self, error: DBAPIError) -> bool:
        return error is ERROR


@pytest.fixture
def backend(sqlite_address: str) -> LostServer:
    return LostServer(make_url(sqlite_address), 60.0)


def wait_in_vain(retry: TransactionRetry) -> StoreGone:
    """Fail until the wait is over; return the error."""

    def fail() -> None:
        raise ERROR

    with pytest.raises(StoreGone) as gone:
        retry.run(fail)
    return gone.value


def test_a_server_is_waited_for_until_the_timeout(steps: Steps, backend: LostServer) -> None:
    gone = wait_in_vain(TransactionRetry(backend))

    assert steps.now == pytest.approx(1060)
    assert gone.seconds == 60


def test_a_stopping_process_waits_a_few_seconds(steps: Steps, backend: LostServer) -> None:
    gone = wait_in_vain(TransactionRetry(backend, is_stopping=lambda: steps.now >= 1010))

    assert steps.now == pytest.approx(1015, abs=0.3)
    assert gone.seconds == pytest.approx(15, abs=0.3)


def test_all_waits_end_together_while_stopping(steps: Steps, backend: LostServer) -> None:
    retry = TransactionRetry(backend, is_stopping=lambda: True)
    wait_in_vain(retry)
    after_one = steps.now

    for _ in range(5):
        wait_in_vain(retry)

    assert steps.now == after_one


def test_after_a_response_the_wait_begins_again(steps: Steps, backend: LostServer) -> None:
    retry = TransactionRetry(backend, is_stopping=lambda: True)
    wait_in_vain(retry)
    retry.run(lambda: None)
    after_one = steps.now

    wait_in_vain(retry)

    assert steps.now == pytest.approx(after_one + 5)


async def test_closing_does_not_wait_for_a_write_that_hangs(database: Database) -> None:
    is_there, has_begun = threading.Event(), threading.Event()

    def hang(connection: Connection) -> None:
        has_begun.set()
        is_there.wait()
        connection.exec_driver_sql("INSERT INTO statistics VALUES ('job', 'requests', 1)")

    writing = asyncio.create_task(database.write(hang))
    await asyncio.to_thread(has_begun.wait)
    was_closed = database.close(within=0.01)
    is_there.set()

    assert not was_closed
    await writing
    assert database.close()


def test_a_process_ends_although_a_reader_hangs(sqlite_address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING, sqlite_address],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout == "False\n"


def test_threads_work_side_by_side() -> None:
    threads, both = Threads(2, "test"), threading.Barrier(2)

    futures = [threads.submit(both.wait, 10) for _ in range(2)]

    assert sorted(future.result() for future in futures) == [0, 1]
    threads.shutdown()
    assert threads.have_ended(within=10)


def test_threads_do_what_is_queued_before_they_end() -> None:
    threads = Threads(1, "test")

    futures = [threads.submit(pow, number, 2) for number in range(5)]
    threads.shutdown()

    assert [future.result() for future in futures] == [0, 1, 4, 9, 16]


def test_an_error_in_a_thread_is_the_callers() -> None:
    threads = Threads(1, "test")

    future = threads.submit(int, "no number")

    with pytest.raises(ValueError, match="no number"):
        future.result()
    threads.shutdown()


def test_threads_that_have_ended_say_so() -> None:
    threads = Threads(1, "test")
    threads.shutdown()

    with pytest.raises(RuntimeError):
        threads.submit(int, "1")
