"""Tables are created once, and a newer file is refused without a change."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, text

from longline.core.errors import StoreTooNew, StoreUnreachable
from longline.storage import database
from longline.storage.database import NEWEST, create_tables, run_migrations
from longline.storage.schema import metadata
from longline.storage.store import open_store
from tests.storage.given import new_job, record, tables_of

OPEN = "import sys; from longline.storage.store import open_store; open_store(sys.argv[1]).close()"


@pytest.fixture
def address(sqlite_address: str) -> str:
    return sqlite_address


def version_of(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    connection.close()
    return str(found)


def set_version(path: Path, version: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", [version])
    connection.close()


def test_a_fresh_file_gets_the_newest_version(path: Path, address: str) -> None:
    open_store(address).close()

    assert version_of(path) == NEWEST


def test_the_migrated_tables_are_those_of_the_schema(address: str) -> None:
    engine = create_engine(address)
    with engine.begin() as connection:
        run_migrations(connection)
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()

    assert differences == []


def test_new_tables_are_those_that_migrations_create(tmp_path: Path) -> None:
    found = [
        _tables_after(create, tmp_path / f"{create.__name__}.sqlite")
        for create in (create_tables, run_migrations)
    ]

    assert found[0] == found[1]
    assert len(found[0][0]) > 10


def _tables_after(
    create: Callable[[Connection], None], path: Path
) -> tuple[dict[str, Any], list[tuple[str, str]], str]:
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        create(connection)
        tables = tables_of(connection)
        rows = connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE type <> 'table' AND sql > '' ORDER BY name"
        )
        others = [(str(name), str(sql)) for name, sql in rows]
    engine.dispose()
    return tables, others, version_of(path)


def test_a_database_that_was_downgraded_to_nothing_opens(path: Path, address: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    connection.close()

    open_store(address).close()

    assert version_of(path) == NEWEST


def test_the_newest_version_is_the_last_migration() -> None:
    folder = Path(database.__file__).parent / "migrations" / "versions"

    assert max(path.name for path in folder.glob("*.py")).startswith(f"{NEWEST}_")


async def test_a_file_that_is_opened_again_still_has_its_rows(address: str) -> None:
    with open_store(address) as store:
        await store.records.create(record("1"), at=1.0)

    with open_store(address) as store:
        assert await store.records.count() == 1


def test_processes_open_a_new_file_concurrently(path: Path, address: str) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, address], stderr=subprocess.PIPE)
        for _ in range(2)
    ]

    answers = [process.communicate()[1] for process in processes]

    assert answers == [b""] * 2
    assert [process.returncode for process in processes] == [0] * 2
    assert version_of(path) == NEWEST


@pytest.mark.parametrize("version", ["1000", "9999", "0000", "ae1027a6acf"])
def test_an_unknown_version_is_refused_without_a_change(
    path: Path, address: str, version: str
) -> None:
    open_store(address).close()
    set_version(path, version)
    before = path.read_bytes()

    with pytest.raises(StoreTooNew) as raised:
        open_store(address)

    assert raised.value.found == version
    assert raised.value.known == NEWEST
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before


async def test_the_migration_can_be_undone_and_run_again(address: str) -> None:
    open_store(address).close()
    engine = create_engine(address)
    with engine.begin() as connection:
        metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE alembic_version")
    engine.dispose()

    with open_store(address) as store:
        assert (await store.jobs.create(new_job())).source == "shop"


def test_a_file_of_another_program_that_has_our_tables_is_refused(path: Path, address: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE jobs (id TEXT)")
    connection.close()

    with pytest.raises(StoreUnreachable, match="jobs") as failed:
        open_store(address)

    assert str(path) in failed.value.address


def test_a_copy_of_the_file_alone_opens(path: Path, address: str, tmp_path: Path) -> None:
    open_store(address).close()
    shutil.copy(path, tmp_path / "copy.sqlite")

    open_store(f"sqlite:///{tmp_path / 'copy.sqlite'}").close()

    assert version_of(tmp_path / "copy.sqlite") == NEWEST


@pytest.fixture(params=["sqlite", "own_postgres"])
def empty_address(request: pytest.FixtureRequest) -> str:
    given: str = request.getfixturevalue(f"{request.param}_address")
    return given


@pytest.mark.rows_without_events
async def test_events_of_older_jobs_get_their_source(empty_address: str) -> None:
    engine = create_engine(empty_address)
    with engine.begin() as connection:
        _migrate_to(connection, "0006")
        connection.execute(
            text(
                "INSERT INTO jobs (id, source, identity, state, settings, created_at, "
                "is_discovered) VALUES ('a', 'shop', 'x', 'pending', '{}', 1, :no)"
            ),
            {"no": False},
        )
        insert = text(
            "INSERT INTO events (job_id, at, type, data) VALUES (:job, 1, 'job.created', :data)"
        )
        data = '{"settings":{"name":"na\u00efve","limit":5}}'
        connection.execute(insert, [{"job": "a", "data": data}, {"job": "lost", "data": data}])
    engine.dispose()

    with open_store(empty_address) as store:
        (known, counted), (lost,) = await store.events.list("a"), await store.events.list("lost")
        (run,) = await store.projections.rows("runs", keys=["a"])

    assert known.data == {"source": "shop", "settings": {"name": "na\u00efve", "limit": 5}}
    assert (lost.version, lost.data["source"]) == (2, "")
    assert (counted.type, counted.data["state"], run["state"]) == (
        "job.counted",
        "pending",
        "pending",
    )
    engine = create_engine(empty_address)
    with engine.begin() as connection:
        query = text("SELECT CAST(data AS TEXT), version FROM events ORDER BY id")
        migrated = connection.execute(query).all()
        _migrate_to(connection, "0006", is_upgrade=False)
        undone = [row.version for row in connection.execute(query)]
    engine.dispose()
    assert migrated[:2] == [(f'{{"source":"shop",{data[1:]}', 2), (data, 1)]
    assert undone == [1, 1]


@pytest.mark.rows_without_events
async def test_statistics_of_older_jobs_are_summed_by_source(empty_address: str) -> None:
    engine = create_engine(empty_address)
    with engine.begin() as connection:
        _migrate_to(connection, "0008")
        job = text(
            "INSERT INTO jobs (id, source, identity, state, settings, created_at, "
            "is_discovered) VALUES (:id, :source, 'x', 'complete', '{}', 1, :no)"
        )
        for name, source in (("a", "shop"), ("b", "shop"), ("c", "news")):
            connection.execute(job, {"id": name, "source": source, "no": False})
        counter = text("INSERT INTO statistics VALUES (:job, 'requests', :value)")
        rows = [{"job": name, "value": value} for name, value in (("a", 1), ("b", 2), ("c", 4))]
        connection.execute(counter, rows)
    engine.dispose()

    with open_store(empty_address) as store:
        found = (await store.totals.read(2.0)).sources

    requests = {name: one.counters["requests"] for name, one in found.items()}
    assert requests == {"shop": 3, "news": 4}


def _migrate_to(connection: Connection, version: str, *, is_upgrade: bool = True) -> None:
    config = Config()
    folder = Path(database.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    (command.upgrade if is_upgrade else command.downgrade)(config, version)
