"""Whether to try again, and when: after 1, 2, 4 … seconds, or as the site asks."""

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
from longline.limits.circuit import CircuitBreaker
from longline.limits.errors import CircuitOpen, Deferred

LONGEST_RETRY_AFTER = 86_400.0
"""A site that asks for more than a day is asked again after a day."""
LONGEST_WAIT_IN_PLACE = 30.0
"""Seconds; a longer wait is spent in the queue, where it holds up no worker."""
RETRIED_KINDS = frozenset(
    {FailureKind.NETWORK, FailureKind.TIMEOUT, FailureKind.OVERLOAD, FailureKind.SERVER}
)
_STEEPEST = 100.0  # to the power of 64 it is still a float
RETRIED_STATUSES = frozenset({429, 500, 501, 502, 503, 504})


class Step(StrEnum):
    """What to do about a failure: sit the wait out, put the item back in the queue, or give up."""

    WAIT = "wait"
    POSTPONE = "postpone"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and after how many seconds."""

    step: Step
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts` tries; waits grow from `base_delay` by `multiplier` up to `max_delay`.

    `jitter` is the part of a wait, 0 to 1, by which it may be longer or shorter. A wait above
    `longest_wait_in_place` is spent in the queue, as is the `blocked_delay` after a ban page.

    Raises:
        BadOption: when a figure makes no sense.
    """

    max_attempts: int = 3
    base_delay: float = 1.0
    max_delay: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.0
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
        if not 1 <= self.multiplier <= _STEEPEST:
            raise BadOption(
                "multiplier", f"must be from 1 to {_STEEPEST:g}, not {self.multiplier!r}"
            )
        if not 0 <= self.jitter <= 1:
            raise BadOption("jitter", f"must lie between 0 and 1, not {self.jitter!r}")

    def backoff(self, attempt: int, random: float = 0.5) -> float:
        """Return the wait after attempt number `attempt`, from 1; `random` lies in 0 to 1."""
        plain = backoff(
            attempt, base=self.base_delay, ceiling=self.max_delay, multiplier=self.multiplier
        )
        return min(plain * (1 + self.jitter * (2 * random - 1)), self.max_delay)

    def decide(
        self, attempt: int, kind: FailureKind, retry_after: float | None, random: float = 0.5
    ) -> Decision:
        """Decide what follows attempt number `attempt`, from 1.

        Args:
            attempt: How many attempts were made, this one included.
            kind: What went wrong.
            retry_after: Seconds the site asked for; it wins where longer than our own wait.
            random: From 0 to 1; places the wait within its jitter.
        """
        asked = min(max(retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER)
        if kind is FailureKind.BLOCKED:
            # Never in place, and whichever attempt it was: a ban says nothing about the item.
            return Decision(Step.POSTPONE, max(self.blocked_delay, asked))
        if attempt >= self.max_attempts or kind not in RETRIED_KINDS:
            return Decision(Step.GIVE_UP)
        seconds = max(self.backoff(attempt, random), asked)
        step = Step.WAIT if seconds <= self.longest_wait_in_place else Step.POSTPONE
        return Decision(step, seconds)


def is_retryable(error: BaseException) -> bool:
    """Whether another attempt may help."""
    if isinstance(error, (CircuitOpen, Deferred, RobotsUnreachable)):
        return False  # the decision was made: the item is parked, or fails
    if isinstance(error, BadStatus):
        return error.status in RETRIED_STATUSES
    return kind_of(error) in RETRIED_KINDS


# ---------------- Running an operation until it succeeds, or until nothing speaks for another try

T = TypeVar("T")
OnRetry = Callable[[Exception, int, float], None]
"""Told the error, the number of the attempt that ended with it, and the seconds to the next."""
_NOTHING = nullcontext()


@dataclass(frozen=True, slots=True)
class RetryStatistics:
    """Attempts and what became of them; three attempts are two retries.

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
        """Return the figures as plain values, ready for JSON."""
        return asdict(self)


class RetryHandler:
    """Runs operations with retries, and with a breaker for each domain.

    Args:
        max_attempts: Tries in all.
        base_delay: Seconds before the second try; doubled for each further one.
        max_delay: Seconds that our own waits never exceed.
        circuit_breaker_threshold: Failures in a row that open a domain's breaker; None is never.
        jitter: The part of a wait, 0 to 1, by which it may be longer or shorter.
        policy: All of these but the threshold, and more, instead of them.
        breaker: A breaker to share, instead of one of its own.
        clock: What to wait by.
        random: Returns a number from 0 to 1, for the jitter.

    Raises:
        BadOption: when a figure makes no sense.
    """

    def __init__(
        self,
        max_attempts: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 60.0,
        circuit_breaker_threshold: int | None = 10,
        *,
        jitter: float = 0.0,
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
        self._tally = _Tally()

    async def execute(
        self,
        operation: Callable[[], Awaitable[T]],
        *,
        domain: str = "default",
        attempts_made: int = 0,
        on_retry: OnRetry | None = None,
        waiting: AbstractContextManager[Any] = _NOTHING,
    ) -> T:
        """Run `operation`, again after a failure that may pass.

        Args:
            operation: Called anew for each attempt.
            domain: Whose breaker is asked and told.
            attempts_made: Attempts of earlier calls, for an operation that was postponed.
            on_retry: Called before each wait in place.
            waiting: Entered for the time of each such wait.

        Raises:
            CircuitOpen: when the domain rests; it may begin to between two attempts.
            Deferred: when the next attempt is too far ahead to wait for.
            Exception: that of the last attempt, when nothing speaks for another.
        """
        attempt = attempts_made
        while True:
            attempt += 1
            try:
                self._tally.attempts += 1
                if self._breaker is None:
                    result = await operation()
                else:
                    async with self._breaker.guard(domain):
                        result = await operation()
            except (CircuitOpen, Deferred):
                raise  # decided before: the item is parked
            except Exception as error:
                decision = self._decide(error, attempt)
                if decision.step is Step.GIVE_UP:
                    raise
                if decision.step is Step.POSTPONE:
                    raise self._postponed(error, domain, decision.seconds) from error
                if on_retry is not None:
                    on_retry(error, attempt, decision.seconds)
            else:
                self._tally.successful_retries += attempt > attempts_made + 1
                return result
            with waiting:
                await self._clock.sleep(decision.seconds)
            self._tally.retries += 1

    def get_statistics(self) -> RetryStatistics:
        """Return the figures since the start or the last reset."""
        figures = {**asdict(self._tally), "failures": dict(self._tally.failures)}
        return RetryStatistics(**figures)

    def reset_statistics(self) -> None:
        """Begin to count anew; the breakers stay as they are."""
        self._tally = _Tally()

    def _decide(self, error: Exception, attempt: int) -> Decision:
        kind = kind_of(error)
        self._tally.failures[kind] += 1
        if kind is not FailureKind.BLOCKED and not is_retryable(error):
            return Decision(Step.GIVE_UP)
        retry_after = getattr(error, "retry_after", None)
        decision = self._policy.decide(attempt, kind, retry_after, self._random())
        self._tally.exhausted += decision.step is Step.GIVE_UP
        self._tally.postponed += decision.step is Step.POSTPONE
        return decision

    def _postponed(self, error: Exception, domain: str, seconds: float) -> Deferred:
        until = self._clock.now() + seconds
        return Deferred(getattr(error, "url", domain), until, str(error), kind_of(error))


@dataclass(slots=True)
class _Tally:
    attempts: int = 0
    retries: int = 0
    successful_retries: int = 0
    exhausted: int = 0
    postponed: int = 0
    failures: Counter[FailureKind] = field(default_factory=Counter)


# ---------------- Errors of other libraries in our words, so that a policy knows what they mean

_FIRST_BAD = 400
_LAST_BAD = 599


def translated(error: Exception, url: str) -> Exception:
    """Return our error for one that carries the status of an answer; any other as it is.

    The libraries that people ask the web with (requests, httpx, aiohttp, urllib) keep the status
    in different places, and some call a refused page a broken connection.
    """
    status = status_of(error)
    if status is None or isinstance(error, LonglineError):
        return error
    return bad_status(url, status, _retry_after(error))


def status_of(error: Exception) -> int | None:
    """Return the status of the answer that an error is about, of 400 or more; None without one."""
    answer = getattr(error, "response", None)
    places = (
        getattr(answer, "status_code", None),
        getattr(answer, "status", None),
        *(getattr(error, name, None) for name in ("status_code", "status", "code")),
    )
    return next((one for one in places if _is_bad(one)), None)


def _is_bad(value: Any) -> bool:
    return type(value) is int and _FIRST_BAD <= value <= _LAST_BAD


def _retry_after(error: Exception) -> float | None:
    answer = getattr(error, "response", None)  # which may call itself False, being a bad one
    headers = getattr(error if answer is None else answer, "headers", None)
    try:
        seconds = float(headers.get("Retry-After"))  # type: ignore[union-attr]  # checked by trying
    except (AttributeError, TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
