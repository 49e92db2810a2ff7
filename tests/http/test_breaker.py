"""BreakerMiddleware over real HTTP: what it counts, reports and refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longline.core.errors import CircuitOpen, ConnectFailed, FailureKind
from longline.core.model import Usage
from longline.http.messages import Page, Request
from longline.http.middleware.breaker import BreakerMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.breaker import BreakerState, CircuitBreaker, Phase
from tests.limit_backends import SqliteStates
from tests.scripted_site import ScriptedSite, drop
from tests.virtual import VirtualClock


class Bench:
    """breaker → HTTP, with a backend that is not called while the circuit is closed."""

    def __init__(self, clock: VirtualClock, path: Path) -> None:
        self.usage = Usage()
        self.transport = HttpTransport(HttpOptions(), clock)
        self.backend = SqliteStates(path, "breaker", BreakerState, clock)
        self.breaker = CircuitBreaker(clock=clock, backend=self.backend, freshness=0.5)
        self.middleware = BreakerMiddleware(self.transport, self.breaker, clock)

    async def get(self, url: str) -> Page:
        return await self.middleware(Request(url), self.usage)


@pytest.fixture
async def bench(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(clock, tmp_path / "keeper.sqlite")
    yield bench
    await bench.transport.close()
    await bench.backend.close()


def domain_of(site: ScriptedSite) -> str:
    return site.url.removeprefix("http://")


@pytest.mark.parametrize("pause", ["1", "Fri, 15 Jan 2027 08:05:00 GMT"])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_response_with_retry_after_does_not_open_the_breaker(
    site: ScriptedSite, bench: Bench, status: int, pause: str
) -> None:
    site.says("/a", status=status, headers={"Retry-After": pause})

    for _ in range(30):
        assert (await bench.get(f"{site.url}/a")).status == status


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_ten_failures_that_say_nothing_open_it(
    site: ScriptedSite, bench: Bench, status: int
) -> None:
    site.says("/a", status=status)

    for _ in range(9):
        await bench.get(f"{site.url}/a")
    with pytest.raises(CircuitOpen, match=rf"\b10\b.*\b{status}\b") as caught:
        await bench.get(f"{site.url}/a")

    assert caught.value.kind is FailureKind.NETWORK
    (opened,) = bench.usage.events
    assert opened.type == "breaker.opened"
    assert opened.data["domain"] == domain_of(site)


async def test_half_of_the_requests_failing_opens_it(site: ScriptedSite, bench: Bench) -> None:
    site.says("/good", "x")
    site.answers["/bad"] = drop

    for _ in range(9):
        await bench.get(f"{site.url}/good")
        with pytest.raises(ConnectFailed):
            await bench.get(f"{site.url}/bad")
    await bench.get(f"{site.url}/good")
    with pytest.raises(CircuitOpen, match="50%"):
        await bench.get(f"{site.url}/bad")


async def test_calm_successes_are_counted_without_asking_the_keeper(
    site: ScriptedSite, bench: Bench
) -> None:
    site.says("/good", "x")
    site.answers["/bad"] = drop
    for _ in range(30):
        await bench.get(f"{site.url}/good")
    untold = await bench.backend.all()

    with pytest.raises(ConnectFailed):
        await bench.get(f"{site.url}/bad")

    assert untold == {}
    circuit = await bench.breaker.state(domain_of(site))
    assert circuit.rate == pytest.approx(1 / 31)


async def test_a_domain_comes_back_by_a_probe_and_slowly(
    site: ScriptedSite, bench: Bench, clock: VirtualClock
) -> None:
    site.says_in_turn("/a", *[500] * 10, 200)
    for _ in range(9):
        await bench.get(f"{site.url}/a")
    with pytest.raises(CircuitOpen):
        await bench.get(f"{site.url}/a")
    await clock.sleep(61)

    for _ in range(3):
        await bench.get(f"{site.url}/a")

    assert [one.type for one in bench.usage.events] == ["breaker.opened", "breaker.closed"]
    assert (await bench.breaker.state(domain_of(site))).phase is Phase.RAMPING
    await clock.sleep(6)
    for _ in range(20):
        await bench.get(f"{site.url}/a")
    assert (await bench.breaker.state(domain_of(site))).phase is Phase.CLOSED


async def test_an_item_of_several_requests_is_not_started_again(
    site: ScriptedSite, bench: Bench, clock: VirtualClock
) -> None:
    site.says_in_turn("/a", *[500] * 10, 200)
    for _ in range(9):
        await bench.get(f"{site.url}/a")
    with pytest.raises(CircuitOpen):
        await bench.get(f"{site.url}/a")
    await clock.sleep(61)
    await bench.get(f"{site.url}/a")

    async def item() -> list[int]:
        return [(await bench.get(f"{site.url}/a")).status for _ in range(6)]

    items = await asyncio.gather(*(item() for _ in range(4)))

    assert items == [[200] * 6] * 4


async def test_a_missing_page_ends_the_rest_too(
    site: ScriptedSite, bench: Bench, clock: VirtualClock
) -> None:
    site.says("/a", status=500)
    for _ in range(9):
        await bench.get(f"{site.url}/a")
    with pytest.raises(CircuitOpen):
        await bench.get(f"{site.url}/a")
    await clock.sleep(61)

    page = await bench.get(f"{site.url}/missing")

    assert page.status == 404
    assert bench.usage.events[-1].type == "breaker.closed"
