"""Running an operation until it succeeds, or until nothing speaks for another try."""

from __future__ import annotations

import random as randomness
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from longline.clock import Clock, SystemClock
from longline.errors import CircuitOpen, FailureKind, Postponed, kind_of
from longline.resilience.circuit import CircuitBreaker
from longline.resilience.retry import Decision, RetryPolicy, Step, is_retryable

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
            Postponed: when the next attempt is too far ahead to wait for.
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
            except (CircuitOpen, Postponed):
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

    def _postponed(self, error: Exception, domain: str, seconds: float) -> Postponed:
        until = self._clock.now() + seconds
        return Postponed(getattr(error, "url", domain), until, str(error), kind_of(error))


@dataclass(slots=True)
class _Tally:
    attempts: int = 0
    retries: int = 0
    successful_retries: int = 0
    exhausted: int = 0
    postponed: int = 0
    failures: Counter[FailureKind] = field(default_factory=Counter)
