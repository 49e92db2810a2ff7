"""What one process learns from a site or a user reaches every process, limited or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longline.core.errors import Deferred
from longline.limits import learning
from longline.limits.backends.state import MemoryStateBackend
from longline.limits.learning import Learned
from longline.limits.limiter import RateLimiter
from longline.limits.rate_limit import BucketState, RateLimit, RateLimitBackend
from tests.limit_backends import MemoryRateLimitBackend, SqliteRateLimitBackend
from tests.virtual import EPOCH, VirtualClock

SITE = "a.test"


@pytest.fixture(params=["memory", "sqlite"])
async def backend(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[RateLimitBackend]:
    if request.param == "memory":
        yield MemoryRateLimitBackend(clock)
        return
    kept = SqliteRateLimitBackend(tmp_path / "pace.sqlite", clock)
    yield kept
    await kept.close()


class CountingBackend(MemoryRateLimitBackend):
    """A backend that counts how often it is looked at."""

    looks = 0

    async def state(self, domain: str) -> BucketState | None:
        self.looks += 1
        return await super().state(domain)


@pytest.fixture
def states(clock: VirtualClock) -> MemoryStateBackend[Learned]:
    return MemoryStateBackend[Learned](clock)


async def pin(states: MemoryStateBackend[Learned], rate: float) -> None:
    await states.change(SITE, lambda state, now: (learning.pin(state, rate, 1, now), None))


async def test_a_rest_is_kept_by_an_unlimited_process_that_begins_later(
    backend: RateLimitBackend, clock: VirtualClock
) -> None:
    await RateLimiter(None, clock=clock, backend=backend).penalise(SITE, 300)

    with pytest.raises(Deferred) as caught:
        await RateLimiter(None, clock=clock, backend=backend).acquire(SITE)

    assert caught.value.is_for_domain
    assert caught.value.until == pytest.approx(EPOCH + 300, abs=0.01)


async def test_a_rest_is_heard_of_by_an_unlimited_process_under_way(
    backend: RateLimitBackend, clock: VirtualClock
) -> None:
    ours, theirs = (RateLimiter(None, clock=clock, backend=backend) for _ in range(2))
    await ours.acquire(SITE)
    await theirs.penalise(SITE, 20)
    await clock.sleep(1.1)

    grants = await asyncio.gather(*(ours.acquire(SITE) for _ in range(5)))

    assert min(grant.at for grant in grants) >= EPOCH + 20
    assert not (await ours.acquire(SITE)).is_limited


async def test_an_unlimited_domain_is_checked_once_per_second_at_most(clock: VirtualClock) -> None:
    backend = CountingBackend(clock)
    limiter = RateLimiter(None, clock=clock, backend=backend)

    for _ in range(500):
        await asyncio.gather(*(limiter.acquire(SITE) for _ in range(4)))
        await clock.sleep(0.01)

    assert 4 <= backend.looks <= 6


async def test_a_limited_domain_needs_no_extra_checks(clock: VirtualClock) -> None:
    backend = CountingBackend(clock)
    limiter = RateLimiter(2.0, clock=clock, backend=backend)

    for _ in range(20):
        await limiter.acquire(SITE)

    assert backend.looks == 0


@pytest.mark.parametrize("rate", [20.0, None])
async def test_a_pin_and_its_end_reach_a_process_under_way_within_seconds(
    states: MemoryStateBackend[Learned], clock: VirtualClock, rate: float | None
) -> None:
    limiter = RateLimiter(rate, clock=clock, learned=states)
    await limiter.acquire(SITE)

    await pin(states, 1.0)
    await clock.sleep(3)
    await limiter.acquire(SITE)
    pinned = limiter.rate(SITE)
    await states.forget(SITE)
    await clock.sleep(3)
    await limiter.acquire(SITE)

    assert pinned == 1.0
    assert limiter.rate(SITE) == rate


async def test_a_published_limit_that_was_forgotten_counts_again_when_it_is_declared_again(
    states: MemoryStateBackend[Learned], clock: VirtualClock
) -> None:
    limiter = RateLimiter(None, clock=clock, learned=states)
    await limiter.acquire(SITE)
    await limiter.set_published(SITE, 2.0)
    await states.forget(SITE)
    await clock.sleep(3)
    await limiter.acquire(SITE)
    forgotten = limiter.limit(SITE)

    await limiter.set_published(SITE, 2.0)

    assert forgotten is None
    assert limiter.rate(SITE) == pytest.approx(1.9)


async def test_a_faster_limit_published_to_another_process_does_not_speed_this_one_up(
    states: MemoryStateBackend[Learned], clock: VirtualClock
) -> None:
    ours, theirs = (
        RateLimiter(clock=clock, learned=states, limits={SITE: RateLimit(20.0)}) for _ in range(2)
    )
    await ours.acquire(SITE)
    await ours.set_published(SITE, 2.0)
    await theirs.set_published(SITE, 8.0)

    await clock.sleep(3)
    await ours.acquire(SITE)

    assert ours.rate(SITE) == pytest.approx(1.9)
