"""The middlewares that detect a ban and defer its domain, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from longline.core.errors import Blocked, CircuitOpen, FailureKind, Refused
from longline.core.model import Usage
from longline.http.messages import Middleware, Request
from longline.http.middleware.bans import BanMiddleware
from longline.http.middleware.breaker import BreakerMiddleware
from longline.http.middleware.retry import RetryMiddleware
from longline.http.middleware.status import StatusMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.breaker import CircuitBreaker
from longline.limits.retry import RetryHandler
from tests.scripted_site import ScriptedSite
from tests.virtual import EPOCH, VirtualClock

HTML = {"Content-Type": "text/html"}
BAN = "<title>Shop</title><h1>You have been blocked</h1><p>Your IP has been blocked.</p>"


class Bench:
    """retry → statuses → breaker → bans → HTTP."""

    def __init__(self, clock: VirtualClock) -> None:
        self.usage = Usage()
        self.transport = HttpTransport(HttpOptions(), clock)
        self.breaker = CircuitBreaker(clock=clock)
        self.bans = BanMiddleware(self.transport, expects=("#listing",))
        retry = RetryHandler(circuit_breaker_threshold=None, clock=clock, jitter=0.0)
        statuses = StatusMiddleware(BreakerMiddleware(self.bans, self.breaker, clock), clock)
        self.chain: Middleware = RetryMiddleware(statuses, retry, clock)

    async def get(self, url: str) -> str:
        return (await self.chain(Request(url), self.usage)).text

    @property
    def event_kinds(self) -> list[str]:
        return [happening.type for happening in self.usage.events]


@pytest.fixture
async def bench(clock: VirtualClock) -> AsyncIterator[Bench]:
    bench = Bench(clock)
    yield bench
    await bench.transport.close()


@pytest.mark.parametrize("status", [200, 403, 503])
async def test_a_ban_page_is_no_answer(site: ScriptedSite, bench: Bench, status: int) -> None:
    site.says("/a", BAN, status, HTML)

    with pytest.raises(Blocked, match="You have been blocked"):
        await bench.bans(Request(f"{site.url}/a"), bench.usage)


async def test_what_is_expected_is_an_answer(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", f"{BAN}<div id='listing'>Flat</div>", headers=HTML)

    assert "Flat" in await bench.get(f"{site.url}/a")


async def test_a_ban_defers_the_domain_after_one_request(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", BAN, 403, HTML)
    site.says("/b", "fine")

    with pytest.raises(CircuitOpen) as met:
        await bench.get(f"{site.url}/a")
    with pytest.raises(CircuitOpen) as later:
        await bench.get(f"{site.url}/b")

    assert (site.hits["/a"], site.hits["/b"]) == (1, 0)
    assert met.value.kind is later.value.kind is FailureKind.BLOCKED
    assert met.value.until == later.value.until == pytest.approx(EPOCH + 900, abs=1)
    assert isinstance(met.value.__cause__, Blocked)


async def test_a_ban_is_an_alert_once_a_trip(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", BAN, 403, HTML)

    for _ in range(3):
        with pytest.raises(CircuitOpen):
            await bench.get(f"{site.url}/a")

    assert bench.event_kinds == ["breaker.opened", "domain.blocked"]
    data = bench.usage.events[1].data
    assert data["domain"] == site.url.removeprefix("http://")
    assert "403" in data["evidence"]
    assert "'You have been blocked'" in data["evidence"]
    assert data["until"] == pytest.approx(EPOCH + 900, abs=1)


async def test_a_lasting_ban_waits_longer_and_its_end_is_an_event(
    site: ScriptedSite, bench: Bench, clock: VirtualClock
) -> None:
    site.says("/a", BAN, 403, HTML)
    with pytest.raises(CircuitOpen):
        await bench.get(f"{site.url}/a")
    await clock.sleep(901)
    with pytest.raises(CircuitOpen) as again:
        await bench.get(f"{site.url}/a")
    rest = again.value.until - clock.now()
    await clock.sleep(rest + 1)
    site.says("/a", "welcome back")

    text = await bench.get(f"{site.url}/a")

    assert rest == pytest.approx(1_800, abs=1)
    assert text == "welcome back"
    assert bench.event_kinds == ["breaker.opened", "domain.blocked"] * 2 + ["breaker.closed"]


async def test_a_plain_refusal_parks_nothing(site: ScriptedSite, bench: Bench) -> None:
    site.says("/a", "<h1>403 Forbidden</h1>", 403, HTML)
    site.says("/b", "fine")

    with pytest.raises(Refused):
        await bench.get(f"{site.url}/a")

    assert await bench.get(f"{site.url}/b") == "fine"
    assert bench.event_kinds == []
