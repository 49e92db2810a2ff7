from __future__ import annotations

import asyncio

import pytest

from longline.core.model import Account
from longline.http.chain import Policies, build_chain
from longline.http.messages import Page, Request
from longline.http.middleware.base import Link
from longline.limits.backends.memory import MemoryConcurrencyKeeper, MemoryPaceKeeper
from longline.limits.circuit import CircuitBreaker
from longline.limits.in_flight import Doorman
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryHandler
from tests.virtual import VirtualClock

DOMAIN = "a.test"


class SlowSite(Link):
    """A site that takes its time, and counts how many wait for it at once."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.inside = 0
        self.most = 0
        self.moments: list[float] = []

    async def __call__(self, request: Request, account: Account) -> Page:
        account.requests += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.moments.append(self._clock.now())
        await self._clock.sleep(self._seconds)
        self.inside -= 1
        return Page(request.url, 200, {}, b"")


def chain(site: Link, clock: VirtualClock, *, at_once: int | None, rate: float | None) -> Link:
    doorman = Doorman(at_once, clock=clock) if at_once else None
    return build_chain(
        site,
        Policies(
            RateLimiter(rate, 1, clock=clock, margin=0.0),
            CircuitBreaker(clock=clock),
            RetryHandler(circuit_breaker_threshold=None, clock=clock),
            ignored_robots=frozenset({DOMAIN}),
            doorman=doorman,
        ),
        clock,
    )


async def ask(link: Link, times: int) -> list[Account]:
    accounts = [Account() for _ in range(times)]
    asking = (link(Request(f"http://{DOMAIN}/{n}"), account) for n, account in enumerate(accounts))
    await asyncio.gather(*asking)
    return accounts


@pytest.mark.parametrize(("at_once", "most"), [(2, 2), (None, 8)])
async def test_a_limit_holds_when_it_is_set(
    clock: VirtualClock, at_once: int | None, most: int
) -> None:
    site = SlowSite(clock, 1.0)

    accounts = await ask(chain(site, clock, at_once=at_once, rate=None), 8)

    assert site.most == most
    assert sum(account.waits for account in accounts) == 8 - most


async def test_the_pace_is_kept_too_and_nobody_waits_for_room_with_a_slot_in_hand(
    clock: VirtualClock,
) -> None:
    site, begun = SlowSite(clock, 1.5), clock.now()

    await ask(chain(site, clock, at_once=1, rate=1.0), 4)

    moments = [moment - begun for moment in site.moments]
    assert moments == pytest.approx([0.0, 1.5, 3.0, 4.5], abs=0.01)


async def test_processes_share_pace_and_room(clock: VirtualClock) -> None:
    site = SlowSite(clock, 3.0)
    paces, rooms = MemoryPaceKeeper(clock), MemoryConcurrencyKeeper(clock)
    links = [
        build_chain(
            site,
            Policies(
                RateLimiter(1.0, 1, clock=clock, keeper=paces),
                CircuitBreaker(clock=clock),
                RetryHandler(circuit_breaker_threshold=None, clock=clock),
                ignored_robots=frozenset({DOMAIN}),
                doorman=Doorman(2, clock=clock, keeper=rooms),
            ),
            clock,
        )
        for _ in range(3)
    ]

    await asyncio.gather(*(ask(link, 3) for link in links))

    assert (site.most, len(site.moments)) == (2, 9)
