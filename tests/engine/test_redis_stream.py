"""Events are copied to a Redis stream, each once and in order."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from longline.config.settings import Settings, load_settings
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.model import Event
from longline.engine.redis_stream import RedisStream, StreamUnwritable
from longline.engine.subscribers import DeliveryResult
from longline.storage.events.events import event_row
from longline.storage.store import Store, open_store
from longline.wiring import open_event_deliveries
from tests.servers import RedisServer, free_port
from tests.virtual import EPOCH

pytestmark = pytest.mark.real_time  # Redis is outside of virtual time

EVENT = Event(7, "job-1", EPOCH, "custom.a", "k", {"price": 5}, subject="job/job-1")


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    with Redis.from_url(redis_server.url, decode_responses=True) as redis:
        yield redis


@pytest.fixture
def name() -> str:
    """The name of a stream that no other test uses."""
    return f"test-{uuid4().hex}"


@pytest.fixture
async def stream(redis_server: RedisServer, name: str) -> AsyncIterator[RedisStream]:
    async with opened(redis_server.url, name) as stream:
        yield stream


@asynccontextmanager
async def opened(
    url: str, name: str, *, log_id: str = "log", length: int = 1000
) -> AsyncIterator[RedisStream]:
    stream = RedisStream(url, name, log_id=log_id, length=length)
    try:
        yield stream
    finally:
        await stream.close()


@pytest.fixture
def settings(
    tmp_path: Path, redis_server: RedisServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setenv("LONGLINE_REDIS_URL", redis_server.url)
    monkeypatch.setenv("LONGLINE_EVENT_STREAM_NAME", name)
    return load_settings(home=tmp_path)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings.database) as store:
        yield store


def ids(redis: Redis, name: str) -> list[str]:
    entries: Any = redis.xrange(name)
    return [one for one, _ in entries]


async def append(store: Store, *names: str) -> None:
    await store.events.append(*(event_row("job", EPOCH, f"custom.{name}") for name in names))


async def deliver(settings: Settings, store: Store) -> list[DeliveryResult]:
    results: list[DeliveryResult] = []
    async with open_event_deliveries(settings, store, SystemClock(), results.append) as deliveries:
        await deliveries.run_once()
    return results


async def test_an_entry_has_the_attributes_of_cloud_events(
    stream: RedisStream, redis: Redis, name: str
) -> None:
    await stream.handle(EVENT)

    entries: Any = redis.xrange(name)
    ((entry, fields),) = entries
    assert entry == "7-0"
    assert json.loads(fields.pop("data")) == {"price": 5}
    assert fields == {
        "id": "7",
        "source": "/longline/log",
        "type": "custom.a",
        "specversion": "1.0",
        "time": "2027-01-15T08:00:00.000Z",
        "subject": "job/job-1",
        "datacontenttype": "application/json",
        "longlinejob": "job-1",
        "longlinekey": "k",
    }


async def test_an_event_that_is_sent_again_is_not_added(
    stream: RedisStream, redis: Redis, name: str
) -> None:
    for number in (1, 2, 3):
        await stream.handle(replace(EVENT, id=number))
    redis.xdel(name, "2-0")  # a consumer may delete what it has handled

    for number in (1, 2, 3, 4):
        await stream.handle(replace(EVENT, id=number))

    assert ids(redis, name) == ["1-0", "3-0", "4-0"]


async def test_old_entries_are_removed(redis_server: RedisServer, redis: Redis, name: str) -> None:
    async with opened(redis_server.url, name, length=100) as stream:
        for number in range(1, 501):
            await stream.handle(replace(EVENT, id=number))

    kept = ids(redis, name)
    assert 100 <= len(kept) <= 200  # Redis removes whole nodes of 100 entries
    assert kept[-1] == "500-0"


async def test_a_stream_of_another_database_is_one_error(
    stream: RedisStream, redis_server: RedisServer, redis: Redis, name: str
) -> None:
    await stream.handle(replace(EVENT, id=1))
    async with opened(redis_server.url, name, log_id="other") as other:
        with pytest.raises(StreamUnwritable, match="redis-cli DEL"):
            await other.handle(replace(EVENT, id=2))
        redis.delete(name)
        await other.handle(replace(EVENT, id=2))

    with pytest.raises(StreamUnwritable):
        await stream.handle(replace(EVENT, id=3))
    assert ids(redis, name) == ["2-0"]


async def test_a_restored_database_does_not_lose_events_silently(
    stream: RedisStream, redis: Redis, name: str
) -> None:
    await stream.handle(replace(EVENT, id=1))
    await stream.handle(replace(EVENT, id=2))

    with pytest.raises(StreamUnwritable):
        await stream.handle(replace(EVENT, id=2, at=EPOCH + 60))
    assert ids(redis, name) == ["1-0", "2-0"]


async def test_a_key_of_another_kind_is_one_error(
    stream: RedisStream, redis: Redis, name: str
) -> None:
    redis.set(name, "something")

    with pytest.raises(StreamUnwritable):
        await stream.handle(EVENT)


@pytest.mark.parametrize("is_up", [True, False], ids=["password", "down"])
async def test_a_redis_that_cannot_be_used_is_one_error(
    closed_redis: RedisServer, name: str, *, is_up: bool
) -> None:
    port = closed_redis.port if is_up else free_port()

    async with opened(f"redis://:secret@127.0.0.1:{port}/0", name) as stream:
        with pytest.raises(StreamUnwritable) as caught:
            await stream.handle(EVENT)

    assert "LONGLINE_REDIS_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_url_that_is_not_one_of_redis_is_refused(name: str) -> None:
    with pytest.raises(BadOption):
        RedisStream("http://me:secret@127.0.0.1", name, log_id="log", length=1)


async def test_events_of_a_home_are_copied_with_a_cursor(
    settings: Settings, store: Store, redis: Redis, name: str
) -> None:
    await append(store, "a", "b")

    first = await deliver(settings, store)
    await append(store, "c")
    await deliver(settings, store)
    redis.delete(name)
    await append(store, "d")
    await deliver(settings, store)

    assert first == [DeliveryResult(f"redis/{name}", 2, 2)]
    assert ids(redis, name) == ["4-0"]
    (row,) = await store.subscribers.list()
    assert (row.name, row.cursor, row.lag) == (f"redis/{name}", 4, 0)


async def test_a_new_stream_begins_with_as_many_events_as_it_holds(
    settings: Settings, store: Store, redis: Redis, name: str
) -> None:
    await append(store, *"abcde")

    await deliver(settings.model_copy(update={"event_stream_length": 2}), store)

    assert ids(redis, name) == ["4-0", "5-0"]


async def test_the_settings_filter_events_or_switch_the_stream_off(
    settings: Settings, store: Store, redis: Redis, name: str
) -> None:
    await append(store, "a", "b")
    off = settings.model_copy(update={"event_stream": False})
    some = settings.model_copy(update={"event_stream_types": ("custom.b",)})

    assert await deliver(off, store) == []
    assert await store.subscribers.list() == []
    await deliver(some, store)

    assert ids(redis, name) == ["2-0"]


async def test_a_stream_that_fails_is_retried(
    settings: Settings, store: Store, redis: Redis, name: str
) -> None:
    redis.set(name, "something")
    await append(store, "a")

    (failed,) = await deliver(settings, store)
    redis.delete(name)
    await store.subscribers.replay(f"redis/{name}", 0)  # now, not after a second
    (delivered,) = await deliver(settings, store)

    assert (failed.events, delivered.events) == (0, 1)
    assert failed.error is not None
    assert ids(redis, name) == ["1-0"]
