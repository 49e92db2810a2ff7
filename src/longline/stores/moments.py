"""Moments as people write them: a date, a date and time, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from longline.errors import BadOption

_AGO = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_moment(text: str, *, option: str, now: float | None = None) -> float:
    """Return the seconds since the epoch that a text means: 2026-11-01, 2026-11-01T08:30, 2d, 3h.

    Without a time zone it is UTC. "How long ago" needs to know what time it is `now`.

    Raises:
        BadOption: it means no moment; names `option`.
    """
    written = text.strip()
    ago = _AGO.fullmatch(written)
    if ago and now is not None:
        return now - float(ago[1]) * _SECONDS[ago[2]]
    try:
        read = datetime.fromisoformat(written)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        known = "a date (2026-11-01), a time (2026-11-01T08:30)"
        known += " or how long ago (30m, 3h, 2d)" if now is not None else ""
        raise BadOption(option, f"{text!r} is no moment; say {known}") from error
