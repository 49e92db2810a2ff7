"""Events in the API: the list by cursor, and the stream that resumes without a gap."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from longline.core.model import Event
from longline.server.web.context import Web
from longline.server.web.event_stream import EventStreams
from longline.storage.access import Role
from longline.storage.events.events import EventFilter, event_row
from longline.storage.store import Store, open_store
from tests.server.web.api.test_schedules import API, read, read_pages, refusals
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import HOSTILE
from tests.storage.given import queued

STREAM = f"{API}/events/stream"


async def append(store: Store, *reasons: str, schedule: str = "s1") -> None:
    rows = [
        event_row(None, time.time(), "schedule.paused", schedule=schedule, reason=one)
        for one in reasons
    ]
    await store.events.append(*rows)


def names(first: int, count: int) -> list[str]:
    return [f"n{number}" for number in range(first, first + count)]


class Listener:
    """A client of a stream: what it was sent, and the last id, as a browser keeps them."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._content = response.content
        self.last_id = ""

    async def next(self) -> dict[str, Any]:
        """Return the next event."""
        while True:
            message = await self.message()
            if "data" in message:
                event: dict[str, Any] = json.loads(message["data"])
                assert message["id"] == str(event["id"])
                return event

    async def message(self) -> dict[str, str]:
        """Return the fields of the next message.

        Raises:
            EOFError: the stream has ended.
        """
        fields: dict[str, str] = {}
        while line := (await self._line()).rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        self.last_id = fields.get("id", self.last_id)
        return fields

    async def reasons(self, count: int) -> list[str]:
        """Return the reasons of the next events."""
        return [(await self.next())["data"]["reason"] for _ in range(count)]

    async def _line(self) -> str:
        line = await self._content.readline()
        if not line:
            raise EOFError
        return line.decode()


@asynccontextmanager
async def listening(
    dashboard: Dashboard, query: str = "", last_id: str | None = None
) -> AsyncIterator[Listener]:
    """Connect to the stream; it has sent its first cursor."""
    await dashboard.api("GET", f"{API}/workers", role=Role.READ)  # creates the token
    headers = {"Authorization": f"Bearer {dashboard.tokens[Role.READ]}"}
    if last_id is not None:
        headers["Last-Event-ID"] = last_id
    async with dashboard.session.get(
        f"{dashboard.url}{STREAM}?{query}", headers=headers
    ) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        listener = Listener(response)
        await listener.message()
        yield listener


# ---------------- The list


async def test_events_are_listed_in_pages_from_the_oldest(dashboard: Dashboard) -> None:
    await append(dashboard.store, *names(0, 5))
    query = "/events?types=schedule.*&subject=schedule/s1"

    found = await read_pages(dashboard, f"{query}&limit=2")
    later = await read(dashboard, f"{query}&after={found[2]['id']}")
    recent = await read(dashboard, f"{query}&since=1h")

    assert [one["data"]["reason"] for one in found] == names(0, 5)
    assert later["items"] == found[3:]
    assert recent["items"] == found


async def test_a_cursor_of_events_is_the_id_of_one(dashboard: Dashboard) -> None:
    await append(dashboard.store, *names(0, 3))

    first = await read(dashboard, "/events?types=schedule.paused&limit=1")

    assert first["next"] == str(first["items"][0]["id"])


async def test_events_of_a_job_and_of_a_source_are_found(dashboard: Dashboard) -> None:
    await append(dashboard.store, "other")
    job = await queued(dashboard.store, "a")

    of_job = await read_pages(dashboard, f"/events?job={job.id[:-1]}&limit=1")
    of_source = await read_pages(dashboard, "/events?source=shop&limit=50")

    assert {one["job"] for one in of_job} == {job.id}
    assert of_source == of_job


async def test_a_rare_type_is_searched_in_steps(dashboard: Dashboard) -> None:
    store, wanted = dashboard.store, EventFilter(("schedule.resumed",))
    await append(store, *names(0, 25))

    found, cursor = await store.events.read(0, wanted, span=10)

    assert (found, cursor) == ([], 10)


async def test_a_wrong_query_of_events_is_refused(dashboard: Dashboard) -> None:
    future = 2**40
    queries = ("types=moon", "job=none", f"after={future}", "after=-1", f"cursor={future}")

    found = [
        await refusals(dashboard, ("GET", f"/events?{one}"), ("GET", f"/events/stream?{one}"))
        for one in queries[:-1]
    ]
    cursor = await refusals(dashboard, ("GET", f"/events?{queries[-1]}"))

    assert [one[0] for one in found] == [one[1] for one in found]
    assert [one[0] for one in [*found, cursor]] == [
        (422, "BadOption"),
        (404, "UnknownJob"),
        (422, "BadOption"),
        (422, None),
        (422, "BadOption"),
    ]


# ---------------- The stream


async def test_a_stream_sends_events_in_their_order(dashboard: Dashboard) -> None:
    await append(dashboard.store, "before")

    async with listening(dashboard, "types=schedule.*") as listener:
        await append(dashboard.store, *names(0, 3))
        await append(dashboard.store, *names(3, 3))
        found = await listener.reasons(6)

    assert found == names(0, 6)


async def test_a_stream_resumes_without_gap_or_repetition(dashboard: Dashboard) -> None:
    async with listening(dashboard, "types=schedule.*") as first:
        await append(dashboard.store, *names(0, 4))
        before = await first.reasons(2)
    await append(dashboard.store, *names(4, 3))

    async with listening(dashboard, "types=schedule.*&after=0", first.last_id) as second:
        await append(dashboard.store, *names(7, 2))
        after = await second.reasons(7)

    assert before + after == names(0, 9)


async def test_a_client_that_saw_no_event_misses_none(dashboard: Dashboard) -> None:
    async with listening(dashboard) as first:
        last_id = first.last_id
    await append(dashboard.store, "between")

    async with listening(dashboard, "subject=schedule/s1", last_id) as second:
        assert await second.reasons(1) == ["between"]


async def test_a_stream_catches_up_and_follows(dashboard: Dashboard) -> None:
    await append(dashboard.store, *names(0, 1200))

    async with (
        listening(dashboard, "types=schedule.*") as other,
        listening(dashboard, "types=schedule.*&after=0") as listener,
    ):
        await append(dashboard.store, *names(1200, 2500))
        await append(dashboard.store, "last")
        found = await listener.reasons(3701)
        live = await other.reasons(2501)

    assert found == [*names(0, 3700), "last"]
    assert live == [*names(1200, 2500), "last"]


async def test_streams_have_filters_of_their_own(dashboard: Dashboard) -> None:
    async with (
        listening(dashboard, "subject=schedule/s1") as first,
        listening(dashboard, "subject=schedule/s2") as second,
        listening(dashboard, "source=shop") as third,
    ):
        await append(dashboard.store, "a")
        await append(dashboard.store, "b", schedule="s2")
        job = await queued(dashboard.store, "x")
        found = [await first.reasons(1), await second.reasons(1), (await third.next())["job"]]

    assert found == [["a"], ["b"], job.id]


async def test_hostile_text_stays_inside_its_message(dashboard: Dashboard) -> None:
    hostile = f"{HOSTILE}\r\n\n id: 7\ndata: {{}}\n\n\u2028\x85end"

    async with listening(dashboard, "types=schedule.*") as listener:
        await append(dashboard.store, hostile, "next")
        found = await listener.reasons(2)

    stored = await dashboard.store.events.last(EventFilter(("schedule.*",)), limit=2)
    assert found == [one.data["reason"] for one in stored]
    assert "\u2028" in found[0]


async def test_a_client_may_leave_while_others_follow(dashboard: Dashboard) -> None:
    async with listening(dashboard, "types=schedule.*") as stays:
        async with listening(dashboard, "types=schedule.*"):
            pass
        await append(dashboard.store, "a")
        first = await stays.reasons(1)
    async with listening(dashboard, "types=schedule.*") as returns:
        await append(dashboard.store, "b")
        second = await returns.reasons(1)

    assert (first, second) == (["a"], ["b"])


# ---------------- Without a server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty database."""
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        yield store


@pytest.fixture
def streams(store: Store) -> EventStreams:
    """The streams of a server of this database."""
    return EventStreams(cast("Web", SimpleNamespace(store=store)))


async def test_a_silent_stream_sends_its_cursor(store: Store, streams: EventStreams) -> None:
    stream = await streams.open(EventFilter(("schedule.resumed",)), None)

    async with aclosing(cast("Any", stream)):
        first = await anext(stream)
        await append(store, "not wanted", "nor this")
        second = await anext(stream)

    assert first == b"retry: 2000\nid: 0\n\n"
    assert second == b"id: 2\n\n"


async def test_streams_end_when_the_server_stops(streams: EventStreams) -> None:
    stream = await streams.open(EventFilter(), None)
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)

    streams.close()

    assert await waiting is None


async def test_a_stream_ends_so_that_its_token_is_checked(store: Store) -> None:
    streams = EventStreams(cast("Web", SimpleNamespace(store=store)), longest=20.0)
    stream = await streams.open(EventFilter(), None)

    sent = [message async for message in stream]

    assert sent == [b"retry: 2000\nid: 0\n\n", b"id: 0\n\n", b"id: 0\n\n"]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (EventFilter(), 5),
        (EventFilter(("schedule.*",)), 2),
        (EventFilter(("custom.a*", "job.created")), 2),
        (EventFilter(("custom.a_c",)), 0),
        (EventFilter(source="shop"), 3),
        (EventFilter(source="other"), 0),
        (EventFilter(subject="schedule/s2"), 1),
        (EventFilter(("job.*",), source="shop"), 2),
    ],
)
async def test_an_event_is_tested_as_it_is_queried(
    store: Store, wanted: EventFilter, count: int
) -> None:
    job = await queued(store, "x")
    await append(store, "a")
    await append(store, "b", schedule="s2")
    await store.events.append(event_row(job.id, 1.0, "custom.abc"))
    every, _ = await store.events.read(0, EventFilter())
    sources = await store.events.sources({job.id})
    is_wanted = wanted.test()

    queried, _ = await store.events.read(0, wanted)

    assert [one for one in every if is_wanted(one, sources.get(one.job))] == queried
    assert len(queried) - _items(queried) == count


def _items(events: list[Event]) -> int:
    return sum(one.type.startswith("items.") for one in events)
