"""Whether to try again, and when: after 1, 2, 4 … seconds, or as the site asks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from longline.errors import (
    BadOption,
    BadStatus,
    CircuitOpen,
    FailureKind,
    Postponed,
    RobotsUnreachable,
    kind_of,
)

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
        # A float overflows past 2.0**1023, so the exponent stops long before.
        plain = min(self.base_delay * self.multiplier ** min(attempt - 1, 64), self.max_delay)
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
    if isinstance(error, (CircuitOpen, Postponed, RobotsUnreachable)):
        return False  # the decision was made: the item is parked, or fails
    if isinstance(error, BadStatus):
        return error.status in RETRIED_STATUSES
    return kind_of(error) in RETRIED_KINDS
