"""Fixtures of this room: records and pairs in a real file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.storage.database import Database, open_database
from longline.storage.matches import Matches
from longline.storage.records import Records


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(f"sqlite:///{tmp_path / 'longline.sqlite'}")
    yield database
    database.close()


@pytest.fixture
def records(database: Database) -> Records:
    return Records(database)


@pytest.fixture
def matches(database: Database) -> Matches:
    return Matches(database)
