"""Events are appended in order, and statistics of all writers are added up."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import Connection, insert, select

from longline.storage.database import Database
from longline.storage.events.events import event_row
from longline.storage.schema import jobs
from longline.storage.store import Store, open_store
from tests.storage.given import new_job
from tests.virtual import EPOCH


async def test_events_are_listed_in_the_order_of_their_commits(store: Store) -> None:
    await store.events.append(
        event_row("job", EPOCH, "custom.a", key="1", text="naïve"), event_row("job", 1, "custom.c")
    )
    await store.events.append(event_row("job", EPOCH, "custom.a"))
    await store.events.append(event_row("other", EPOCH, "custom.a"))

    events = await store.events.list("job")

    assert [(event.type, event.key, event.at) for event in events] == [
        ("custom.a", "1", EPOCH),
        ("custom.c", None, 1),
        ("custom.a", None, EPOCH),
    ]
    assert events[0].data == {"text": "naïve"}
    assert [event.id for event in events] == sorted(event.id for event in events)


async def test_events_of_one_type(store: Store) -> None:
    await store.events.append(
        *(event_row("job", n, f"custom.{name}") for n, name in enumerate("abab"))
    )

    assert [event.at for event in await store.events.list("job", types=["custom.b"])] == [1, 3]
    assert [event.at for event in await store.events.list("job", limit=3)] == [0, 1, 2]


async def test_appending_nothing_adds_nothing(store: Store) -> None:
    await store.events.append()

    assert await store.events.list("job") == []


async def test_the_log_of_each_database_has_its_own_id(store: Store, tmp_path: Path) -> None:
    with (
        open_store(f"sqlite:///{tmp_path / 'other.sqlite'}") as other,
        open_store(f"sqlite:///{tmp_path / 'other.sqlite'}") as same,
    ):
        ids = await asyncio.gather(
            *(one.events.log_id() for one in (store, store, other, other, same))
        )

    assert ids == [ids[0]] * 2 + [ids[2]] * 3
    assert ids[0] != ids[2]


async def test_statistics_of_many_writers_add_up(store: Store) -> None:
    await asyncio.gather(
        *(store.events.add_statistics("job", {"requests": 1, "waited": 0.25}) for _ in range(40))
    )
    await store.events.add_statistics("other", {"requests": 5})
    await store.events.add_statistics("job", {})

    assert await store.events.statistics("job") == {"requests": 40, "waited": 10.0}
    assert await store.events.statistics("unknown") == {}


async def test_the_sources_of_many_jobs_are_known(store: Store, database: Database) -> None:
    job = (await store.jobs.create(new_job())).id
    copies = [f"copy-{number}" for number in range(1002)]

    def copy(connection: Connection) -> None:
        row = connection.execute(select(jobs)).mappings().one()
        connection.execute(insert(jobs), [{**row, "id": one} for one in copies])

    await database.write(copy)
    for names in (copies[:1001], [copies[0], copies[1001], job, "unknown"]):
        found = await store.events.sources(names)

    assert found == dict.fromkeys((copies[0], copies[1001], job), "shop")
