"""Fixtures: a home on SQLite or PostgreSQL, whose flows are performed on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.orchestrator import Orchestrator
from tests.scheduling.flows import World
from tests.servers import PostgresServer
from tests.virtual import VirtualClock

_NUMBERS = count(1)


@pytest.fixture
async def world(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[World]:
    settings = Settings(home=tmp_path / "home")
    async with Orchestrator(settings=settings, clock=clock) as orchestrator:
        yield World(tmp_path, orchestrator, clock)


@pytest.fixture
def postgres_address(postgres_server: PostgresServer) -> str:
    """The address of an empty database."""
    name = f"flows_{next(_NUMBERS)}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    return postgres_server.url(name)
