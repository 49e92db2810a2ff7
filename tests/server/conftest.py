"""Fixtures: a PostgreSQL server that a test may kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import PostgresServer, postgres_running


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    with postgres_running() as server:
        yield server
