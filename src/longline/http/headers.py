"""What headers say, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

from longline.http.messages import Request

_LONGEST_NUMBER = 16  # characters; nothing that a site can mean takes more
_LONGEST_PAUSE = 366 * 86_400.0  # seconds; beyond a year a pause is nonsense


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the pause that Retry-After asks for, in seconds; None when it asks for none.

    Both forms count, seconds and dates; a date that has passed is a pause of zero, and what
    cannot be read is no header at all.
    """
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    seconds = number(text)
    if seconds is None:
        moment = date(text)
        seconds = None if moment is None else max(0.0, moment - now)
    return seconds if seconds is not None and seconds <= _LONGEST_PAUSE else None


def number(text: str) -> float | None:
    """Return a number of plain digits, with or without a fraction; None for anything else."""
    text = text.strip()
    whole, _, fraction = text.partition(".")
    # Python's own float() knows 1e9, nan, 1_000 and digits of other scripts besides.
    digits = whole + fraction
    if len(text) > _LONGEST_NUMBER or not (whole and digits.isascii() and digits.isdigit()):
        return None
    return float(text)


def date(text: str) -> float | None:
    """Return the moment of a date in a header, in seconds since the epoch."""
    try:
        moment = parsedate_to_datetime(text)
        # A date without a zone is meant as GMT, like all dates in headers.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


# ---------------- Headers, parameters and bodies that hold secrets, and do not show them when


class Redacted(dict[str, str]):
    """A dict that shows its names and hides its values."""

    def __repr__(self) -> str:
        return f"Veiled({', '.join(self)})"


class RedactedBody(bytes):
    """Bytes that show how many they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"VeiledBody({len(self)} bytes)"


def with_header(request: Request, name: str, value: str) -> Request:
    """Return the request with this header, unless it has one of that name already."""
    if has_header(request.headers, name):
        return request
    return request.having(Redacted({**request.headers, name: value}))


def has_header(headers: Mapping[str, str], name: str) -> bool:
    """Return whether there is a header of this name, in whatever case."""
    wanted = name.lower()
    return any(one.lower() == wanted for one in headers)
