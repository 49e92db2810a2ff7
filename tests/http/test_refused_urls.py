"""A refusal is the domain's, until it is shown to be that of one address."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from longline.core.errors import Deferred
from longline.core.model import ItemState, Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.rate_limit import RateLimitMiddleware, RefusedUrls
from longline.limits.backends.state import MemoryStateBackend
from longline.limits.limiter import RateLimiter
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

BAD = "http://site.test/bad"


def refused(*urls: str) -> RefusedUrls:
    state = None
    for number, url in enumerate(urls):
        state = (state or RefusedUrls()).having(url, 100.0 + number)
    assert state is not None
    return state


def test_the_first_refusal_is_always_the_domains() -> None:
    assert not refused(BAD).is_only_url(BAD, [101.0] * 100)


def test_an_address_that_is_refused_again_while_others_succeed_is_refused_alone() -> None:
    assert refused(BAD, BAD).is_only_url(BAD, [100.5] * 3)


@pytest.mark.parametrize("successes", [[], [100.5] * 2, [99.0] * 50])
def test_without_others_that_succeed_since_it_is_the_domain(successes: list[float]) -> None:
    assert not refused(BAD, BAD).is_only_url(BAD, successes)


def test_the_more_addresses_are_refused_the_more_has_to_succeed() -> None:
    others = [f"http://site.test/{number}" for number in range(4)]
    state = refused(BAD, *others, BAD, BAD)

    assert not state.is_only_url(BAD, [110.0] * 14)
    assert state.is_only_url(BAD, [110.0] * 15)


def test_by_chance_an_address_may_be_refused_twice() -> None:
    state = refused(BAD, "http://site.test/other", BAD)

    assert not state.is_only_url(BAD, [110.0] * 1000)


def test_old_refusals_are_forgotten() -> None:
    state = RefusedUrls().having(BAD, 0.0).having(BAD, 10_000.0)

    assert not state.is_only_url(BAD, [5_000.0] * 100)


class OneBad(Middleware):
    """A site that refuses one address, and all of them while `is_closed`."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self.headers = {"retry-after": "20", **(headers or {})}
        self.is_closed = False

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        if self.is_closed or request.url == BAD:
            return Page(request.url, 429, self.headers, b"", 0.0)
        return Page(request.url, 200, {}, b"", 0.0)


async def ask(middleware: Middleware, *urls: str) -> None:
    for url in urls:
        await middleware(Request(url), Usage())


GOOD = [f"http://site.test/{number}" for number in range(5)]


async def test_an_address_that_is_refused_alone_defers_only_itself(clock: VirtualClock) -> None:
    middleware = RateLimitMiddleware(OneBad(), RateLimiter(10.0, clock=clock), clock)
    await ask(middleware, BAD, *GOOD)
    rested = clock.now()

    with pytest.raises(Deferred) as raised:
        await ask(middleware, BAD)
    await ask(middleware, *GOOD)

    assert not raised.value.is_for_domain
    assert raised.value.until - clock.now() > 15
    assert clock.now() - rested < 5


async def test_a_domain_that_refuses_others_too_is_stopped(clock: VirtualClock) -> None:
    site = OneBad()
    middleware = RateLimitMiddleware(site, RateLimiter(10.0, clock=clock), clock)
    await ask(middleware, BAD, *GOOD)
    site.is_closed = True
    await ask(middleware, GOOD[0])
    site.is_closed = False
    before = clock.now()

    await ask(middleware, GOOD[1])

    assert clock.now() - before > 19


async def test_a_refusal_with_a_quota_is_the_domains(clock: VirtualClock) -> None:
    quota = {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "20"}
    middleware = RateLimitMiddleware(OneBad(quota), RateLimiter(10.0, clock=clock), clock)
    await ask(middleware, BAD, *GOOD)
    await ask(middleware, BAD)
    before = clock.now()

    await ask(middleware, GOOD[0])

    assert clock.now() - before > 15


async def test_a_url_of_all_requests_counts_as_its_domain(
    clock: VirtualClock,
) -> None:
    middleware = RateLimitMiddleware(OneBad(), RateLimiter(10.0, clock=clock), clock)
    await ask(middleware, *GOOD)
    for _ in range(3):
        await middleware(Request(BAD, "POST"), Usage())
    before = clock.now()

    await ask(middleware, GOOD[0])

    assert clock.now() - before > 15


async def test_an_address_that_succeeds_is_as_good_as_any_other(clock: VirtualClock) -> None:
    site = OneBad()
    middleware = RateLimitMiddleware(site, RateLimiter(10.0, clock=clock), clock)
    site.is_closed = True
    await ask(middleware, GOOD[0])
    site.is_closed = False
    await ask(middleware, *GOOD)
    site.is_closed = True

    await ask(middleware, GOOD[0])  # not raised: this is its first refusal since
    site.is_closed = False
    before = clock.now()
    await ask(middleware, GOOD[1])

    assert clock.now() - before > 15


async def test_a_source_that_accepts_a_refusal_is_given_it(clock: VirtualClock) -> None:
    middleware = RateLimitMiddleware(OneBad(), RateLimiter(10.0, clock=clock), clock)
    request = Request(BAD, accept=frozenset({429}))

    pages = [await middleware(request, Usage()) for _ in range(3)]

    assert [page.status for page in pages] == [429] * 3


async def test_processes_share_what_was_refused(clock: VirtualClock) -> None:
    cells = MemoryStateBackend[RefusedUrls](clock)
    bad = OneBad({"retry-after": "60"})
    one, two = (
        RateLimitMiddleware(bad, RateLimiter(10.0, clock=clock), clock, refused_urls=cells)
        for _ in range(2)
    )
    await ask(one, BAD)
    await clock.sleep(1)
    await ask(two, *GOOD)

    with pytest.raises(Deferred):
        await ask(two, BAD)


async def test_one_bad_address_does_not_keep_the_others_from_being_collected(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"retry-after": "60"})

    for number in range(41):
        site.says(f"/item/{number}", f"page {number}")
    site.answers["/item/3"] = refuse
    async with Orchestrator(
        "tests.sample_sources:PageSource",
        {"site": site.url, "count": 41},
        home=tmp_path,
        clock=clock,
        rate=0.2,
        burst=1,
    ) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await clock.sleep(400)
        job = (await orchestrator.store.jobs.list())[0].id
        counts = await orchestrator.store.queue.counts(job)
        orchestrator.interrupt()
        await running

    assert counts[ItemState.STORED] == 40
    assert counts[ItemState.FAILED] == 0
