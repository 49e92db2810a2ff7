"""`@resilient`: retries, a rate limit, a circuit breaker and a timeout for any function."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from dataclasses import asdict, dataclass
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from longline.core.clock import Clock, SystemClock
from longline.core.errors import BadOption, ConnectFailed
from longline.core.threads import LoopThread
from longline.limits.breaker import BreakerStatistics, CircuitBreaker
from longline.limits.limiter import LimiterStatistics, RateLimiter
from longline.limits.retry import (
    DEFAULT_RETRY,
    RetryHandler,
    RetryPolicy,
    RetryStatistics,
    translate_error,
)

P = ParamSpec("P")
R = TypeVar("R", covariant=True)  # noqa: PLC0105  # the one result of a function
_LONGEST_EXIT = 1.0  # seconds that program exit waits for the loop of blocking functions
Domain = str | Callable[..., str] | None


@dataclass(frozen=True, slots=True)
class ResilienceStatistics:
    """Calls of a function and their results; None where it has no such policy."""

    calls: int
    successes: int
    failures: int
    retry: RetryStatistics
    rate_limit: LimiterStatistics | None
    breaker: BreakerStatistics | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


class Resilient(Protocol[P, R]):
    """A decorated function and its statistics."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""

    def __get__(self, instance: Any, owner: type | None = None) -> Resilient[..., R]:
        """Bind it to an object as a method."""

    def statistics(self) -> ResilienceStatistics:
        """Return the statistics since the start."""


def resilient(
    *,
    attempts: int = DEFAULT_RETRY.max_attempts,
    base_delay: float = DEFAULT_RETRY.base_delay,
    max_delay: float = DEFAULT_RETRY.max_delay,
    multiplier: float = DEFAULT_RETRY.multiplier,
    jitter: float = DEFAULT_RETRY.jitter,
    longest_wait: float = 300.0,
    retry_on: tuple[type[Exception], ...] = (),
    breaker: CircuitBreaker | int | None = 10,
    rate: float | Literal["auto"] | None = None,
    burst: int = 5,
    limiter: RateLimiter | None = None,
    timeout: float | None = None,
    domain: Domain = None,
    clock: Clock | None = None,
) -> Callable[[Callable[P, R]], Resilient[P, R]]:
    """Add retries, a breaker, a rate limit and a timeout to a function or method, async or not.

    Retried are broken connections, timeouts and temporary statuses (429, 5xx), as errors of
    longline, requests, httpx, aiohttp or urllib, and the errors in `retry_on`. A blocking function
    runs in a thread; after a timeout that thread goes on, since no thread can be stopped.

    Args:
        attempts: attempts in total.
        base_delay: seconds before the second attempt.
        max_delay: the longest wait of ours in seconds.
        multiplier: the factor by which each further wait is longer.
        jitter: the share of a wait, 0 to 1, by which it may be longer or shorter.
        longest_wait: the longest wait in seconds, whatever a site asks for.
        retry_on: further errors to retry.
        breaker: failures in a row that open a domain's breaker; a breaker to share; None is never.
        rate: calls per second per domain; None is unlimited, "auto" learns it.
        burst: calls that may go together.
        limiter: a limiter to share, instead of `rate` and `burst`; async functions share with
            those of their own loop, blocking ones with all others that block.
        timeout: seconds for one attempt.
        domain: the domain of breaker and rate limit: a name, or a function of the arguments that
            returns one. By default the host of the parameter `url`, or else the function's name.
        clock: the clock to wait by.

    Raises:
        BadOption: a value is out of range, or the function is a generator.
    """
    clock = clock or SystemClock()
    policy = RetryPolicy(
        attempts, base_delay, max_delay, multiplier, jitter, longest_wait_in_place=longest_wait
    )
    if isinstance(breaker, int):
        breaker = CircuitBreaker(breaker, clock=clock)
    if limiter is None and rate is not None:
        limiter = RateLimiter(rate, burst, clock=clock)

    def decorate(function: Callable[P, R]) -> Resilient[P, R]:
        handler = RetryHandler(
            policy=policy, breaker=breaker, circuit_breaker_threshold=None, clock=clock
        )
        guard = _Guard(handler, breaker, limiter, timeout, retry_on, clock)
        return cast("Resilient[P, R]", _wrap(function, guard, _domain_getter(function, domain)))

    return decorate


class _Retried(ConnectFailed):
    """An error in `retry_on`, as one that the policies retry."""


@dataclass(slots=True)
class _Guard:
    """The policies of one function, and the results of its calls."""

    handler: RetryHandler
    breaker: CircuitBreaker | None
    limiter: RateLimiter | None
    timeout: float | None
    retry_on: tuple[type[Exception], ...]
    clock: Clock
    calls: int = 0
    successes: int = 0
    failures: int = 0

    async def run(self, domain: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call until it succeeds, or must not be retried."""
        self.calls += 1
        translations: list[Exception] = []
        try:
            result = await self.handler.execute(
                lambda: self._attempt(domain, call, translations), domain=domain
            )
        except Exception as error:
            self.failures += 1
            if error in translations and error.__cause__ is not None:
                raise error.__cause__ from None  # the caller expects the original
            raise
        self.successes += 1
        return result

    async def _attempt(
        self, domain: str, call: Callable[[], Awaitable[Any]], translations: list[Exception]
    ) -> Any:
        if self.limiter is not None:
            await self.limiter.acquire(domain)
        try:
            async with asyncio.timeout(self.timeout):
                return await call()
        except Exception as error:
            if isinstance(error, self.retry_on):
                ours: Exception = _Retried(domain, str(error))
            else:
                ours = translate_error(error, domain, self.clock.now())
            if ours is error:
                raise
            translations.append(ours)
            raise ours from error

    def statistics(self) -> ResilienceStatistics:
        return ResilienceStatistics(
            self.calls,
            self.successes,
            self.failures,
            self.handler.get_statistics(),
            self.limiter.get_statistics() if self.limiter else None,
            self.breaker.get_statistics() if self.breaker else None,
        )


def _wrap(
    function: Callable[..., Any], guard: _Guard, domain_of: Callable[..., str]
) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadOption(
            "resilient", "a generator cannot be retried; decorate the function that it calls"
        )
    call: Any
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            domain = domain_of(*args, **kwargs)
            return await guard.run(domain, lambda: function(*args, **kwargs))

    else:

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            once = functools.partial(copy_context().run, function, *args, **kwargs)
            running = guard.run(domain_of(*args, **kwargs), lambda: _run_in_thread(once))
            return _run_in_background(running)

    call.statistics = guard.statistics
    return cast("Callable[..., Any]", call)


def _domain_getter(function: Callable[..., Any], domain: Domain) -> Callable[..., str]:
    """Return a function that returns the domain of a call from its arguments."""
    if callable(domain):
        return domain
    name = str(domain or getattr(function, "__qualname__", "function"))
    signature = inspect.signature(function)
    if domain is not None or "url" not in signature.parameters:
        return lambda *_args, **_kwargs: name

    def host(*args: Any, **kwargs: Any) -> str:
        try:
            url = signature.bind(*args, **kwargs).arguments.get("url")
        except TypeError:
            return name  # the call itself raises the same
        return urlsplit(str(url)).netloc.lower() or name

    return host


async def _run_in_thread(once: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, once)


def _run_in_background(running: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine for code without an event loop, or that must not block its own."""
    return _background_loop().run(running)


@functools.cache
def _background_loop() -> LoopThread:
    # One for all functions: those that share a limiter or a breaker must wait in the same loop.
    loop = LoopThread("longline-resilient")
    atexit.register(loop.close, _LONGEST_EXIT)
    return loop
