"""What every backend promises; a new backend joins by adding its name to BACKENDS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longline.limits.backends.redis import RedisRateLimitBackend
from longline.limits.breaker import BreakerBackend, BreakerPolicy, BreakerState, Health, Phase
from longline.limits.rate_limit import RateLimit, RateLimitBackend
from longline.storage.store import open_store
from tests.limit_backends import (
    MemoryBreakerBackend,
    MemoryRateLimitBackend,
    SqliteBreakerBackend,
    SqliteRateLimitBackend,
)
from tests.redis_connections import settled_redis
from tests.servers import RedisServer
from tests.virtual import EPOCH, VirtualClock

BACKENDS = ["memory", "sqlite", "redis"]
RATE_LIMIT = RateLimit()
POLICY = BreakerPolicy(threshold=3)
ROUNDING = 1e-5


@pytest.fixture(params=BACKENDS)
async def buckets(
    request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path
) -> AsyncIterator[RateLimitBackend]:
    if request.param == "memory":
        yield MemoryRateLimitBackend(clock)
        return
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        async with settled_redis(server.url, clock) as connection:
            yield RedisRateLimitBackend(connection)
        return
    backend = SqliteRateLimitBackend(tmp_path / "limits.sqlite", clock)
    yield backend
    await backend.close()


@pytest.fixture(params=["memory", "sqlite", "database"])
async def breakers(
    request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path
) -> AsyncIterator[BreakerBackend]:
    if request.param == "memory":
        yield MemoryBreakerBackend(clock)
        return
    if request.param == "database":
        with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
            states = store.state_backend("breaker", BreakerState, clock)
            yield BreakerBackend(states, freshness=0.5)
        return
    backend = SqliteBreakerBackend(tmp_path / "limits.sqlite", clock)
    yield backend
    await backend.close()


async def open_breaker(breakers: BreakerBackend, domain: str = "a.test") -> None:
    for _ in range(POLICY.threshold):
        await breakers.record(domain, POLICY, Health.DOWN)


async def test_a_domain_never_asked_has_no_bucket(buckets: RateLimitBackend) -> None:
    assert await buckets.state("a.test") is None


async def test_slots_of_concurrent_callers_respect_the_rate(buckets: RateLimitBackend) -> None:
    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(20)))

    waits = sorted(slot.wait for slot in slots)

    assert waits == pytest.approx([0] * 5 + [0.6 + 0.5 * n for n in range(15)], abs=ROUNDING)


async def test_a_slot_leaves_the_state_it_says(buckets: RateLimitBackend) -> None:
    slot = await buckets.reserve("a.test", RATE_LIMIT)

    assert await buckets.state("a.test") == slot.after


async def test_domains_have_buckets_of_their_own(buckets: RateLimitBackend) -> None:
    await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(9)))

    slot = await buckets.reserve("b.test", RATE_LIMIT)

    assert slot.wait == 0


async def test_time_fills_the_bucket(buckets: RateLimitBackend, clock: VirtualClock) -> None:
    await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(5)))
    await clock.sleep(2.6)

    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(5)))

    assert sum(slot.wait for slot in slots) == 0


async def test_a_slot_is_due_at_its_time(buckets: RateLimitBackend, clock: VirtualClock) -> None:
    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)))
    slot = max(slots, key=lambda slot: slot.at)

    assert await buckets.check("a.test", RATE_LIMIT, slot) == pytest.approx(0.6, abs=ROUNDING)
    await clock.sleep(slot.wait)
    assert await buckets.check("a.test", RATE_LIMIT, slot) == 0


async def test_a_penalty_voids_the_slots_before_its_end(buckets: RateLimitBackend) -> None:
    slot = await buckets.reserve("a.test", RATE_LIMIT)

    await buckets.penalise("a.test", RATE_LIMIT, 30)

    assert await buckets.check("a.test", RATE_LIMIT, slot) is None
    assert (await buckets.reserve("a.test", RATE_LIMIT)).wait == pytest.approx(30.1, abs=ROUNDING)
    assert (await buckets.reserve("a.test", RATE_LIMIT)).wait == pytest.approx(30.6, abs=ROUNDING)


async def test_lateness_moves_slots_that_are_held(buckets: RateLimitBackend) -> None:
    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)))
    slot = max(slots, key=lambda slot: slot.at)

    await buckets.observe_lateness("a.test", RATE_LIMIT, 0.2)

    assert await buckets.check("a.test", RATE_LIMIT, slot) == pytest.approx(0.8, abs=ROUNDING)


async def test_lateness_of_a_domain_never_asked_is_ignored(buckets: RateLimitBackend) -> None:
    await buckets.observe_lateness("a.test", RATE_LIMIT, 0.2)

    assert await buckets.state("a.test") is None


async def test_a_slot_given_back_is_handed_out_again(buckets: RateLimitBackend) -> None:
    slots = [await buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)]

    await buckets.cancel("a.test", slots[-1])

    assert (await buckets.reserve("a.test", RATE_LIMIT)).at == slots[-1].at


async def test_a_slot_with_a_newer_one_behind_it_is_lost(buckets: RateLimitBackend) -> None:
    slots = [await buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)]

    await buckets.cancel("a.test", slots[0])

    assert (await buckets.reserve("a.test", RATE_LIMIT)).at > slots[-1].at


async def test_a_domain_never_asked_has_a_closed_breaker(breakers: BreakerBackend) -> None:
    assert await breakers.state("a.test") == BreakerState()
    assert (await breakers.admit("a.test", POLICY)).is_allowed


async def test_failures_in_a_row_open_the_breaker(breakers: BreakerBackend) -> None:
    await open_breaker(breakers)

    admission = await breakers.admit("a.test", POLICY)

    assert not admission.is_allowed
    assert admission.until == pytest.approx(EPOCH + 60, abs=ROUNDING)


async def test_domains_have_breakers_of_their_own(breakers: BreakerBackend) -> None:
    await open_breaker(breakers)

    assert (await breakers.admit("b.test", POLICY)).is_allowed


async def test_one_of_fifty_requests_becomes_the_probe(
    breakers: BreakerBackend, clock: VirtualClock
) -> None:
    await open_breaker(breakers)
    await clock.sleep(60.1)

    admissions = await asyncio.gather(*(breakers.admit("a.test", POLICY) for _ in range(50)))

    assert [admission.is_probe for admission in admissions].count(True) == 1
    assert [admission.is_allowed for admission in admissions].count(True) == 1


async def test_a_success_of_the_probe_closes_the_breaker(
    breakers: BreakerBackend, clock: VirtualClock
) -> None:
    await open_breaker(breakers)
    await clock.sleep(60.1)
    await breakers.admit("a.test", POLICY)

    state = (await breakers.record("a.test", POLICY, Health.UP)).after

    assert state == await breakers.state("a.test")
    assert (state.phase(clock.now()), state.trips) == (Phase.RAMPING, 1)


async def test_a_lost_probe_is_replaced(breakers: BreakerBackend, clock: VirtualClock) -> None:
    await open_breaker(breakers)
    await clock.sleep(60.1)
    await breakers.admit("a.test", POLICY)
    await clock.sleep(60.1)

    assert (await breakers.admit("a.test", POLICY)).is_probe


async def test_a_breaker_is_closed_manually(breakers: BreakerBackend, clock: VirtualClock) -> None:
    await open_breaker(breakers)

    state = await breakers.reset("a.test")

    assert state.phase(clock.now()) is Phase.CLOSED
    assert (await breakers.admit("a.test", POLICY)).is_allowed
