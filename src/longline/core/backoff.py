"""Exponential backoff."""

from __future__ import annotations

_MAX_EXPONENT = 64  # a float overflows past 2.0**1023


def backoff(failures: int, *, base: float, ceiling: float, multiplier: float = 2.0) -> float:
    """Return the seconds to wait after this many failures in a row, without jitter."""
    return min(base * multiplier ** min(max(failures - 1, 0), _MAX_EXPONENT), ceiling)
