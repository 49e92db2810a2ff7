"""Fixtures of this room: a store on a real file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.stores.database import Database, open_database
from longline.stores.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "longline.sqlite"


@pytest.fixture
def address(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    database = open_database(address)
    yield database
    database.close()


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)
