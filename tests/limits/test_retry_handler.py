from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from longline.core.errors import (
    CircuitOpen,
    ConnectFailed,
    Deferred,
    FailureKind,
    Gone,
    Refused,
    ServerFailed,
    Throttled,
)
from longline.limits.breaker import CircuitBreaker
from longline.limits.retry import RetryHandler, RetryPolicy
from tests.virtual import EPOCH, VirtualClock

URL = "http://site.test/page"
RESET = ConnectFailed(URL, "connection reset")


class Site:
    """Answers with each of the errors in turn, then with hello."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.visits = 0

    async def visit(self) -> str:
        self.visits += 1
        if self._errors:
            raise self._errors.pop(0)
        return "hello"


class Banned(Refused):
    """An answer that says we are banned."""

    kind = FailureKind.BLOCKED


@pytest.fixture
def handler(clock: VirtualClock) -> RetryHandler:
    return RetryHandler(clock=clock, jitter=0.0)


async def give_up(handler: RetryHandler, errors: Sequence[Exception]) -> None:
    with pytest.raises(type(errors[-1])):
        await handler.execute(Site(*errors).visit)


async def test_a_broken_connection_is_tried_again_after_one_and_two_seconds(
    handler: RetryHandler, clock: VirtualClock
) -> None:
    site = Site(RESET, RESET)

    answer = await handler.execute(site.visit)

    assert answer == "hello"
    assert clock.now() == pytest.approx(EPOCH + 3)


async def test_waits_double_and_are_capped(clock: VirtualClock) -> None:
    handler = RetryHandler(6, 1.0, 5.0, clock=clock, jitter=0.0)
    waits: list[float] = []

    await handler.execute(
        Site(*[RESET] * 5).visit, on_retry=lambda _error, _attempt, wait: waits.append(wait)
    )

    assert waits == [1, 2, 4, 5, 5]


async def test_the_last_error_is_raised_after_the_last_attempt(handler: RetryHandler) -> None:
    last = ServerFailed(URL, 502)
    site = Site(RESET, RESET, last)

    with pytest.raises(ServerFailed) as caught:
        await handler.execute(site.visit)

    assert caught.value is last
    assert site.visits == 3


@pytest.mark.parametrize(
    "error", [Refused(URL, 401), Refused(URL, 403), Gone(URL, 404), ServerFailed(URL, 505)]
)
async def test_what_stays_wrong_is_not_tried_again(
    handler: RetryHandler, clock: VirtualClock, error: Exception
) -> None:
    site = Site(error)

    with pytest.raises(type(error)):
        await handler.execute(site.visit)

    assert site.visits == 1
    assert clock.now() == EPOCH


async def test_a_bug_of_ours_is_not_tried_again(handler: RetryHandler) -> None:
    site = Site(KeyError("title"))

    with pytest.raises(KeyError, match="title"):
        await handler.execute(site.visit)

    assert site.visits == 1


async def test_the_site_is_given_the_pause_it_asks_for(
    handler: RetryHandler, clock: VirtualClock
) -> None:
    await handler.execute(Site(Throttled(URL, 429, 20)).visit)

    assert clock.now() == pytest.approx(EPOCH + 20)


async def test_a_long_pause_defers_the_item(handler: RetryHandler, clock: VirtualClock) -> None:
    with pytest.raises(Deferred) as caught:
        await handler.execute(Site(Throttled(URL, 503, 120)).visit)

    assert caught.value.until == pytest.approx(EPOCH + 120)
    assert caught.value.kind is FailureKind.OVERLOAD
    assert caught.value.url == URL
    assert clock.now() == EPOCH


async def test_a_ban_defers_the_item(handler: RetryHandler) -> None:
    with pytest.raises(Deferred) as caught:
        await handler.execute(Site(Banned(URL, 403)).visit)

    assert caught.value.kind is FailureKind.BLOCKED
    assert caught.value.until == pytest.approx(EPOCH + 900)


async def test_a_decision_made_further_in_passes_through(handler: RetryHandler) -> None:
    inner = Deferred(URL, EPOCH + 60, "busy", FailureKind.OVERLOAD)

    with pytest.raises(Deferred) as caught:
        await handler.execute(Site(inner).visit)

    assert caught.value is inner
    assert not handler.get_statistics().failures


async def test_jitter_moves_the_wait(clock: VirtualClock) -> None:
    handler = RetryHandler(jitter=0.5, clock=clock, random=lambda: 1.0)

    await handler.execute(Site(RESET).visit)

    assert clock.now() == pytest.approx(EPOCH + 1.5)


async def test_a_policy_replaces_the_arguments(clock: VirtualClock) -> None:
    handler = RetryHandler(
        policy=RetryPolicy(max_attempts=2, base_delay=7, jitter=0.0), clock=clock
    )

    await handler.execute(Site(RESET).visit)

    assert clock.now() == pytest.approx(EPOCH + 7)


async def test_a_cancellation_goes_through_and_is_no_failure(handler: RetryHandler) -> None:
    site = Site(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await handler.execute(site.visit)

    assert site.visits == 1
    assert not handler.get_statistics().failures


async def test_a_cancellation_ends_the_wait(handler: RetryHandler, clock: VirtualClock) -> None:
    site = Site(RESET)
    task = asyncio.create_task(handler.execute(site.visit))
    await clock.sleep(0.5)

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert site.visits == 1


async def test_ten_failures_in_a_row_open_the_breaker(handler: RetryHandler) -> None:
    for _ in range(3):
        await give_up(handler, [RESET] * 3)
    site = Site(RESET)

    with pytest.raises(CircuitOpen):
        await handler.execute(site.visit)

    assert site.visits == 1


async def test_an_open_breaker_sends_nothing_and_reports_until_when(
    clock: VirtualClock,
) -> None:
    handler = RetryHandler(1, circuit_breaker_threshold=2, clock=clock, jitter=0.0)
    await give_up(handler, [RESET])
    await give_up(handler, [RESET])
    site = Site()

    with pytest.raises(CircuitOpen) as caught:
        await handler.execute(site.visit)

    assert caught.value.until == pytest.approx(EPOCH + 60)
    assert site.visits == 0


async def test_an_open_breaker_of_one_domain_leaves_the_others_alone(clock: VirtualClock) -> None:
    handler = RetryHandler(1, circuit_breaker_threshold=1, clock=clock, jitter=0.0)
    await give_up(handler, [RESET])

    assert await handler.execute(Site().visit, domain="other.test") == "hello"


async def test_without_a_threshold_there_is_no_breaker(clock: VirtualClock) -> None:
    handler = RetryHandler(1, circuit_breaker_threshold=None, clock=clock, jitter=0.0)
    for _ in range(30):
        await give_up(handler, [RESET])

    assert await handler.execute(Site().visit) == "hello"


async def test_a_breaker_can_be_shared(clock: VirtualClock) -> None:
    breaker = CircuitBreaker(threshold=1, clock=clock)
    await give_up(RetryHandler(1, breaker=breaker, clock=clock, jitter=0.0), [RESET])

    with pytest.raises(CircuitOpen):
        await RetryHandler(breaker=breaker, clock=clock, jitter=0.0).execute(Site().visit)


async def test_three_attempts_are_two_retries(handler: RetryHandler) -> None:
    await handler.execute(Site(RESET, ServerFailed(URL, 500)).visit)
    await give_up(handler, [RESET] * 3)
    await give_up(handler, [Gone(URL, 404)])

    statistics = handler.get_statistics()

    assert (statistics.attempts, statistics.retries) == (7, 4)
    assert (statistics.successful_retries, statistics.exhausted) == (1, 1)
    assert statistics.failures == {
        FailureKind.NETWORK: 4,
        FailureKind.SERVER: 1,
        FailureKind.GONE: 1,
    }


async def test_a_reset_clears_the_statistics(handler: RetryHandler) -> None:
    await give_up(handler, [RESET] * 3)

    handler.reset_statistics()

    assert asdict(handler.get_statistics()) == {
        "attempts": 0,
        "retries": 0,
        "successful_retries": 0,
        "exhausted": 0,
        "postponed": 0,
        "failures": {},
    }


async def test_every_decision_is_logged(
    handler: RetryHandler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "longline.limits.retry")

    await handler.execute(Site(RESET).visit)

    (record,) = caplog.records
    assert vars(record)["wait"] == pytest.approx(1.0)
