"""Retry: whether to try again, and when: after 1, 2, 4 … seconds, or as the site asks.

`@resilient` adds retries, a breaker, a rate limit and a timeout to any function.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import logging
import random as randomness
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from longline.core.clock import Clock, SystemClock, backoff
from longline.core.errors import (
    BadOption,
    BadStatus,
    CircuitOpen,
    ConnectFailed,
    Deferred,
    FailureKind,
    LonglineError,
    RobotsUnreachable,
    bad_status,
    check_range,
    kind_of,
)
from longline.core.http_headers import parse_retry_after
from longline.core.threads import LoopThread
from longline.limits.breaker import BreakerStatistics, CircuitBreaker
from longline.limits.limiter import LimiterStatistics, RateLimiter

_LOG = logging.getLogger(__name__)
LONGEST_RETRY_AFTER = 86_400.0
"""A site that asks for a longer pause is asked again after a day."""
LONGEST_WAIT_IN_PLACE = 30.0
"""Seconds; a longer wait is spent in the queue, where it blocks no worker."""
RETRIED_KINDS = frozenset(
    {FailureKind.NETWORK, FailureKind.TIMEOUT, FailureKind.OVERLOAD, FailureKind.SERVER}
)
RETRIED_STATUSES = frozenset({429, 500, 501, 502, 503, 504})
_LARGEST_MULTIPLIER = 100.0  # to the power of 64 it is still a float


class RetryAction(StrEnum):
    """What to do after a failure: wait in place, defer the item to the queue, or give up."""

    WAIT = "wait"
    DEFER = "defer"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What to do, and after how many seconds."""

    action: RetryAction
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts` attempts; waits grow from `base_delay` by `multiplier` up to `max_delay`.

    These defaults are those of every job; `retry:` of a job or source and `--retries` change them.
    `jitter` is the share of a wait, 0 to 1, by which it may be longer or shorter. A wait above
    `longest_wait_in_place` is spent in the queue, as is the `blocked_delay` after a ban page.

    Raises:
        BadOption: a value is out of range.
    """

    max_attempts: int = 3
    base_delay: float = 1.0
    max_delay: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.1
    longest_wait_in_place: float = LONGEST_WAIT_IN_PLACE
    blocked_delay: float = 900.0

    def __post_init__(self) -> None:
        base, most = self.base_delay, _LARGEST_MULTIPLIER
        check_range("max_attempts", self.max_attempts, "1 or more", at_least=1)
        check_range("base_delay", base, "0 seconds or more", at_least=0)
        check_range("max_delay", self.max_delay, f"base_delay ({base:g}) or more", at_least=base)
        check_range("multiplier", self.multiplier, f"1 to {most:g}", at_least=1, at_most=most)
        check_range("jitter", self.jitter, "from 0 to 1", at_least=0, at_most=1)

    def backoff(self, attempt: int, random: float = 0.5) -> float:
        """Return the wait after attempt number `attempt`, from 1; `random` is from 0 to 1."""
        wait = backoff(
            attempt, base=self.base_delay, ceiling=self.max_delay, multiplier=self.multiplier
        )
        return min(wait * (1 + self.jitter * (2 * random - 1)), self.max_delay)

    def decide(
        self, attempt: int, kind: FailureKind, retry_after: float | None, random: float = 0.5
    ) -> RetryDecision:
        """Decide what follows attempt number `attempt`, from 1.

        `retry_after` is what the site asked for; it is used where it is longer than our own wait.
        `random`, from 0 to 1, places the wait within its jitter.
        """
        requested = min(max(retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER)
        if kind is FailureKind.BLOCKED:
            # Never in place, and after any attempt: a ban says nothing about the item.
            return RetryDecision(RetryAction.DEFER, max(self.blocked_delay, requested))
        if attempt >= self.max_attempts or kind not in RETRIED_KINDS:
            return RetryDecision(RetryAction.GIVE_UP)
        seconds = max(self.backoff(attempt, random), requested)
        is_short = seconds <= self.longest_wait_in_place
        return RetryDecision(RetryAction.WAIT if is_short else RetryAction.DEFER, seconds)


DEFAULT_RETRY = RetryPolicy()


def is_retryable(error: BaseException) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(error, (CircuitOpen, Deferred, RobotsUnreachable)):
        return False  # decided before: the item is deferred, or fails
    if isinstance(error, BadStatus):
        return error.status in RETRIED_STATUSES
    return kind_of(error) in RETRIED_KINDS


# ---------------- Running an operation with retries

T = TypeVar("T")
OnRetry = Callable[[Exception, int, float], None]
"""Called with the error, the number of the failed attempt, and the seconds to the next."""
_NO_TIMER = nullcontext()


@dataclass(slots=True)
class RetryStatistics:
    """Attempts and their results; three attempts are two retries.

    `failures` counts failed attempts by kind, `exhausted` the operations given up after the last
    attempt, `postponed` those whose next attempt is too far ahead to wait for.
    """

    attempts: int = 0
    retries: int = 0
    successful_retries: int = 0
    exhausted: int = 0
    postponed: int = 0
    failures: dict[FailureKind, int] = field(default_factory=dict)


class RetryHandler:
    """Runs operations with retries, and with a breaker for each domain.

    Args:
        max_attempts: attempts in total.
        base_delay: seconds before the second attempt; doubled for each further one.
        max_delay: the longest wait of ours in seconds.
        circuit_breaker_threshold: failures in a row that open a domain's breaker; None is never.
        jitter: the share of a wait, 0 to 1, by which it may be longer or shorter.
        policy: replaces all of these but the threshold, and sets more.
        breaker: a breaker to share, instead of its own.
        clock: the clock to wait by.
        random: returns a number from 0 to 1, for the jitter.

    Raises:
        BadOption: a value is out of range.
    """

    def __init__(
        self,
        max_attempts: int = DEFAULT_RETRY.max_attempts,
        base_delay: float = DEFAULT_RETRY.base_delay,
        max_delay: float = DEFAULT_RETRY.max_delay,
        circuit_breaker_threshold: int | None = 10,
        *,
        jitter: float = DEFAULT_RETRY.jitter,
        policy: RetryPolicy | None = None,
        breaker: CircuitBreaker | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._policy = policy or RetryPolicy(max_attempts, base_delay, max_delay, jitter=jitter)
        self._clock = clock or SystemClock()
        self._breaker = breaker
        if breaker is None and circuit_breaker_threshold is not None:
            self._breaker = CircuitBreaker(circuit_breaker_threshold, clock=self._clock)
        self._random = random
        self._counts = RetryStatistics()

    async def execute(
        self,
        operation: Callable[[], Awaitable[T]],
        *,
        domain: str = "default",
        on_retry: OnRetry | None = None,
        waiting: AbstractContextManager[Any] = _NO_TIMER,
    ) -> T:
        """Run `operation`, again after a failure that may pass.

        `on_retry` is called before each wait in place, `waiting` is entered during it. `domain` is
        that of the breaker.

        Raises:
            CircuitOpen: the breaker is open, possibly since the last attempt.
            Deferred: the next attempt is too far ahead to wait for.
            Exception: that of the last attempt.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                self._counts.attempts += 1
                if self._breaker is None:
                    result = await operation()
                else:
                    async with self._breaker.guard(domain):
                        result = await operation()
            except (CircuitOpen, Deferred):
                raise  # decided before: the item is deferred
            except Exception as error:
                decision = self._decide(error, attempt)
                url = getattr(error, "url", domain)
                _LOG.debug(
                    "attempt %d failed: %s", attempt, decision.action,
                    extra={"url": url, "wait": decision.seconds, "error": str(error)},
                )  # fmt: skip
                if decision.action is RetryAction.GIVE_UP:
                    raise
                if decision.action is RetryAction.DEFER:
                    until = self._clock.now() + decision.seconds
                    raise Deferred(url, until, str(error), kind_of(error)) from error
                if on_retry is not None:
                    on_retry(error, attempt, decision.seconds)
            else:
                self._counts.successful_retries += attempt > 1
                return result
            with waiting:
                await self._clock.sleep(decision.seconds)
            self._counts.retries += 1

    def get_statistics(self) -> RetryStatistics:
        """Return the statistics since the start or the last reset."""
        return replace(self._counts, failures=dict(self._counts.failures))

    def reset_statistics(self) -> None:
        """Start counting from zero; the breakers keep their state."""
        self._counts = RetryStatistics()

    def _decide(self, error: Exception, attempt: int) -> RetryDecision:
        kind = kind_of(error)
        self._counts.failures[kind] = self._counts.failures.get(kind, 0) + 1
        if kind is not FailureKind.BLOCKED and not is_retryable(error):
            return RetryDecision(RetryAction.GIVE_UP)
        requested = getattr(error, "retry_after", None)
        decision = self._policy.decide(attempt, kind, requested, self._random())
        self._counts.exhausted += decision.action is RetryAction.GIVE_UP
        self._counts.postponed += decision.action is RetryAction.DEFER
        return decision


# ---------------- Errors of other libraries, translated so that the policies understand them


def translate_error(error: Exception, url: str, now: float) -> Exception:
    """Return longline's error for one that carries an HTTP status; any other unchanged.

    The common libraries (requests, httpx, aiohttp, urllib) keep the status in different places,
    and some report a refused page as a broken connection.
    """
    status = _status_of(error)
    if status is None or isinstance(error, LonglineError):
        return error
    response = getattr(error, "response", None)  # not by truth: a failed response may be false
    headers = getattr(error if response is None else response, "headers", None)
    get = getattr(headers, "get", None)
    text = get("Retry-After") if get else None
    return bad_status(url, status, parse_retry_after(str(text) if text else None, now))


def _status_of(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    candidates = (
        getattr(response, "status_code", None),
        getattr(response, "status", None),
        *(getattr(error, name, None) for name in ("status_code", "status", "code")),
    )
    return next((one for one in candidates if type(one) is int and one in range(400, 600)), None)


# ---------------- The decorator

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

    Broken connections, timeouts and temporary statuses (429, 5xx) are retried, as errors of
    longline, requests, httpx, aiohttp or urllib, and the errors in `retry_on`. A blocking function
    runs in a thread; after a timeout that thread continues, since threads cannot be stopped.

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
        original: Exception | None = None

        async def attempt() -> Any:
            nonlocal original
            original = None
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
                original = error
                raise ours from error

        try:
            result = await self.handler.execute(attempt, domain=domain)
        except Exception as error:
            self.failures += 1
            if original is not None and error.__cause__ is original:
                raise original from None  # the caller expects it, and not our translation
            raise
        self.successes += 1
        return result

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

            async def in_thread() -> Any:
                return await asyncio.get_running_loop().run_in_executor(None, once)

            return _background_loop().run(guard.run(domain_of(*args, **kwargs), in_thread))

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


@functools.cache
def _background_loop() -> LoopThread:
    # One for all functions: all users of a limiter or a breaker must wait in the same loop.
    loop = LoopThread("longline-resilient")
    atexit.register(loop.close, _LONGEST_EXIT)
    return loop
