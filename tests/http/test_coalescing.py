"""Identical requests are made once: in flight, and in a whole run where the source says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed
from longline.core.model import Usage
from longline.http.errors import TimedOut
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.coalescing import CoalescingMiddleware
from longline.http.middleware.retry import RetryMiddleware
from longline.http.middleware.status import StatusMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.retry import RetryHandler
from tests.scripted_site import ScriptedSite, drop
from tests.virtual import VirtualClock


class Slow:
    """An answer that takes ten seconds, and says who was the first to ask."""

    def __init__(self, status: int = 200) -> None:
        self.is_asked = asyncio.Event()
        self.status = status

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.is_asked.set()
        await asyncio.sleep(10)
        return web.Response(text=request.headers.get("X-Who", ""), status=self.status)


@pytest.fixture
async def transport(clock: VirtualClock) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(HttpOptions(timeout=60), clock)
    yield transport
    await transport.close()


@pytest.fixture
def joining(transport: HttpTransport) -> CoalescingMiddleware:
    return CoalescingMiddleware(transport)


async def ask(
    middleware: Middleware, request: Request, times: int
) -> tuple[list[Page], list[Usage]]:
    """Send the same request concurrently; return the pages and what each cost."""
    usages = [Usage() for _ in range(times)]
    pages = await asyncio.gather(*(middleware(request, usage) for usage in usages))
    return pages, usages


# ---------------------------------------------------------------- in flight


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_identical_requests_in_flight_share_one_answer(
    site: ScriptedSite, joining: CoalescingMiddleware, method: str
) -> None:
    site.answers["/a"] = Slow()

    pages, usages = await ask(joining, Request(f"{site.url}/a", method), 5)

    assert site.hits["/a"] == 1
    assert [page.status for page in pages] == [200] * 5
    assert sorted((one.requests, one.joined) for one in usages) == [(0, 1)] * 4 + [(1, 0)]
    assert {one.status for one in usages} == {200}


async def test_requests_one_after_the_other_are_made_each(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.says("/a", "x")
    request = Request(f"{site.url}/a")

    for _ in range(3):
        await joining(request, Usage())

    assert site.hits["/a"] == 3


@pytest.mark.parametrize(
    "other",
    [
        {"method": "HEAD"},
        {"headers": {"X-Who": "b"}},
        {"hidden": {"key": "secret"}},
        {"url": "/a?page=2"},
        {"timeout": 5.0},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_requests_that_differ_are_made_each(
    site: ScriptedSite, joining: CoalescingMiddleware, other: dict[str, object]
) -> None:
    site.says("/a", "x")
    path = str(other.pop("url", "/a"))
    first = Request(f"{site.url}/a", headers={"X-Who": "a"})
    values = {"headers": {"X-Who": "a"}, **other}
    second = Request(f"{site.url}{path}", **values)  # type: ignore[arg-type]  # a test's shorthand

    await asyncio.gather(joining(first, Usage()), joining(second, Usage()))

    assert site.hits["/a"] == 2


@pytest.mark.parametrize(("method", "body"), [("POST", b"x"), ("POST", None), ("GET", b"x")])
async def test_requests_that_may_change_something_are_made_each(
    site: ScriptedSite, joining: CoalescingMiddleware, method: str, body: bytes | None
) -> None:
    site.answers["/a"] = Slow()

    await ask(joining, Request(f"{site.url}/a", method, body=body), 3)

    assert site.hits["/a"] == 3


async def test_statuses_that_a_caller_accepts_are_no_difference(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.answers["/a"] = Slow(status=404)
    plain = Request(f"{site.url}/a")
    generous = Request(f"{site.url}/a", accept=frozenset({404}))

    await asyncio.gather(joining(plain, Usage()), joining(generous, Usage()))

    assert site.hits["/a"] == 1


async def test_everyone_has_a_page_of_their_own(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.says("/a", "<p>one</p><p>two</p>")

    (first, second), _accounts = await ask(joining, Request(f"{site.url}/a"), 2)
    first.css("p")[0].decompose()

    assert [node.text() for node in second.css("p")] == ["one", "two"]


# ---------------------------------------------------------------- failures


async def test_a_failure_is_everyones_failure(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.answers["/a"] = drop
    usages = [Usage() for _ in range(3)]

    errors = await asyncio.gather(
        *(joining(Request(f"{site.url}/a"), usage) for usage in usages),
        return_exceptions=True,
    )

    assert site.hits["/a"] == 1
    assert [type(error) for error in errors] == [ConnectFailed] * 3
    assert len({id(error) for error in errors}) == 3
    assert len({str(error) for error in errors}) == 1
    assert sum(one.joined for one in usages) == 2


async def test_a_deadline_is_everyones_deadline(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.answers["/a"] = Slow()
    request = Request(f"{site.url}/a", timeout=2)

    errors = await asyncio.gather(
        *(joining(request, Usage()) for _ in range(2)), return_exceptions=True
    )

    assert [str(error) for error in errors] == [str(TimedOut(request.url, 2))] * 2


async def test_everyone_tries_again_and_again_only_one_goes(
    site: ScriptedSite, transport: HttpTransport, clock: VirtualClock
) -> None:
    site.says_in_turn("/a", 500, 503, 200)
    retry = RetryHandler(circuit_breaker_threshold=None, clock=clock, jitter=0.0)
    chain = RetryMiddleware(StatusMiddleware(CoalescingMiddleware(transport), clock), retry, clock)

    pages, usages = await ask(chain, Request(f"{site.url}/a"), 4)

    assert site.hits["/a"] == 3
    assert [page.text for page in pages] == ["ok"] * 4
    assert [one.retries for one in usages] == [2] * 4


async def test_a_bug_below_is_seen_by_all(clock: VirtualClock) -> None:
    class Broken(Middleware):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del request, usage
            await clock.sleep(1)
            raise KeyError("bug")

    joining = CoalescingMiddleware(Broken())

    errors = await asyncio.gather(
        *(joining(Request("http://x.test/"), Usage()) for _ in range(2)), return_exceptions=True
    )

    assert [type(error) for error in errors] == [KeyError] * 2


# ---------------------------------------------------------------- cancellations


async def test_when_the_one_that_went_is_cancelled_one_of_the_others_goes(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    slow = site.answers["/a"] = Slow()
    request = Request(f"{site.url}/a")
    usages = [Usage() for _ in range(4)]
    first, *others = [asyncio.create_task(joining(request, usage)) for usage in usages]
    await slow.is_asked.wait()

    first.cancel()
    pages = await asyncio.gather(*others)

    assert first.cancelled()
    assert [page.status for page in pages] == [200] * 3
    assert site.hits["/a"] == 2
    assert [(one.requests, one.joined) for one in usages] == [(1, 0), (1, 0), (0, 1), (0, 1)]


async def test_a_waiter_may_be_cancelled_alone(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    slow = site.answers["/a"] = Slow()
    request = Request(f"{site.url}/a")
    first, second, third = [asyncio.create_task(joining(request, Usage())) for _ in range(3)]
    await slow.is_asked.wait()

    second.cancel()
    pages = await asyncio.gather(first, third)

    assert second.cancelled()
    assert [page.status for page in pages] == [200] * 2
    assert site.hits["/a"] == 1


async def test_all_may_be_cancelled_and_the_next_one_goes(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    slow = site.answers["/a"] = Slow()
    request = Request(f"{site.url}/a")
    tasks = [asyncio.create_task(joining(request, Usage())) for _ in range(3)]
    await slow.is_asked.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    page = await joining(request, Usage())

    assert page.status == 200
    assert site.hits["/a"] == 2


# ---------------------------------------------------------------- shared within a run


async def test_a_shared_request_is_made_once_in_a_run(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.says("/a", "x")
    request = Request(f"{site.url}/a", is_shared=True)
    usage = Usage()

    texts = [(await joining(request, usage)).text for _ in range(3)]

    assert texts == ["x"] * 3
    assert (site.hits["/a"], usage.requests, usage.joined) == (1, 1, 2)


async def test_shared_requests_at_the_same_time_are_one_too(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.answers["/a"] = Slow()

    await ask(joining, Request(f"{site.url}/a", is_shared=True), 3)
    await ask(joining, Request(f"{site.url}/a", is_shared=True), 3)

    assert site.hits["/a"] == 1


async def test_a_request_that_is_not_shared_is_sent_again(
    site: ScriptedSite, joining: CoalescingMiddleware
) -> None:
    site.says("/a", "x")
    await joining(Request(f"{site.url}/a", is_shared=True), Usage())

    await joining(Request(f"{site.url}/a"), Usage())

    assert site.hits["/a"] == 2


async def test_a_failure_is_not_kept(site: ScriptedSite, joining: CoalescingMiddleware) -> None:
    site.says_in_turn("/a", 404, 200)
    request = Request(f"{site.url}/a", is_shared=True)

    statuses = [(await joining(request, Usage())).status for _ in range(3)]

    assert statuses == [404, 200, 200]
    assert site.hits["/a"] == 2


async def test_what_was_asked_for_longest_ago_makes_room(
    site: ScriptedSite, transport: HttpTransport
) -> None:
    joining = CoalescingMiddleware(transport, kept_bytes=25_000)
    for name in "abc":
        site.says(f"/{name}", name * 10_000)

    for name in "abacab":
        await joining(Request(f"{site.url}/{name}", is_shared=True), Usage())

    assert site.hits == {"/a": 1, "/b": 2, "/c": 1}


async def test_an_answer_larger_than_all_the_room_is_not_kept(
    site: ScriptedSite, transport: HttpTransport
) -> None:
    joining = CoalescingMiddleware(transport, kept_bytes=5_000)
    site.says("/a", "a" * 10_000)

    for _ in range(2):
        await joining(Request(f"{site.url}/a", is_shared=True), Usage())

    assert site.hits["/a"] == 2
