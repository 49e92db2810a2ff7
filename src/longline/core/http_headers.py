"""Values of HTTP headers: numbers, dates and Retry-After."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache

_LONGEST_NUMBER = 16  # characters; no meaningful value is longer
_LONGEST_PAUSE = 366 * 86_400.0  # seconds; a longer pause is not credible


def parse_retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for; None without a valid one.

    Both forms are read, seconds and dates; a date in the past is a pause of zero.
    """
    if not text or not text.strip():
        return None
    seconds = parse_number(text)
    if seconds is None:
        date = parse_http_date(text)
        seconds = None if date is None else max(0.0, date - now)
    return seconds if seconds is not None and seconds <= _LONGEST_PAUSE else None


def parse_number(text: str) -> float | None:
    """Return a number of plain digits, with or without a fraction; None for anything else."""
    text = text.strip()
    whole, _, fraction = text.partition(".")
    # float() would also accept 1e9, nan, 1_000 and digits of other scripts.
    digits = whole + fraction
    if len(text) > _LONGEST_NUMBER or not (whole and digits.isascii() and digits.isdigit()):
        return None
    return float(text)


@lru_cache(maxsize=1024)
def parse_http_date(text: str) -> float | None:
    """Return an HTTP date, in any of its three forms, in seconds since the epoch."""
    try:
        date = parsedate_to_datetime(text.strip())
        # A date without a zone is GMT, like all dates in headers.
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
