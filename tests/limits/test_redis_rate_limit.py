"""The scripts for Redis do as `rate_limit.py` does, and all clients share one rate limit."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from redis import Redis

from longline.core.clock import Clock
from longline.limits.backends.redis import (
    RedisConcurrencyBackend,
    RedisRateLimitBackend,
)
from longline.limits.backends.state import MemoryStateBackend
from longline.limits.rate_limit import (
    BucketState,
    RateLimit,
    RateLimitBackend,
    Slot,
)
from tests.redis_connections import clocked_redis, new_prefix, settled_redis
from tests.servers import RedisServer
from tests.virtual import EPOCH, VirtualClock

DOMAIN = "a.test"
A_MINUTE = 60.0
RATE_LIMITS = [RateLimit(), RateLimit(1 / 6, 1), RateLimit(3.0, 12, 1.0), RateLimit(997.0, 7, 0.0)]


@dataclass
class Hands(Clock):
    """A clock that is set by hand, back too."""

    time: float = EPOCH

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass(frozen=True)
class Move:
    """What is done after some seconds, with a number if it needs one."""

    after: float
    limit: RateLimit
    what: str
    figure: float


MOVES = st.builds(
    Move,
    after=st.one_of(st.just(0.0), st.floats(0, 3), st.floats(-50, 400)),
    limit=st.sampled_from(RATE_LIMITS),
    what=st.sampled_from(["reserve"] * 4 + ["check", "penalise", "late", "give back", "state"]),
    figure=st.floats(0, 20),
)


async def play(moves: list[Move], backend: RateLimitBackend, clock: Hands) -> list[object]:
    """Make the moves and return all answers."""
    slots = [await backend.reserve(DOMAIN, RATE_LIMITS[0])]
    answers: list[object] = [shown(slots[0])]
    for move in moves:
        clock.time += move.after
        slot = slots[int(move.figure) % len(slots)]
        if move.what == "reserve":
            slots.append(await backend.reserve(DOMAIN, move.limit))
            answers.append(shown(slots[-1]))
        elif move.what == "check":
            answers.append(await backend.check(DOMAIN, move.limit, slot))
        elif move.what == "penalise":
            answers.append(await backend.penalise(DOMAIN, move.limit, move.figure))
        elif move.what == "late":
            await backend.observe_lateness(DOMAIN, move.limit, move.figure / 10)
        elif move.what == "give back":
            await backend.cancel(DOMAIN, slots[-1])
        answers.append(await backend.state(DOMAIN))
    return answers


def shown(slot: Slot) -> tuple[object, ...]:
    return slot.at, slot.wait, slot.hold, slot.before, slot.after


async def played_in_python(moves: list[Move]) -> list[object]:
    """Make the moves on the policy, on a bucket that was empty when the clock began."""
    clock = Hands()
    states = MemoryStateBackend[BucketState](clock)
    empty = BucketState(EPOCH, RATE_LIMITS[0].slack + RATE_LIMITS[0].interval)
    await states.change(DOMAIN, lambda _state, _now: (empty, None))
    return await play(moves, RateLimitBackend(states), clock)


async def played_on_redis(moves: list[Move], url: str) -> list[object]:
    clock = Hands()
    async with clocked_redis(url, clock) as connection:
        return await play(moves, RedisRateLimitBackend(connection), clock)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # it is cleared for each example
)
@given(moves=st.lists(MOVES, max_size=15))
def test_the_scripts_answer_as_the_policy_does(
    redis_server: RedisServer, logged: list[str], moves: list[Move]
) -> None:
    logged.clear()
    on_redis = asyncio.run(played_on_redis(moves, redis_server.url))
    assume(not logged)  # an answer that gets lost is asked for again, and a slot with it

    assert on_redis == asyncio.run(played_in_python(moves))


async def reserve_all(
    server: RedisServer, clock: Clock, limit: RateLimit, count: int
) -> list[float]:
    """Return the slots of ten concurrent clients, in seconds from the first."""
    async with AsyncExitStack() as ends:
        first = await ends.enter_async_context(settled_redis(server.url, clock))
        connections = [
            await ends.enter_async_context(clocked_redis(server.url, clock, prefix=first.prefix))
            for _ in range(10)
        ]
        asked = (
            RedisRateLimitBackend(connection).reserve(DOMAIN, limit)
            for connection in connections * count
        )
        times = sorted(slot.at for slot in await asyncio.gather(*asked))
    return [at - times[0] for at in times]


async def test_ten_clients_at_ten_a_minute_make_ten_in_the_first_minute(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    times = await reserve_all(redis_server, clock, RateLimit(10 / A_MINUTE, 1), 10)

    assert len(times) == 100
    assert sum(at < A_MINUTE for at in times) == 10
    assert 10 * A_MINUTE < times[-1] < 10.2 * A_MINUTE


async def test_ten_clients_use_the_whole_rate(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    times = await reserve_all(redis_server, clock, RateLimit(1.0, 5), 10)

    assert 59 <= sum(0 < at <= A_MINUTE for at in times) <= 60


async def test_a_reservation_is_one_call(redis_server: RedisServer, clock: VirtualClock) -> None:
    async with settled_redis(redis_server.url, clock) as connection:
        backend = RedisRateLimitBackend(connection)
        await backend.reserve(DOMAIN, RATE_LIMITS[0])  # now Redis knows the script
        with Redis.from_url(redis_server.url) as redis:
            redis.config_resetstat()
            for _ in range(20):
                await backend.reserve(DOMAIN, RATE_LIMITS[0])
            calls = redis.info("commandstats")

    assert calls["cmdstat_evalsha"]["calls"] == 20
    assert "cmdstat_eval" not in calls


async def test_every_key_has_a_lifetime(redis_server: RedisServer, clock: VirtualClock) -> None:
    async with settled_redis(redis_server.url, clock) as connection:
        await RedisRateLimitBackend(connection).penalise(DOMAIN, RATE_LIMITS[0], 30)
        await RedisConcurrencyBackend(connection).acquire(DOMAIN, 1)
        with Redis.from_url(redis_server.url) as redis:
            keys = [connection.key(room, DOMAIN) for room in ("pace", "crowd")]
            lifetimes = [redis.ttl(key) for key in (*keys, connection.key("born"))]

    wanted = [30 + 600, 60, 7 * 86_400]
    assert lifetimes == pytest.approx(wanted, abs=5)


async def test_a_clock_set_back_an_hour_does_not_stop_a_domain(redis_server: RedisServer) -> None:
    clock = Hands()
    async with settled_redis(redis_server.url, clock) as connection:
        backend = RedisRateLimitBackend(connection)
        slots = [await backend.reserve(DOMAIN, RATE_LIMITS[0]) for _ in range(5)]
        clock.time -= 3600

        slot = await backend.reserve(DOMAIN, RATE_LIMITS[0])

    assert slots[-1].wait == 0
    assert 0 < slot.wait < 5


async def test_a_clock_set_forward_gives_one_burst_at_most(redis_server: RedisServer) -> None:
    clock = Hands()
    async with settled_redis(redis_server.url, clock) as connection:
        backend = RedisRateLimitBackend(connection)
        held = [await backend.reserve(DOMAIN, RATE_LIMITS[0]) for _ in range(10)]
        clock.time += 3600
        checks = [await backend.check(DOMAIN, RATE_LIMITS[0], slot) for slot in held]

        slots = [await backend.reserve(DOMAIN, RATE_LIMITS[0]) for _ in range(10)]

    assert checks == [None] * 10
    assert sum(slot.wait == 0 for slot in slots) == RATE_LIMITS[0].capacity


@pytest.mark.parametrize("domain", ["a b.test", "bücher.test", "[::1]:8080", "*"])
async def test_any_name_is_a_domain(
    redis_server: RedisServer, clock: VirtualClock, domain: str
) -> None:
    async with clocked_redis(redis_server.url, clock, prefix=new_prefix()) as connection:
        backend = RedisRateLimitBackend(connection)
        slot = await backend.reserve(domain, RATE_LIMITS[0])

        assert await backend.state(domain) == slot.after
        assert await backend.state("other.test") is None
