from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from pathlib import Path

import pytest

from longline.core.errors import CircuitOpen, ConnectFailed, Gone
from longline.limits.backends.state import MemoryStateBackend, Result, Update
from longline.limits.breaker import BreakerPolicy, BreakerState, CircuitBreaker, Phase
from tests.limit_backends import SqliteStates
from tests.virtual import EPOCH, VirtualClock

DOMAIN = "a.test"
RESET = ConnectFailed("http://a.test/", "connection reset")


async def fail(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        await breaker.admit(DOMAIN)
        await breaker.record(DOMAIN, RESET)


async def come_back(breaker: CircuitBreaker, clock: VirtualClock) -> None:
    """Open the breaker, wait for half-open and let its probe succeed."""
    await fail(breaker, 10)
    await clock.sleep(60.1)
    async with breaker.guard(DOMAIN):
        pass


async def is_let_through(breaker: CircuitBreaker) -> bool:
    try:
        await breaker.admit(DOMAIN)
    except CircuitOpen:
        return False
    return True


async def test_ten_failures_in_a_row_open_it(breaker: CircuitBreaker) -> None:
    await fail(breaker, 10)

    with pytest.raises(CircuitOpen) as caught:
        await breaker.admit(DOMAIN, "http://a.test/page")

    assert caught.value.until == pytest.approx(EPOCH + 60)
    assert caught.value.url == "http://a.test/page"


async def test_a_success_between_keeps_it_closed(breaker: CircuitBreaker) -> None:
    await fail(breaker, 9)
    await breaker.record(DOMAIN, None)
    await fail(breaker, 9)

    assert (await breaker.state(DOMAIN)).phase is Phase.CLOSED


async def test_a_missing_page_shows_that_the_host_is_up(breaker: CircuitBreaker) -> None:
    await fail(breaker, 9)
    await breaker.record(DOMAIN, Gone("http://a.test/", 404))
    await fail(breaker, 1)

    assert (await breaker.state(DOMAIN)).failures == 1


async def test_a_bug_of_ours_says_nothing(breaker: CircuitBreaker) -> None:
    await fail(breaker, 9)
    await breaker.record(DOMAIN, KeyError("title"))

    assert (await breaker.state(DOMAIN)).failures == 9


async def test_of_fifty_waiting_one_goes_through(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await fail(breaker, 10)
    await clock.sleep(60.1)

    let_through = await asyncio.gather(*(is_let_through(breaker) for _ in range(50)))

    assert let_through.count(True) == 1


async def test_a_probe_that_succeeds_closes_it(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await fail(breaker, 10)
    await clock.sleep(60.1)
    assert (await breaker.state(DOMAIN)).phase is Phase.HALF_OPEN

    async with breaker.guard(DOMAIN):
        pass

    assert (await breaker.state(DOMAIN)).phase is Phase.RAMPING
    assert await is_let_through(breaker)


async def test_while_ramping_requests_wait_for_their_turn(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await come_back(breaker, clock)
    began = clock.now()

    let_through = await asyncio.gather(*(is_let_through(breaker) for _ in range(12)))

    assert all(let_through)
    assert 2 < clock.now() - began < 6
    assert breaker.get_statistics().turned_away == 0


async def test_a_long_wait_while_ramping_is_refused(clock: VirtualClock) -> None:
    breaker = CircuitBreaker(policy=BreakerPolicy(ramp=60.0), clock=clock)
    await come_back(breaker, clock)

    let_through = await asyncio.gather(*(is_let_through(breaker) for _ in range(500)))

    assert let_through.count(True) > 10
    assert let_through.count(False) > 100


async def test_requests_waiting_while_ramping_are_refused_when_it_opens(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await come_back(breaker, clock)
    await breaker.admit(DOMAIN)
    waiting = asyncio.create_task(is_let_through(breaker))
    await clock.sleep(0.1)

    await breaker.record(DOMAIN, RESET)

    assert not await waiting
    opened = clock.now()
    assert not await is_let_through(breaker)
    assert clock.now() == opened


async def test_a_short_open_time_is_not_awaited(clock: VirtualClock) -> None:
    breaker = CircuitBreaker(policy=BreakerPolicy(threshold=1, recovery=2.0), clock=clock)
    await fail(breaker, 1)

    assert not await is_let_through(breaker)
    await clock.sleep(2)
    assert await is_let_through(breaker)
    probing = clock.now()

    assert not await is_let_through(breaker)
    assert clock.now() == probing


async def test_a_probe_that_fails_opens_it_for_longer(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await fail(breaker, 10)
    await clock.sleep(60)
    await fail(breaker, 1)

    circuit = await breaker.state(DOMAIN)

    assert (circuit.phase, circuit.trips) == (Phase.OPEN, 2)
    assert circuit.until == pytest.approx(EPOCH + 60 + 120)


async def test_a_probe_that_is_cancelled_passes_its_right_on(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await fail(breaker, 10)
    await clock.sleep(60.1)

    with pytest.raises(asyncio.CancelledError):
        async with breaker.guard(DOMAIN):
            raise asyncio.CancelledError

    assert await is_let_through(breaker)


async def test_a_probe_that_never_reports_is_replaced(
    breaker: CircuitBreaker, clock: VirtualClock
) -> None:
    await fail(breaker, 10)
    await clock.sleep(60.1)
    await breaker.admit(DOMAIN)
    assert not await is_let_through(breaker)

    await clock.sleep(60.1)

    assert await is_let_through(breaker)


async def test_it_can_be_closed_manually(breaker: CircuitBreaker) -> None:
    await fail(breaker, 10)

    await breaker.reset(DOMAIN)

    assert await is_let_through(breaker)


async def test_what_fails_inside_the_guard_is_counted_and_raised(breaker: CircuitBreaker) -> None:
    with pytest.raises(ConnectFailed):
        async with breaker.guard(DOMAIN):
            raise RESET

    assert (await breaker.state(DOMAIN)).failures == 1


async def test_statistics_count_trips_and_refused_requests(breaker: CircuitBreaker) -> None:
    await fail(breaker, 10)
    await is_let_through(breaker)
    await is_let_through(breaker)

    statistics = breaker.get_statistics()

    assert (statistics.trips, statistics.turned_away) == (1, 2)
    assert statistics.domains[DOMAIN].phase is Phase.OPEN
    assert asdict(statistics)["domains"][DOMAIN]["failures"] == 10


async def test_while_healthy_the_backend_is_rarely_called(clock: VirtualClock) -> None:
    backend = CountingBackend(clock)
    breaker = CircuitBreaker(clock=clock, backend=backend, freshness=0.5)

    for _ in range(100):
        async with breaker.guard(DOMAIN):
            await clock.sleep(0.01)

    assert backend.writes == 0
    assert backend.reads <= 3


async def test_what_other_processes_do_is_seen_within_half_a_second(
    clock: VirtualClock, tmp_path: Path
) -> None:
    file = tmp_path / "limits.sqlite"
    ours, theirs = (SqliteStates(file, "breaker", BreakerState, clock) for _ in range(2))
    breaker = CircuitBreaker(clock=clock, backend=ours, freshness=0.5)
    await breaker.admit(DOMAIN)
    await fail(CircuitBreaker(clock=clock, backend=theirs), 10)

    await clock.sleep(0.51)

    assert not await is_let_through(breaker)
    await ours.close()
    await theirs.close()


async def test_transitions_and_refused_requests_are_logged(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "longline.limits.breaker")
    breaker = CircuitBreaker(threshold=1, clock=clock)

    await fail(breaker, 1)
    assert not await is_let_through(breaker)

    assert len(caplog.records) == 2


class CountingBackend(MemoryStateBackend[BreakerState]):
    """A backend that counts its calls."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.reads = 0
        self.writes = 0

    async def change(self, name: str, update: Update[BreakerState, Result]) -> Result:
        self.writes += 1
        return await super().change(name, update)

    async def read(self, name: str) -> tuple[BreakerState | None, float]:
        self.reads += 1
        return await super().read(name)
