from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from longline.core.errors import CircuitOpen, ConnectFailed, Deferred, Gone, Refused, ServerFailed
from longline.core.model import Usage
from longline.http.chain import Policies, build_chain
from longline.http.errors import BadAnswer, RobotsDisallowed
from longline.http.messages import Middleware, Request
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.breaker import CircuitBreaker
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryHandler
from tests.scripted_site import ScriptedSite, drop
from tests.virtual import VirtualClock


class Bench:
    """A chain over real HTTP, with policies in memory that a test can look at."""

    def __init__(self, clock: VirtualClock, *, ignored: frozenset[str] = frozenset()) -> None:
        self.limiter = RateLimiter(2.0, 5, clock=clock)
        self.breaker = CircuitBreaker(clock=clock)
        self.usage = Usage()
        self.transport = HttpTransport(HttpOptions(timeout=10), clock)
        retry = RetryHandler(circuit_breaker_threshold=None, clock=clock, jitter=0.0)
        policies = Policies(self.limiter, self.breaker, retry, ignored)
        self.closing = AsyncExitStack()
        self.closing.push_async_callback(self.transport.close)
        self.chain: Middleware = build_chain(self.transport, policies, clock, self.closing)

    async def get(self, url: str, **values: object) -> str:
        page = await self.chain(Request(url, **values), self.usage)  # type: ignore[arg-type]  # a test's shorthand
        return page.text


@pytest.fixture
async def bench(clock: VirtualClock) -> AsyncIterator[Bench]:
    bench = Bench(clock)
    yield bench
    await bench.closing.aclose()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_failure_that_may_pass_is_retried(
    site: ScriptedSite, bench: Bench, status: int
) -> None:
    site.says_in_turn("/a", status, 200)

    text = await bench.get(f"{site.url}/a")

    assert text == "ok"
    assert (site.hits["/a"], bench.usage.retries) == (2, 1)


@pytest.mark.parametrize(
    ("status", "error"), [(401, Refused), (403, Refused), (404, Gone), (410, Gone), (400, Refused)]
)
async def test_a_failure_that_stays_is_not_retried(
    site: ScriptedSite, bench: Bench, status: int, error: type[Exception]
) -> None:
    site.says("/a", status=status)

    with pytest.raises(error):
        await bench.get(f"{site.url}/a")

    assert site.hits["/a"] == 1


async def test_three_attempts_wait_one_and_two_seconds(
    site: ScriptedSite, bench: Bench, clock: VirtualClock
) -> None:
    site.says("/a", status=500)
    started = clock.now()

    with pytest.raises(ServerFailed):
        await bench.get(f"{site.url}/a")

    assert site.hits["/a"] == 3
    assert clock.now() - started == pytest.approx(3, abs=0.1)


async def test_a_dropped_connection_is_retried_and_every_attempt_is_counted(
    site: ScriptedSite, bench: Bench
) -> None:
    site.answers["/a"] = drop

    with pytest.raises(ConnectFailed):
        await bench.get(f"{site.url}/a")

    assert site.hits["/a"] == 3
    assert bench.usage.requests == sum(site.hits.values())


async def test_a_status_the_caller_accepts_is_no_failure(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", "gone but readable", status=404)

    text = await bench.get(f"{site.url}/a", accept=frozenset({404}))

    assert text == "gone but readable"


async def test_every_redirect_and_every_retry_pays_for_its_token(
    site: ScriptedSite, bench: Bench
) -> None:
    site.says("/a", status=302, headers={"Location": "/b"})
    site.says_in_turn("/b", 500, 200)

    await bench.get(f"{site.url}/a")

    assert bench.limiter.get_statistics().requests == sum(site.hits.values()) == 5


async def test_twenty_requests_leave_at_the_declared_pace(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", "x")
    urls = [f"{site.url}/a?{number}" for number in range(19)]

    await asyncio.gather(*(bench.get(url) for url in urls))

    first = site.moments[0]
    assert [moment - first for moment in site.moments[:5]] == pytest.approx([0] * 5, abs=0.05)
    assert site.moments[19] - first == pytest.approx((20 - 5) / 2 + 0.1, abs=0.05)


async def test_a_429_stops_the_whole_domain_for_as_long_as_it_asks(
    site: ScriptedSite, bench: Bench
) -> None:
    answers = [429, 200]

    is_asked = asyncio.Event()

    async def limited(_request: web.Request) -> web.StreamResponse:
        is_asked.set()
        status = answers.pop(0)
        return web.Response(status=status, headers={"Retry-After": "20"} if status > 400 else {})

    site.answers["/a"] = limited
    site.says("/b", "x")

    await bench.get(f"{site.url}/b")
    waiting = asyncio.create_task(bench.get(f"{site.url}/a"))
    await is_asked.wait()
    stopped = site.moments[-1]
    await bench.get(f"{site.url}/b?again")
    await waiting

    assert min(moment for moment in site.moments if moment > stopped) - stopped >= 20
    assert bench.usage.rate_limited == 1


async def test_a_rest_too_long_to_sit_out_is_postponed(
    site: ScriptedSite, bench: Bench, clock: VirtualClock
) -> None:
    site.says("/a", status=503, headers={"Retry-After": "3600"})
    started = clock.now()

    with pytest.raises(Deferred) as caught:
        await bench.get(f"{site.url}/a")
    with pytest.raises(Deferred):
        await bench.get(f"{site.url}/b")

    assert caught.value.until == pytest.approx(started + 3600, abs=1)
    assert clock.now() - started < 5
    assert site.hits["/b"] == 0


async def test_ten_failures_in_a_row_park_what_comes_after(
    site: ScriptedSite, bench: Bench
) -> None:
    site.says("/a", status=500)

    failures = await asyncio.gather(
        *(bench.get(f"{site.url}/a?{number}") for number in range(6)), return_exceptions=True
    )
    with pytest.raises(CircuitOpen):
        await bench.get(f"{site.url}/b")

    assert site.hits["/a"] >= 10
    assert any(isinstance(error, CircuitOpen) for error in failures)
    assert site.hits["/b"] == 0


async def test_pages_that_are_gone_never_open_the_breaker(site: ScriptedSite, bench: Bench) -> None:
    for number in range(12):
        with pytest.raises(Gone):
            await bench.get(f"{site.url}/missing/{number}")

    site.says("/a", "still asked")
    assert await bench.get(f"{site.url}/a") == "still asked"


async def test_a_redirect_in_circles_ends(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", status=302, headers={"Location": "/a"})

    with pytest.raises(BadAnswer, match=r"\b10\b"):
        await bench.get(f"{site.url}/a")


async def test_a_post_becomes_a_get_after_303_and_stays_a_post_after_307(
    site: ScriptedSite, bench: Bench
) -> None:
    async def method(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.method)

    site.answers["/seen"] = method
    site.says("/303", status=303, headers={"Location": "/seen"})
    site.says("/307", status=307, headers={"Location": "/seen"})

    assert await bench.get(f"{site.url}/303", method="POST", body=b"x") == "GET"
    assert await bench.get(f"{site.url}/307", method="POST", body=b"x") == "POST"


async def test_secrets_do_not_follow_a_redirect_to_another_host(
    site: ScriptedSite, bench: Bench
) -> None:
    async def tell(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.headers.get("Authorization", "none"))

    site.answers["/tell"] = tell
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    site.says("/away", status=302, headers={"Location": f"{elsewhere}/tell"})
    site.says("/here", status=302, headers={"Location": "/tell"})
    headers = {"Authorization": "secret"}

    assert await bench.get(f"{site.url}/here", headers=headers) == "secret"
    assert await bench.get(f"{site.url}/away", headers=headers) == "none"


async def test_robots_are_asked_once_a_host_and_obeyed(site: ScriptedSite, bench: Bench) -> None:
    site.says("/robots.txt", "User-agent: *\nDisallow: /private/")
    site.says("/open", "x")
    site.says("/private/a", "x")

    await bench.get(f"{site.url}/open")
    with pytest.raises(RobotsDisallowed, match="--ignore-robots 127"):
        await bench.get(f"{site.url}/private/a")

    assert site.hits["/robots.txt"] == 1
    assert site.hits["/private/a"] == 0


async def test_an_override_of_the_host_goes_on_without_asking(
    site: ScriptedSite, clock: VirtualClock
) -> None:
    site.says("/robots.txt", "User-agent: *\nDisallow: /")
    site.says("/a", "x")
    bench = Bench(clock, ignored=frozenset({"127.0.0.1"}))

    assert await bench.get(f"{site.url}/a") == "x"

    assert site.hits["/robots.txt"] == 0
    await bench.closing.aclose()


async def test_a_host_without_robots_allows_all(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", "x")

    assert await bench.get(f"{site.url}/a") == "x"
    assert site.hits["/robots.txt"] == 1


async def test_robots_that_cannot_be_had_are_no_permission(
    site: ScriptedSite, bench: Bench
) -> None:
    site.says("/robots.txt", status=500)
    site.says("/a", "x")

    with pytest.raises(Deferred):
        await bench.get(f"{site.url}/a")

    assert site.hits["/a"] == 0


async def test_robots_with_a_byte_order_mark_are_understood(
    site: ScriptedSite, bench: Bench
) -> None:
    site.says("/robots.txt", "\N{ZERO WIDTH NO-BREAK SPACE}User-agent: *\nDisallow: /")
    site.says("/a", "x")

    with pytest.raises(RobotsDisallowed):
        await bench.get(f"{site.url}/a")
