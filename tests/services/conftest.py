"""Fixtures: homes that PostgreSQL can reach, stopped after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.homes import Home, new_home


@pytest.fixture
def home() -> Iterator[Home]:
    """A home without anything in it; whatever a test starts there is stopped after it."""
    with new_home() as home:
        yield home


@pytest.fixture(scope="module")
def postgres_home() -> Iterator[Home]:
    """A home with a PostgreSQL of its own, which the tests of a module share."""
    with new_home() as home:
        home.up(with_postgres=True)
        yield home
