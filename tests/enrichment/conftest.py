"""Fixtures of this room: a database with a desk to work at, and a model to ask."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from longline.sandbox.language_model import LanguageModel
from longline.storage.database import open_database
from tests.enrichment.tasks import Desk
from tests.virtual import VirtualClock


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without a row: creating its tables for each test took most of the time."""
    path = tmp_path_factory.mktemp("blank") / "longline.sqlite"
    open_database(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def address(tmp_path: Path, blank: Path) -> str:
    return f"sqlite:///{shutil.copy(blank, tmp_path / 'longline.sqlite')}"


@pytest.fixture
def desk(address: str, clock: VirtualClock) -> Iterator[Desk]:
    database = open_database(address)
    yield Desk(database, clock)
    database.close()


@pytest.fixture
async def model(clock: VirtualClock) -> AsyncIterator[LanguageModel]:
    async with LanguageModel(clock=clock) as model:
        yield model
