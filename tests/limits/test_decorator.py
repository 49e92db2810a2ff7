"""The decorator: retries, breaker, rate limit and timeout around functions of any sort."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from dataclasses import asdict
from typing import Any

import pytest
import requests

from longline.core.clock import Clock
from longline.core.errors import BadOption, CircuitOpen, Deferred, Throttled
from longline.limits.breaker import CircuitBreaker
from longline.limits.limiter import RateLimiter
from longline.limits.retry import resilient
from tests.virtual import VirtualClock


class FakeClock(Clock):
    """Time that passes only when someone sleeps, and then at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Failing:
    """Fails with each of these in turn, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def refused(status: int, **headers: str) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    response.headers.update(headers)
    return requests.HTTPError(response=response)


async def test_waits_grow_by_the_multiplier_up_to_the_cap(clock: VirtualClock) -> None:
    failing = Failing(*[ConnectionError()] * 4)
    times: list[float] = []

    @resilient(
        attempts=5, base_delay=1, multiplier=3, max_delay=10, jitter=0, breaker=None, clock=clock
    )
    async def ask() -> str:
        times.append(clock.now())
        return failing()

    assert await ask() == "answer"
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert waits == pytest.approx([1, 3, 9, 10])


async def test_jitter_keeps_within_its_part(clock: VirtualClock) -> None:
    started = clock.now()
    failing = Failing(ConnectionError())

    @resilient(base_delay=10, jitter=0.5, clock=clock)
    async def ask() -> str:
        return failing()

    await ask()

    assert 5 <= clock.now() - started <= 15


async def test_the_last_error_goes_through_as_it_was(clock: VirtualClock) -> None:
    failing = Failing(*[refused(500)] * 3)

    @resilient(clock=clock)
    async def ask() -> str:
        return failing()

    with pytest.raises(requests.HTTPError):
        await ask()

    assert failing.calls == 3


@pytest.mark.parametrize("error", [ValueError("a bug"), refused(404), refused(403)])
async def test_what_cannot_pass_is_not_tried_again(error: Exception, clock: VirtualClock) -> None:
    failing = Failing(error)

    @resilient(clock=clock)
    async def ask() -> str:
        return failing()

    with pytest.raises(type(error)):
        await ask()

    assert failing.calls == 1


async def test_further_errors_can_be_named(clock: VirtualClock) -> None:
    failing = Failing(KeyError("not yet"), *[LookupError()] * 2)

    @resilient(retry_on=(LookupError,), clock=clock)
    async def ask() -> str:
        return failing()

    with pytest.raises(LookupError):
        await ask()

    assert failing.calls == 3


async def test_a_site_that_asks_for_a_pause_gets_it(clock: VirtualClock) -> None:
    failing = Failing(refused(429, **{"Retry-After": "100"}))
    started = clock.now()

    @resilient(clock=clock)
    async def ask() -> str:
        return failing()

    await ask()

    assert clock.now() - started == pytest.approx(100, abs=1)


async def test_a_pause_too_long_to_wait_for_is_reported(clock: VirtualClock) -> None:
    failing = Failing(Throttled("http://shop.test/", 429, 3600))

    @resilient(clock=clock)
    async def ask() -> str:
        return failing()

    with pytest.raises(Deferred):
        await ask()


async def test_a_domain_that_fails_too_often_is_paused(clock: VirtualClock) -> None:
    failing = Failing(*[ConnectionError()] * 10)

    @resilient(attempts=1, breaker=3, clock=clock)
    async def ask(url: str) -> str:
        del url
        return failing()

    for _ in range(3):
        with pytest.raises(ConnectionError):
            await ask("http://down.test/a")

    with pytest.raises(CircuitOpen):
        await ask("http://DOWN.test/b")
    with pytest.raises(ConnectionError):
        await ask("http://other.test/")
    assert failing.calls == 4


async def test_calls_respect_the_rate_limit_of_their_domain(clock: VirtualClock) -> None:
    started = clock.now()

    @resilient(rate=2, burst=1, domain=lambda place, **_: place, clock=clock)
    async def ask(place: str) -> float:
        del place
        return clock.now() - started

    times = await asyncio.gather(*[ask("a") for _ in range(4)], ask("b"))

    assert times[3] >= 1.5
    assert times[4] < 0.2


async def test_functions_can_share_a_limiter_and_a_breaker(clock: VirtualClock) -> None:
    limiter, breaker = RateLimiter(1, 1, clock=clock), CircuitBreaker(clock=clock)
    sharing: Any = {"limiter": limiter, "breaker": breaker, "domain": "shop", "clock": clock}
    started = clock.now()

    @resilient(**sharing)
    async def one() -> None: ...

    @resilient(**sharing)
    async def two() -> None: ...

    await one()
    await two()

    assert clock.now() - started >= 1
    assert limiter.get_statistics().requests == 2


async def test_one_try_may_take_so_long(clock: VirtualClock) -> None:
    started = clock.now()

    @resilient(attempts=2, base_delay=1, jitter=0, timeout=5, clock=clock)
    async def ask() -> None:
        await clock.sleep(1000)

    with pytest.raises(TimeoutError):
        await ask()

    assert clock.now() - started == pytest.approx(11)


async def test_a_cancellation_goes_through(clock: VirtualClock) -> None:
    @resilient(clock=clock)
    async def ask() -> None:
        await clock.sleep(1000)

    asking = asyncio.create_task(ask())
    await clock.sleep(1)
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_statistics_say_what_a_function_has_been_through(clock: VirtualClock) -> None:
    failing = Failing(ConnectionError(), ValueError("a bug"))

    @resilient(rate=10, clock=clock)
    async def ask() -> str:
        return failing()

    with pytest.raises(ValueError, match="a bug"):
        await ask()
    await ask()

    result = ask.statistics()
    assert (result.calls, result.successes, result.failures) == (2, 1, 1)
    assert (result.retry.attempts, result.retry.retries) == (3, 1)
    assert result.rate_limit is not None
    assert result.rate_limit.requests == 3
    assert asdict(result)["breaker"]["trips"] == 0


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @resilient(clock=FakeClock())
    async def ask(self, word: str) -> str:
        """Ask the shop."""
        return f"{self.name} {word}"

    @resilient(clock=FakeClock())
    def ask_and_wait(self, word: str) -> str:
        return f"{self.name} {word}"


async def test_methods_are_methods_still() -> None:
    assert await Shop("a").ask("b") == "a b"
    assert Shop("a").ask_and_wait("c") == "a c"
    assert Shop.ask.__doc__ == "Ask the shop."
    assert Shop("a").ask.statistics().calls == 1


def test_a_blocking_function_is_tried_again_too() -> None:
    clock = FakeClock()
    failing = Failing(*[ConnectionError()] * 2)

    @resilient(jitter=0, breaker=None, clock=clock)
    def ask() -> str:
        return failing()

    assert ask() == "answer"
    assert clock.slept == [1, 2]
    assert ask.statistics().retry.retries == 2


async def test_a_blocking_function_may_be_called_in_a_loop_and_from_threads() -> None:
    word = contextvars.ContextVar("word", default="none")
    limiter = RateLimiter(1000, 1, margin=0)

    @resilient(limiter=limiter)
    def ask() -> tuple[str, bool]:
        return word.get(), threading.current_thread() is threading.main_thread()

    word.set("mine")
    threads = [asyncio.to_thread(ask) for _ in range(5)]

    assert ask() == ("mine", False)
    assert await asyncio.gather(*threads) == [("mine", False)] * 5
    assert limiter.get_statistics().requests == 6


def test_a_blocking_function_that_takes_too_long_is_left_behind() -> None:
    is_over = threading.Event()

    @resilient(attempts=1, timeout=0.05)
    def ask() -> None:
        is_over.wait(10)

    with pytest.raises(TimeoutError):
        ask()
    is_over.set()


def test_a_generator_is_refused() -> None:
    with pytest.raises(BadOption, match="generator"):

        @resilient()
        def several() -> Any:
            yield 1


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(BadOption):
        resilient(attempts=0)
