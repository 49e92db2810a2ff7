"""Retry: whether to try again, and when: after 1, 2, 4 … seconds, or as the site asks."""

from __future__ import annotations

import math
import random as randomness
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from longline.core.backoff import backoff
from longline.core.clock import Clock, SystemClock
from longline.core.errors import (
    BadOption,
    BadStatus,
    FailureKind,
    LonglineError,
    RobotsUnreachable,
    bad_status,
    kind_of,
)
from longline.core.http_headers import parse_retry_after
from longline.limits.breaker import CircuitBreaker
from longline.limits.errors import CircuitOpen, Deferred

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
        if self.max_attempts < 1:
            raise BadOption("max_attempts", f"must be 1 or more, not {self.max_attempts!r}")
        if not 0 <= self.base_delay < math.inf:
            raise BadOption("base_delay", f"must be 0 seconds or more, not {self.base_delay!r}")
        if not self.base_delay <= self.max_delay < math.inf:
            raise BadOption(
                "max_delay", f"must be base_delay ({self.base_delay:g}) or more: {self.max_delay!r}"
            )
        if not 1 <= self.multiplier <= _LARGEST_MULTIPLIER:
            raise BadOption(
                "multiplier", f"must be from 1 to {_LARGEST_MULTIPLIER:g}, not {self.multiplier!r}"
            )
        if not 0 <= self.jitter <= 1:
            raise BadOption("jitter", f"must be from 0 to 1, not {self.jitter!r}")

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

        Args:
            attempt: the number of attempts, this one included.
            kind: the kind of failure.
            retry_after: seconds that the site asked for; used where longer than our own wait.
            random: from 0 to 1; places the wait within its jitter.
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


@dataclass(frozen=True, slots=True)
class RetryStatistics:
    """Attempts and their results; three attempts are two retries.

    `failures` counts failed attempts by kind, `exhausted` the operations given up after the last
    attempt, `postponed` those whose next attempt is too far ahead to wait for.
    """

    attempts: int
    retries: int
    successful_retries: int
    exhausted: int
    postponed: int
    failures: Mapping[FailureKind, int]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


class RetryHandler:
    """Runs operations with retries, and with a breaker for each domain.

    Args:
        max_attempts: attempts in total.
        base_delay: seconds before the second attempt; doubled for each further one.
        max_delay: the longest wait of ours in seconds.
        circuit_breaker_threshold: failures in a row that open a domain's breaker; None is never.
        jitter: the share of a wait, 0 to 1, by which it may be longer or shorter.
        policy: all of these but the threshold, and more, instead of them.
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
        self._counts = _RetryCounts()

    async def execute(
        self,
        operation: Callable[[], Awaitable[T]],
        *,
        domain: str = "default",
        attempts_made: int = 0,
        on_retry: OnRetry | None = None,
        waiting: AbstractContextManager[Any] = _NO_TIMER,
    ) -> T:
        """Run `operation`, again after a failure that may pass.

        Args:
            operation: called for each attempt.
            domain: the domain of the breaker.
            attempts_made: attempts of earlier calls, for an operation that was deferred.
            on_retry: called before each wait in place.
            waiting: entered during each such wait.

        Raises:
            CircuitOpen: the breaker is open, possibly since the last attempt.
            Deferred: the next attempt is too far ahead to wait for.
            Exception: that of the last attempt.
        """
        attempt = attempts_made
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
                if decision.action is RetryAction.GIVE_UP:
                    raise
                if decision.action is RetryAction.DEFER:
                    until = self._clock.now() + decision.seconds
                    url = getattr(error, "url", domain)
                    raise Deferred(url, until, str(error), kind_of(error)) from error
                if on_retry is not None:
                    on_retry(error, attempt, decision.seconds)
            else:
                self._counts.successful_retries += attempt > attempts_made + 1
                return result
            with waiting:
                await self._clock.sleep(decision.seconds)
            self._counts.retries += 1

    def get_statistics(self) -> RetryStatistics:
        """Return the statistics since the start or the last reset."""
        counts = {**asdict(self._counts), "failures": dict(self._counts.failures)}
        return RetryStatistics(**counts)

    def reset_statistics(self) -> None:
        """Start counting from zero; the breakers keep their state."""
        self._counts = _RetryCounts()

    def _decide(self, error: Exception, attempt: int) -> RetryDecision:
        kind = kind_of(error)
        self._counts.failures[kind] += 1
        if kind is not FailureKind.BLOCKED and not is_retryable(error):
            return RetryDecision(RetryAction.GIVE_UP)
        requested = getattr(error, "retry_after", None)
        decision = self._policy.decide(attempt, kind, requested, self._random())
        self._counts.exhausted += decision.action is RetryAction.GIVE_UP
        self._counts.postponed += decision.action is RetryAction.DEFER
        return decision


@dataclass(slots=True)
class _RetryCounts:
    attempts: int = 0
    retries: int = 0
    successful_retries: int = 0
    exhausted: int = 0
    postponed: int = 0
    failures: Counter[FailureKind] = field(default_factory=Counter)


# ---------------- Errors of other libraries, translated so that the policies understand them

_ERROR_STATUSES = range(400, 600)


def translate_error(error: Exception, url: str, now: float) -> Exception:
    """Return longline's error for one that carries an HTTP status; any other unchanged.

    The common libraries (requests, httpx, aiohttp, urllib) keep the status in different places,
    and some report a refused page as a broken connection.
    """
    status = error_status(error)
    if status is None or isinstance(error, LonglineError):
        return error
    response = getattr(error, "response", None)  # not by truth: a failed response may be false
    headers = getattr(error if response is None else response, "headers", None)
    get = getattr(headers, "get", None)
    text = get("Retry-After") if get else None
    return bad_status(url, status, parse_retry_after(str(text) if text else None, now))


def error_status(error: Exception) -> int | None:
    """Return the HTTP status from 400 that an error carries; None without one."""
    response = getattr(error, "response", None)
    candidates = (
        getattr(response, "status_code", None),
        getattr(response, "status", None),
        *(getattr(error, name, None) for name in ("status_code", "status", "code")),
    )
    return next((one for one in candidates if type(one) is int and one in _ERROR_STATUSES), None)
