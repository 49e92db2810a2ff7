"""What headers say, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the pause that Retry-After asks for, in seconds; None when it asks for none.

    Both forms count, seconds and dates; a date that has passed is a pause of zero, and what
    cannot be read is no header at all.
    """
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except ValueError:
        return None
