"""Functions that are there already: as sources that stream, block, fail, and are called again."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from longline.core.errors import BadOption, BadSource, ServerFailed, UnexpectedShape
from longline.core.model import Item, ItemState, JobState
from longline.http.messages import Page
from longline.orchestrator import Orchestrator
from longline.sources.base import Visit
from longline.sources.function import function_source
from longline.storage.query import RecordQuery
from tests.scripted_site import ScriptedSite
from tests.sources.scripted import ScriptedWeb, collect, discovered
from tests.virtual import VirtualClock

SITE = "http://shop.test"


def listing() -> list[dict[str, Any]]:
    return [{"id": 1, "name": "rope"}, {"id": 2, "name": "oil"}]


def generator() -> Iterator[dict[str, Any]]:
    yield from listing()


async def coroutine() -> list[dict[str, Any]]:
    return listing()


async def async_generator() -> AsyncIterator[dict[str, Any]]:
    for record in listing():
        yield record


@pytest.mark.parametrize("function", [listing, generator, coroutine, async_generator])
async def test_records_can_be_returned_or_yielded(
    function: Callable[[], Any], clock: VirtualClock
) -> None:
    kind = function_source(function)
    source = kind()

    items, _ = await discovered(source, ScriptedWeb({}), clock)
    data, _ = await collect(source, ScriptedWeb({}), items[1], clock)

    assert (kind.name, kind.kind) == (function.__name__, "function")
    assert [item.key for item in items] == ["1", "2"]
    assert data == {"id": 2, "name": "oil"}


async def test_records_come_as_they_are_made(clock: VirtualClock) -> None:
    is_seen = threading.Event()

    def slow() -> Iterator[dict[str, Any]]:
        yield from ({"id": number} for number in range(100))
        assert is_seen.wait(10)
        yield {"id": "last"}

    seen = []
    async for item in function_source(slow)().discover(Visit(ScriptedWeb({}), clock)):
        assert isinstance(item, Item)
        seen.append(item.key)
        if len(seen) == 100:
            is_seen.set()

    assert seen[-1] == "last"


@pytest.mark.real_time
async def test_a_record_does_not_wait_for_the_next_one() -> None:
    is_taken = threading.Event()

    def slow() -> Iterator[dict[str, Any]]:
        yield {"id": 1}
        yield {"id": 2, "was_taken": is_taken.wait(10)}

    stream = function_source(slow)().discover(Visit(ScriptedWeb({}), VirtualClock()))
    await anext(stream)
    is_taken.set()
    second = await anext(stream)

    assert isinstance(second, Item)
    assert second.data["record"]["was_taken"] is True


async def test_a_generator_stays_in_one_thread(clock: VirtualClock) -> None:
    def from_sqlite() -> Iterator[dict[str, Any]]:
        database = sqlite3.connect(":memory:")
        for number in range(250):
            database.execute("select 1")
            yield {"id": number}
        database.close()

    items, _ = await discovered(function_source(from_sqlite)(), ScriptedWeb({}), clock)

    assert len(items) == 250


async def test_what_came_before_a_failure_is_kept(clock: VirtualClock) -> None:
    def breaking() -> Iterator[dict[str, Any]]:
        yield {"id": 1}
        raise SystemExit(3)

    stream = function_source(breaking)().discover(Visit(ScriptedWeb({}), clock))

    first = await anext(stream)
    with pytest.raises(RuntimeError, match=r"sys.exit\(3\)"):
        await anext(stream)

    assert isinstance(first, Item)


async def test_a_generator_that_is_left_is_closed(clock: VirtualClock) -> None:
    is_closed = threading.Event()

    def endless() -> Iterator[dict[str, Any]]:
        try:
            while True:
                yield {"id": 1}
        finally:
            is_closed.set()

    stream = function_source(endless)().discover(Visit(ScriptedWeb({}), clock))
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator

    assert await asyncio.get_running_loop().run_in_executor(None, is_closed.wait, 10)


async def test_two_records_with_one_key_are_both_kept(clock: VirtualClock) -> None:
    def twins() -> list[dict[str, Any]]:
        return [{"url": SITE, "price": 1}, {"url": SITE, "price": 2}, {"url": SITE, "price": 1}]

    visit = Visit(ScriptedWeb({}), clock)
    items = [item async for item in function_source(twins)().discover(visit)]

    assert len({item.key for item in items if isinstance(item, Item)}) == 2
    assert visit.notes[0].field == SITE


async def test_a_value_that_is_not_a_record_is_refused(clock: VirtualClock) -> None:
    source = function_source(lambda: ["text", {"id": 1}])()

    items, _ = await discovered(source, ScriptedWeb({}), clock)

    assert items[1].key == "1"
    with pytest.raises(UnexpectedShape, match=r"str.*'text'"):
        await collect(source, ScriptedWeb({}), items[0], clock)


@pytest.mark.parametrize("result", [None, 5, "text"])
async def test_a_function_that_gives_no_records_is_refused(
    result: Any, clock: VirtualClock
) -> None:
    with pytest.raises(UnexpectedShape, match=type(result).__name__):
        await discovered(function_source(lambda: result)(), ScriptedWeb({}), clock)


async def test_parameters_are_settings(clock: VirtualClock) -> None:
    def counting(pages: int = 1, *, word: str) -> list[dict[str, Any]]:
        return [{"id": f"{word}{page}"} for page in range(pages)]

    kind = function_source(counting)
    items, _ = await discovered(
        kind.with_options({"pages": "2", "word": "a"}), ScriptedWeb({}), clock
    )

    assert [item.key for item in items] == ["a0", "a1"]
    with pytest.raises(BadOption, match=r"counting.*pages, word"):
        kind.with_options({"word": "a", "depth": 1})


async def test_a_fetch_of_blocking_code_goes_through_the_chain(clock: VirtualClock) -> None:
    def asking(fetch: Callable[..., Page]) -> Iterator[dict[str, Any]]:
        yield {"id": 1, "text": fetch(f"{SITE}/a", params={"q": 1}).text}
        yield {"id": 2, "status": fetch(f"{SITE}/b", json={"c": 1}, accept={404}).status}

    web = ScriptedWeb({f"{SITE}/a?q=1": "hello"})
    source = function_source(asking)()
    items, _ = await discovered(source, web, clock)

    assert [item.data["record"] for item in items] == [
        {"id": 1, "text": "hello"},
        {"id": 2, "status": 404},
    ]
    assert [request.body for request in web.requests] == [None, b'{"c":1}']


async def test_a_session_goes_through_the_chain(clock: VirtualClock) -> None:
    def asking(session: requests.Session) -> dict[str, Any]:
        missing = session.get(f"{SITE}/missing")
        found = session.post(f"{SITE}/a", data={"b": "c"}, timeout=7)
        return {"id": 1, "text": found.text, "status": missing.status_code}

    web = ScriptedWeb({f"{SITE}/a": "höllo"})
    items, _ = await discovered(function_source(asking)(), web, clock)

    assert items[0].data["record"] == {"id": 1, "text": "höllo", "status": 404}
    assert (web.requests[1].body, web.requests[1].timeout) == (b"b=c", 7)


async def test_the_fetch_of_async_code_is_that_of_the_visit(clock: VirtualClock) -> None:
    async def asking(fetch: Callable[..., Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"id": (await fetch(f"{SITE}/a")).text}

    items, _ = await discovered(function_source(asking)(), ScriptedWeb({f"{SITE}/a": "x"}), clock)

    assert items[0].key == "x"


async def test_a_function_of_an_address_is_called_for_each(clock: VirtualClock) -> None:
    def length(url: str) -> dict[str, Any]:
        return {"length": len(url)}

    source = function_source(length).with_options({"items": f"{SITE}/a, {SITE}/bc"})
    items, _ = await discovered(source, ScriptedWeb({}), clock)
    data, _ = await collect(source, ScriptedWeb({}), items[1], clock)

    assert [item.url for item in items] == [f"{SITE}/a", f"{SITE}/bc"]
    assert data == {"length": len(SITE) + 3}


async def test_items_can_come_from_a_file(clock: VirtualClock, tmp_path: Path) -> None:
    def one(item: Item) -> dict[str, Any]:
        return {"key": item.key}

    (tmp_path / "list").write_text("a\nb\n")
    from_file = function_source(one).with_options({"items": f"@{tmp_path}/list"})

    items, _ = await discovered(from_file, ScriptedWeb({}), clock)

    assert [item.key for item in items] == ["a", "b"]
    with pytest.raises(BadOption, match="nowhere"):
        function_source(one).with_options({"items": "@nowhere"})


async def test_a_function_of_an_item_that_asks_by_itself_is_tried_again(
    clock: VirtualClock,
) -> None:
    tries: list[float] = []

    def failing(url: str) -> dict[str, Any]:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionResetError
        return {"url": url}

    source = function_source(failing).with_options({"items": SITE})
    started = clock.now()
    (item,), _ = await discovered(source, ScriptedWeb({}), clock)
    data, _ = await collect(source, ScriptedWeb({}), item, clock)

    assert data == {"url": SITE}
    assert 2.7 <= clock.now() - started <= 3.4


async def test_the_status_in_a_foreign_error_decides(clock: VirtualClock) -> None:
    tries: list[int] = []

    def failing(url: str) -> None:
        tries.append(1)
        response = requests.Response()
        response.status_code = 500 if len(tries) < 4 else 404
        response.url = url
        response.raise_for_status()

    source = function_source(failing).with_options({"items": SITE})
    (item,), _ = await discovered(source, ScriptedWeb({}), clock)

    with pytest.raises(ServerFailed):
        await collect(source, ScriptedWeb({}), item, clock)

    assert len(tries) == 3


@pytest.mark.parametrize("function", [len, lambda a, /: a])
def test_what_cannot_be_given_its_parameters_is_refused(function: Any) -> None:
    with pytest.raises(BadSource):
        function_source(function)


def test_a_session_is_not_for_async_code() -> None:
    async def asking(session: requests.Session) -> None: ...

    with pytest.raises(BadSource, match="`fetch`"):
        function_source(asking)


SCRAPER = """
def numbers(fetch, count: int = 3):
    for number in range(count):
        yield {"id": number, "text": fetch(SITE + f"/item/{number}").text}

def several(url):
    return [{"id": 1}, {"id": 2}] if url.endswith("2") else None
"""


@pytest.fixture
def scraper(site: ScriptedSite, tmp_path: Path) -> Path:
    for number in range(3):
        site.says(f"/item/{number}", f"page {number}")
    path = tmp_path / "scraper.py"
    path.write_text(f"SITE = {site.url!r}\n{SCRAPER}")
    return path


async def test_a_function_in_a_file_is_run_and_run_again(
    scraper: Path, clock: VirtualClock, tmp_path: Path
) -> None:
    async with Orchestrator(home=tmp_path, clock=clock) as longline:
        report = await longline.execute(f"{scraper}:numbers")
        again = await longline.execute(f"{scraper}:numbers", {"set": {"count": 2}})
        rows = list(longline.store.records.stream(RecordQuery()))

    assert (report.state, report.progress.successful) == (JobState.COMPLETE, 3)
    assert [row["data"]["text"] for row in rows] == ["page 0", "page 1", "page 2"]
    assert again.progress.counts[ItemState.UNCHANGED] == 2


async def test_several_records_of_one_item_are_records_each(
    scraper: Path, clock: VirtualClock, tmp_path: Path
) -> None:
    async with Orchestrator(home=tmp_path, clock=clock) as longline:
        report = await longline.execute(
            f"{scraper}:several", {"set": {"items": f"{SITE}/1 {SITE}/2"}}
        )

    assert report.state is JobState.COMPLETE
    assert report.progress.successful == 2
    assert report.progress.counts[ItemState.SKIPPED] == 2


async def test_a_record_that_is_not_data_is_refused_and_the_others_are_taken(
    clock: VirtualClock,
) -> None:
    def listed() -> list[dict[str, Any]]:
        return [{"id": 1, "o": object()}, {"id": 2, "tags": {"b", "a"}}]

    source = function_source(listed)()
    odd, good = (await discovered(source, ScriptedWeb({}), clock))[0]
    data, _ = await collect(source, ScriptedWeb({}), good, clock)

    assert data == {"id": 2, "tags": ["a", "b"]}
    with pytest.raises(UnexpectedShape, match=r"\bo\b.*\bobject\b"):
        await collect(source, ScriptedWeb({}), odd, clock)
