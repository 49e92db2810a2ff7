"""PostgreSQL as the database; its errors are reported in one sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, text

from longline.core.errors import (
    LonglineError,
    MissingExtra,
    StoreBusy,
    StoreFull,
    StoreTooNew,
    StoreUnreachable,
)
from longline.core.model import OutcomeAction
from longline.storage import backends as backend
from longline.storage.database import NEWEST, Database, create_tables, open_database, run_migrations
from longline.storage.query import RecordQuery
from longline.storage.schema import metadata, plumbing
from longline.storage.store import Store, open_store
from tests.servers import PostgresServer
from tests.storage.given import complete, ended, leased, queued, record, tables_of
from tests.virtual import EPOCH

OPEN = "import sys; from longline.storage.store import open_store; open_store(sys.argv[1]).close()"


@pytest.fixture
def address(postgres_address: str) -> str:
    return postgres_address


@pytest.fixture
def guarded(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server with a user `guest`, who needs a password."""
    rules = postgres.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all guest 127.0.0.1/32 scram-sha-256\n{before}")
    postgres.execute("CREATE ROLE guest LOGIN PASSWORD 'open sesame'")
    postgres.execute("SELECT pg_reload_conf()")
    yield postgres
    postgres.execute("DROP ROLE guest")
    rules.write_text(before)
    postgres.execute("SELECT pg_reload_conf()")


def refusal(address: str) -> str:
    with pytest.raises(LonglineError) as raised:
        open_store(address)
    sentence = str(raised.value)
    assert "\n" not in sentence
    assert "sesame" not in sentence
    return sentence


def test_the_migrated_tables_are_those_of_the_schema(own_postgres_address: str) -> None:
    engine = create_engine(own_postgres_address)
    with engine.begin() as connection:
        run_migrations(connection)
        context = MigrationContext.configure(connection)
        both = [metadata, plumbing]
        differences = compare_metadata(context, both)  # type: ignore[arg-type]  # it takes several
    engine.dispose()

    assert differences == []


def test_new_tables_are_those_that_migrations_create(own_postgres_address: str) -> None:
    engine = create_engine(own_postgres_address)
    with engine.begin() as connection:
        run_migrations(connection)
        migrated = tables_of(connection)
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
        create_tables(connection)
        created = tables_of(connection)
    engine.dispose()

    assert created == migrated
    assert "writers" in created


def test_processes_open_an_empty_database_concurrently(
    own_postgres_address: str,
) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, own_postgres_address], stderr=subprocess.PIPE)
        for _ in range(2)
    ]

    answers = [process.communicate()[1] for process in processes]

    assert answers == [b""] * 2


async def test_a_version_we_do_not_know_is_refused(own_postgres_address: str) -> None:
    database = open_database(own_postgres_address)
    await database.write(
        lambda connection: connection.execute(text("UPDATE alembic_version SET version_num = 9"))
    )
    database.close()

    with pytest.raises(StoreTooNew) as raised:
        open_store(own_postgres_address)

    assert (raised.value.found, raised.value.known) == ("9", NEWEST)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_an_address_works(address: str, scheme: str) -> None:
    database = open_database(address.replace("postgresql+psycopg", scheme))

    assert database.address == address
    database.close()


def test_a_missing_database_is_reported(postgres: PostgresServer) -> None:
    assert '"nowhere"' in refusal(postgres.url("nowhere"))


def test_a_missing_user_is_reported(address: str) -> None:
    assert '"bob"' in refusal(address.replace("longline@", "bob@"))


def test_a_wrong_password_is_reported(guarded: PostgresServer) -> None:
    address = guarded.url().replace("longline@", "guest:close sesame@")

    sentence = refusal(address)
    assert {"password", "guest"} <= set(re.findall(r"\w+", sentence))


def test_a_missing_password_is_reported(guarded: PostgresServer) -> None:
    assert "password" in refusal(guarded.url().replace("longline@", "guest@"))


def test_a_user_who_may_not_make_tables_is_reported_with_the_missing_right(
    guarded: PostgresServer, own_postgres_address: str
) -> None:
    del guarded
    address = own_postgres_address.replace("longline@", "guest:open sesame@")

    assert "GRANT CREATE," in refusal(address)


def test_a_server_that_is_too_old_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "OLDEST", 99)

    assert "99" in re.findall(r"\d+", refusal(address).replace(address, ""))


def test_a_missing_driver_is_reported(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingExtra) as raised:
        open_store(address)

    assert raised.value.extra == "postgres"


async def test_a_full_disk_of_the_server_is_reported(database: Database) -> None:
    def fill(connection: Connection) -> None:
        raising = "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'"
        connection.exec_driver_sql(f"DO $$ BEGIN {raising}; END $$")

    with pytest.raises(StoreFull):
        await database.write(fill)


async def test_a_row_that_others_keep_locked_is_reported(store: Store, address: str) -> None:
    await store.events.add_statistics("job", {"requests": 1})
    hasty = open_database(address, timeout=0.05)
    engine = create_engine(address)

    with engine.begin() as connection:
        connection.execute(text("SELECT * FROM statistics FOR UPDATE"))
        with pytest.raises(StoreBusy):
            await Store(hasty).events.add_statistics("job", {"requests": 1})
    engine.dispose()
    hasty.close()

    assert await store.events.statistics("job") == {"requests": 1}


async def test_a_reader_can_change_nothing(database: Database, store: Store) -> None:
    job = await queued(store, "a")

    with pytest.raises(StoreUnreachable):
        await database.read(lambda connection: connection.exec_driver_sql("DELETE FROM jobs"))

    assert (await store.jobs.get(job.id)).id == job.id


def test_the_rows_of_a_snapshot_stay_on_the_server_until_they_are_fetched(
    database: Database,
) -> None:
    series = text("SELECT generate_series(1, 100000)")
    with database.snapshot() as connection, connection.execute(series) as rows:
        held = connection.scalars(text("SELECT count(*) FROM pg_cursors WHERE name <> ''"))
        found = next(iter(rows)), held.one()

    assert found == ((1,), 2)  # the result that is half read, and its own


async def test_characters_that_text_cannot_hold_are_replaced(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.FAIL, reason="a \x00 in it"))
    await store.records.create(record("a", {"title": "a \x00 in it"}), at=EPOCH)

    (item,) = await store.queue.finished(job.id)
    (row,) = await store.records.list(RecordQuery(text="in it"))
    assert item["reason"] == row["data"]["title"] == "a \ufffd in it"
