"""How unlikely a difference is, and where the bulk of some numbers lies: plain statistics."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, lgamma


def chance_of_fewer(before: int, of_before: int, now: int, of_now: int) -> float:
    """Return how likely it is to see so few now, or fewer, if nothing has changed.

    Fisher's exact test, one-sided: `before` of `of_before` had it, `now` of `of_now` have it. More
    than all are taken for all, fewer than none for none.
    """
    before, now = max(0, min(before, of_before)), max(0, min(now, of_now))
    having, total = before + now, of_before + of_now
    least = max(0, having - of_before)
    whole = _log_choose(total, having)
    return sum(
        exp(_log_choose(of_now, k) + _log_choose(of_before, having - k) - whole)
        for k in range(least, now + 1)
    )


def chance_of_more(before: int, of_before: int, now: int, of_now: int) -> float:
    """Return how likely it is to see so many now, or more, if nothing has changed."""
    return chance_of_fewer(of_before - before, of_before, of_now - now, of_now)


def share_below(values: Sequence[float], limit: float) -> float:
    """Return the share of values below a limit."""
    return sum(value < limit for value in values) / len(values)


def share_above(values: Sequence[float], limit: float) -> float:
    """Return the share of values above a limit."""
    return sum(value > limit for value in values) / len(values)


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
