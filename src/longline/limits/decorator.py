"""Resilience for any function: `@resilient(...)` retries, paces, breaks and times it out."""

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
from longline.limits.circuit import BreakerStatistics, CircuitBreaker
from longline.limits.limiter import LimiterStatistics, RateLimiter
from longline.limits.retry import RetryHandler, RetryPolicy, RetryStatistics, translated

P = ParamSpec("P")
R = TypeVar("R", covariant=True)  # noqa: PLC0105  # the one result of a function
_LONGEST_END = 1.0  # seconds that the end of the program waits for the loop of blocking functions
Domain = str | Callable[..., str] | None


@dataclass(frozen=True, slots=True)
class ResilienceStatistics:
    """Calls of a function and what became of them; None where it has no such policy."""

    calls: int
    successes: int
    failures: int
    retry: RetryStatistics
    pace: LimiterStatistics | None
    breaker: BreakerStatistics | None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        return asdict(self)


class Resilient(Protocol[P, R]):
    """A function with resilience around it, and what it has been through."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""

    def __get__(self, instance: Any, owner: type | None = None) -> Resilient[..., R]:
        """Return it as a method of an object."""

    def statistics(self) -> ResilienceStatistics:
        """Return the figures since the start."""


def resilient(
    *,
    attempts: int = 3,
    base_delay: float = 1.0,
    max_delay: float = 60.0,
    multiplier: float = 2.0,
    jitter: float = 0.1,
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
    """Put retries, a breaker, a pace and a timeout around a function or method, async or not.

    What is tried again: broken connections, timeouts and the statuses that may pass (429, 5xx),
    of our errors and of those of requests, httpx, aiohttp and urllib; and what `retry_on` names.
    A function that blocks runs in a thread, where a timeout leaves it behind: no thread can be
    stopped.

    Args:
        attempts: tries in all.
        base_delay: seconds before the second try.
        max_delay: seconds that our own waits never exceed.
        multiplier: how much longer each further wait is.
        jitter: the part of a wait, 0 to 1, by which it may be longer or shorter.
        longest_wait: seconds that are sat out at most, whatever a site asks for.
        retry_on: further errors that are worth another try.
        breaker: failures in a row after which a domain rests; a breaker to share; None is never.
        rate: calls a second and domain; None is unlimited, "auto" finds out.
        burst: how many of them may go at once.
        limiter: a limiter to share, instead of `rate` and `burst`; async functions share with
            those of their own loop, blocking ones with all others that block.
        timeout: seconds for one try.
        domain: whose breaker and pace count: a name, or a function of the arguments that returns
            one. Otherwise the host of the parameter `url`, or else the function's own name.
        clock: what to wait by.

    Raises:
        BadOption: a figure makes no sense, or what is decorated is a generator.
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
        guard = _Guard(handler, breaker, limiter, timeout, retry_on)
        return cast("Resilient[P, R]", _wrapped(function, guard, _naming(function, domain)))

    return decorate


class _Again(ConnectFailed):
    """An error that `retry_on` names: our policies take it for a passing one."""


@dataclass(slots=True)
class _Guard:
    """The policies around one function, and how its calls ended."""

    handler: RetryHandler
    breaker: CircuitBreaker | None
    limiter: RateLimiter | None
    timeout: float | None
    retry_on: tuple[type[Exception], ...]
    calls: int = 0
    successes: int = 0
    failures: int = 0

    async def run(self, domain: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call until it succeeds, or nothing speaks for another try."""
        self.calls += 1
        told: list[Exception] = []
        try:
            result = await self.handler.execute(
                lambda: self._try(domain, call, told), domain=domain
            )
        except Exception as error:
            self.failures += 1
            if error in told and error.__cause__ is not None:
                raise error.__cause__ from None  # the caller knows it as it was
            raise
        self.successes += 1
        return result

    async def _try(
        self, domain: str, call: Callable[[], Awaitable[Any]], told: list[Exception]
    ) -> Any:
        if self.limiter is not None:
            await self.limiter.acquire(domain)
        try:
            async with asyncio.timeout(self.timeout):
                return await call()
        except Exception as error:
            ours = self._in_our_words(error, domain)
            if ours is error:
                raise
            told.append(ours)
            raise ours from error

    def _in_our_words(self, error: Exception, domain: str) -> Exception:
        if isinstance(error, self.retry_on):
            return _Again(domain, str(error))
        return translated(error, domain)

    def statistics(self) -> ResilienceStatistics:
        return ResilienceStatistics(
            self.calls,
            self.successes,
            self.failures,
            self.handler.get_statistics(),
            self.limiter.get_statistics() if self.limiter else None,
            self.breaker.get_statistics() if self.breaker else None,
        )


def _wrapped(
    function: Callable[..., Any], guard: _Guard, domain_of: Callable[..., str]
) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadOption("resilient", "a generator cannot be tried again; decorate what it calls")
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
            running = guard.run(domain_of(*args, **kwargs), lambda: _in_thread(once))
            return _from_outside(running)

    call.statistics = guard.statistics
    return cast("Callable[..., Any]", call)


def _naming(function: Callable[..., Any], domain: Domain) -> Callable[..., str]:
    """Return what tells the domain of a call from its arguments."""
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
            return name  # the call itself will say what is wrong with it
        return urlsplit(str(url)).netloc.lower() or name

    return host


async def _in_thread(once: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, once)


def _from_outside(running: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine for code that has no event loop, or must not wait in its own."""
    return _background().run(running)


@functools.cache
def _background() -> LoopThread:
    # One for all: functions that share a limiter or a breaker must wait in the same loop.
    loop = LoopThread("longline-resilient")
    atexit.register(loop.close, _LONGEST_END)
    return loop
