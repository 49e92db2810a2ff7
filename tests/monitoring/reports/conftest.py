"""Fixtures: a store on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from longline.storage.store import Store, open_store
from tests.servers import PostgresServer

_NUMBERS = count(1)


@pytest.fixture
def sqlite_address(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'longline.sqlite'}"


@pytest.fixture
def postgres_address(postgres_server: PostgresServer) -> str:
    name = f"reports_{next(_NUMBERS)}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    return postgres_server.url(name)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest) -> str:
    given: str = request.getfixturevalue(f"{request.param}_address")
    return given


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    with open_store(address) as store:
        yield store


@pytest.fixture
def sqlite_store(sqlite_address: str) -> Iterator[Store]:
    with open_store(sqlite_address) as store:
        yield store
