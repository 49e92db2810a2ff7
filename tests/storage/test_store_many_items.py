"""What is asked of a running job every second or two takes no longer the more items it has done.

SQLite tells how it finds what it is asked for; the tables are the same in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from longline.storage.database import Database
from longline.storage.queue.queue import Reclaim
from longline.storage.store import Store
from tests.storage.given import complete, leased, queued, stored
from tests.virtual import EPOCH

Statement = tuple[str, Any]
ASKED: dict[str, Callable[[Store, str], Awaitable[Any]]] = {
    "is it over": lambda store, job: store.jobs.is_over(job),
    "where does it stand": lambda store, job: store.chunks.status(job),
    "what is due": lambda store, job: store.queue.is_due(job, EPOCH),
    "what waits": lambda store, job: store.queue.waiting(job),
    "what can be offered": lambda store, job: store.chunks.publish(job, EPOCH, size=5),
    "who holds it": lambda store, job: store.chunks.owners(job),
    "what the dead held": lambda store, job: store.queue.reclaim(Reclaim(job, EPOCH)),
    "which jobs are over": lambda store, _: store.chunks.finished_jobs(),
    "when one was finished": lambda store, job: store.chunks.last_completion(job),
}
NARROW = ("state=?", "type=?", "ix_items_finished")
"""What a step says that reads a part of a job's items or events, and not all of them."""


@pytest.fixture
def address(sqlite_address: str) -> str:
    return sqlite_address


@contextmanager
def listening() -> Iterator[list[Statement]]:
    heard: list[Statement] = []

    def hear(_connection: Any, _cursor: Any, statement: str, given: Any, *_: Any) -> None:
        heard.append((statement, given))

    event.listen(Engine, "before_cursor_execute", hear)
    yield heard
    event.remove(Engine, "before_cursor_execute", hear)


def steps_of(connection: Connection, statements: list[Statement]) -> list[str]:
    """Return how items and events are found."""
    plans = [
        connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
        for statement, given in statements
        if not statement.startswith("BEGIN")
    ]
    steps = [str(row[-1]) for plan in plans for row in plan]
    return [step for step in steps if step.split()[1] in ("items", "events")]


@pytest.mark.parametrize("asked", ASKED)
async def test_an_answer_about_a_running_job_needs_none_of_its_finished_items(
    store: Store, database: Database, asked: str
) -> None:
    job = await queued(store, "a", "b", is_last=True)
    await store.jobs.start(job.id, EPOCH, engine="celery")
    await complete(store, stored((await leased(store, job))[0]))

    with listening() as heard:
        await ASKED[asked](store, job.id)

    with database.snapshot() as connection:
        steps = steps_of(connection, heard)
    assert steps
    assert [step for step in steps if not any(word in step for word in NARROW)] == []


async def test_the_item_that_was_finished_last_is_found_by_its_index(
    store: Store, database: Database
) -> None:
    job = await queued(store, "a", "b", is_last=True)
    await complete(store, stored((await leased(store, job))[0]))

    with listening() as heard:
        found = await store.queue.progress([job.id])

    (last,) = [one for one in heard if "LIMIT" in one[0]]
    with database.snapshot() as connection:
        steps = steps_of(connection, [last])
    assert found[job.id].last_key == "a"
    assert all("ix_items_finished" in step for step in steps)
