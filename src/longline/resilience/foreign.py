"""Errors of other libraries in our words, so that a policy knows what they mean."""

from __future__ import annotations

import math
from typing import Any

from longline.errors import LonglineError, bad_status

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
