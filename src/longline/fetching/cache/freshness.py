"""How old a stored answer is, how long it holds, and whether it may be used (RFC 9111 §4.2)."""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from longline.fetching.cache.asking import Wishes
from longline.fetching.cache.base import Entry
from longline.fetching.cache.directives import (
    Directives,
    read_date,
    read_directives,
    whole_header,
    whole_number,
)

_HEURISTIC_PART = 0.1  # of the time since the last change
_HEURISTIC_MOST = 7 * 24 * 3600.0
_HEURISTIC_STATUSES = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414})


class Use(Enum):
    """What may be done with a stored answer."""

    ANSWER = auto()
    ANSWER_AND_REFRESH = auto()
    VALIDATE = auto()


def directives_of(entry: Entry) -> Directives:
    """Return what the stored answer says of itself."""
    return read_directives(whole_header(entry.headers, "cache-control"))


def age_of(entry: Entry, now: float) -> float:
    """Return the seconds since the site made the answer, as RFC 9111 §4.2.3 counts them."""
    date = read_date(entry.headers.get("date", ""))
    apparent = 0.0 if date is None else max(0.0, entry.responded_at - date)
    told = whole_number(whole_header(entry.headers, "age")) or 0.0
    corrected = told + entry.responded_at - entry.requested_at
    return max(apparent, corrected) + max(0.0, now - entry.responded_at)


def lifetime_of(entry: Entry, *, heuristic: bool = False) -> float:
    """Return the seconds an answer holds from when it was made; 0 when it does not say."""
    age = whole_header(entry.headers, "age")
    if age and whole_number(age) is None:
        return 0.0  # somebody on the way counts wrongly: better to ask
    max_age = directives_of(entry).seconds("max-age")
    if max_age is not None:
        return max_age
    if "expires" in entry.headers:
        return _until_expiry(entry)
    return _guessed(entry) if heuristic else 0.0


def judge(entry: Entry, wishes: Wishes, now: float, *, heuristic: bool = False) -> Use:
    """Say whether a stored answer that fits a request may answer it now."""
    said = directives_of(entry)
    if wishes.is_no_cache or said.is_bare("no-cache"):
        return Use.VALIDATE
    age = age_of(entry, now)
    staleness = age - lifetime_of(entry, heuristic=heuristic)
    # RFC 8246: what is immutable is not asked for again while it is fresh, even on a reload.
    if age > wishes.max_age and not (staleness < 0 and "immutable" in said):
        return Use.VALIDATE
    if staleness + wishes.min_fresh < 0:
        return Use.ANSWER
    if "must-revalidate" in said or wishes.min_fresh:
        return Use.VALIDATE
    return _use_of_stale(said, wishes, staleness)


def holds_in_need(entry: Entry, wishes: Wishes, now: float, *, heuristic: bool = False) -> bool:
    """Say whether a stored answer may stand in for a site that fails (stale-if-error)."""
    said = directives_of(entry)
    if wishes.is_no_cache or said.is_bare("no-cache") or "must-revalidate" in said:
        return False
    allowed = [said.seconds("stale-if-error"), wishes.stale_if_error]
    longest = max((one for one in allowed if one is not None), default=-inf)
    return age_of(entry, now) - lifetime_of(entry, heuristic=heuristic) <= longest


def _use_of_stale(said: Directives, wishes: Wishes, staleness: float) -> Use:
    if wishes.max_stale is not None and staleness <= wishes.max_stale:
        return Use.ANSWER
    if staleness < (said.seconds("stale-while-revalidate") or 0.0):
        return Use.ANSWER_AND_REFRESH
    return Use.VALIDATE


def _until_expiry(entry: Entry) -> float:
    expires = read_date(entry.headers["expires"])
    if expires is None:
        return 0.0
    made = read_date(entry.headers.get("date", ""))
    return max(0.0, expires - (entry.responded_at if made is None else made))


def _guessed(entry: Entry) -> float:
    if entry.status not in _HEURISTIC_STATUSES and "public" not in directives_of(entry):
        return 0.0
    changed = read_date(entry.headers.get("last-modified", ""))
    if changed is None:
        return 0.0
    made = read_date(entry.headers.get("date", "")) or entry.responded_at
    return min(max(0.0, made - changed) * _HEURISTIC_PART, _HEURISTIC_MOST)
