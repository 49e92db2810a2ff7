"""Fixtures that all tests share: virtual time, and a web server to script."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pydantic import TypeAdapter
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from longline.core.errors import LonglineError
from longline.core.event_types import CUSTOM, event_type
from longline.storage.events import events
from longline.storage.events.events import EventRow
from longline.storage.store import Store
from tests.projected import assert_projections_equal_the_rows
from tests.scripted_site import ScriptedSite
from tests.servers import PostgresServer, RedisServer, postgres_running, redis_running
from tests.virtual import VirtualClock, VirtualLoop

_WAITING = {"distributed", "server", "services", "httpbin"}

# A busy machine is not a failure: no test is judged by the time that an example takes.
settings.register_profile("longline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("longline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the folders whose tests mostly wait for processes of their own.

    So one process of pytest has them, while the others compute, and what is left for the end is
    small. The tests of a folder that share a worker are not torn apart.
    """
    items.sort(key=lambda item: item.path.parent.name not in _WAITING)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every async test on virtual time, except those marked `real_time`."""
    del config
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualLoop}


@pytest.fixture(autouse=True)
def _events_are_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when an event has data that its type does not describe."""
    insert = events._insert_events  # the one place that all events pass

    def check_and_insert(connection: Connection, several: Sequence[Sequence[EventRow]]) -> None:
        for row in (row for rows in several for row in rows):
            if not row["type"].startswith(CUSTOM):
                data = json.loads(json.dumps(row["data"], default=str))
                _adapter(event_type(row["type"]).data).validate_python(data)
                assert row["data"].keys() <= event_type(row["type"]).data.__annotations__.keys()
        insert(connection, several)

    monkeypatch.setattr(events, "_insert_events", check_and_insert)


@pytest.fixture(autouse=True)
def _projections_equal_the_rows(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail when a store is closed whose rows do not follow from its events.

    A test that writes rows itself is marked `rows_without_events`.
    """
    if request.node.get_closest_marker("rows_without_events"):
        return
    close = Store.close

    def check_and_close(store: Store, within: float | None = None) -> bool:
        # Some tests close a store whose database is gone, or damaged.
        with (
            contextlib.suppress(LonglineError, SQLAlchemyError),
            store._database.snapshot() as connection,
        ):
            assert_projections_equal_the_rows(connection)
        return close(store, within)

    monkeypatch.setattr(Store, "close", check_and_close)


@cache
def _adapter(data: type) -> TypeAdapter[Any]:
    return TypeAdapter(data)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def site() -> AsyncIterator[ScriptedSite]:
    async with ScriptedSite() as site:
        yield site


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A redis-server that the tests of one process share; each uses a prefix of its own."""
    with redis_running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def closed_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A redis-server that requires a password."""
    with redis_running(tmp_path_factory.mktemp("closed"), "--requirepass", "right") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server that the tests of one process share; each has a database of its own."""
    with postgres_running() as server:
        yield server


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        job = getattr(record, "job", None)
        self.texts.append(f"{job}: {record.getMessage()}" if job else record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Return the warnings that longline logs, as they come."""
    handler = _Messages()
    logging.getLogger("longline").addHandler(handler)
    yield handler.texts
    logging.getLogger("longline").removeHandler(handler)
