"""The breaker of a process: bans, rates, and the way back."""

from __future__ import annotations

import asyncio

import pytest

from longline.core.errors import Blocked, CircuitOpen, ConnectFailed, FailureKind
from longline.limits.breaker import BreakerPolicy, CircuitBreaker, Phase
from tests.virtual import EPOCH, VirtualClock

DOMAIN = "a.test"
URL = "http://a.test/page"
BAN = Blocked(URL, "a challenge form")
RESET = ConnectFailed(URL, "connection reset")


async def meet(breaker: CircuitBreaker, error: Exception | None) -> None:
    await breaker.admit(DOMAIN, URL)
    await breaker.record(DOMAIN, error)


async def refusal(breaker: CircuitBreaker) -> CircuitOpen:
    with pytest.raises(CircuitOpen) as caught:
        await breaker.admit(DOMAIN, URL)
    return caught.value


async def test_one_ban_refuses_all_requests_and_says_why(breaker: CircuitBreaker) -> None:
    await meet(breaker, BAN)

    error = await refusal(breaker)

    assert error.kind is FailureKind.BLOCKED
    assert error.until == pytest.approx(EPOCH + 900)
    assert error.reason == "a challenge form"
    assert [
        datum
        for datum in ("a.test", "a challenge form", "2027-01-15 08:15:00 UTC")
        if datum not in str(error)
    ] == []


async def test_during_the_probe_of_a_ban_others_are_refused_as_banned(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await meet(breaker, BAN)
    await clock.sleep(901)
    await breaker.admit(DOMAIN, URL)

    error = await refusal(breaker)

    assert (error.kind, error.reason) == (FailureKind.BLOCKED, "a challenge form")


async def test_an_early_request_while_ramping_waits(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await meet(breaker, BAN)
    await clock.sleep(901)
    await meet(breaker, None)
    await meet(breaker, None)

    began = clock.now()
    await meet(breaker, None)

    assert 0.5 < clock.now() - began < 1.1


async def test_while_ramping_all_of_fifty_go_within_seconds(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await meet(breaker, BAN)
    await clock.sleep(901)
    await meet(breaker, None)

    async def go() -> float:
        while True:
            try:
                await meet(breaker, None)
            except CircuitOpen as error:
                await clock.sleep(error.until - clock.now())
            else:
                return clock.now()

    started = clock.now()
    times = await asyncio.gather(*(go() for _ in range(50)))

    assert sum(at - started < 1 for at in times) == 1
    assert max(times) - started < 8
    assert (await breaker.state(DOMAIN)).phase is Phase.CLOSED


async def test_half_of_the_requests_failing_opens_it(breaker: CircuitBreaker) -> None:
    for _ in range(10):
        await meet(breaker, None)
        await meet(breaker, RESET)

    circuit = await breaker.state(DOMAIN)

    assert (circuit.phase, circuit.rate) == (Phase.OPEN, 0.5)
    assert "50%" in circuit.reason
    assert str(RESET) in circuit.reason


async def test_successes_of_calm_times_count_against_it(breaker: CircuitBreaker) -> None:
    for _ in range(60):
        breaker.count_success(DOMAIN)
    for _ in range(25):
        await meet(breaker, None)
        await meet(breaker, RESET)

    circuit = await breaker.state(DOMAIN)

    assert circuit.phase is Phase.CLOSED
    assert circuit.rate == pytest.approx(25 / 110)


async def test_successes_long_ago_do_not(breaker: CircuitBreaker, clock: VirtualClock) -> None:
    for _ in range(60):
        breaker.count_success(DOMAIN)
    await clock.sleep(61)
    for _ in range(10):
        await meet(breaker, None)
        await meet(breaker, RESET)

    assert (await breaker.state(DOMAIN)).phase is Phase.OPEN


async def test_only_a_result_with_an_effect_returns_a_change(breaker: CircuitBreaker) -> None:
    first = await breaker.record(DOMAIN, BAN)
    second = await breaker.record(DOMAIN, BAN)

    assert first is not None
    assert first.transition is not None
    assert second is not None
    assert second.transition is None


async def test_a_reset_ends_a_ban(breaker: CircuitBreaker) -> None:
    await meet(breaker, BAN)

    await breaker.reset(DOMAIN)
    await breaker.admit(DOMAIN, URL)

    last = (await breaker.state(DOMAIN)).history[-1]
    assert (last.old, last.new) == (Phase.OPEN, Phase.CLOSED)


async def test_long_reasons_are_cut(clock: VirtualClock) -> None:
    breaker = CircuitBreaker(policy=BreakerPolicy(threshold=1), clock=clock)

    await meet(breaker, ConnectFailed(URL, "x" * 10_000))

    assert len((await breaker.state(DOMAIN)).reason) < 300


async def test_of_many_equal_bans_one_opens_the_breaker(breaker: CircuitBreaker) -> None:
    changes = await asyncio.gather(*(breaker.record(DOMAIN, BAN) for _ in range(20)))

    assert sum(change is not None and change.transition is not None for change in changes) == 1
    assert (await breaker.state(DOMAIN)).trips == 1
