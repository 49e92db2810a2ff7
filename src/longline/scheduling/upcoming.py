"""The next runs of all schedules, in the order of their starts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

import orjson

from longline.core.clock import utc_datetime
from longline.core.errors import ConfigError
from longline.scheduling.planning import Planned, next_start, plan_next
from longline.scheduling.schedule import Schedule, make_schedule
from longline.scheduling.triggers import ClockChange
from longline.storage.scheduling.schedules import StoredSchedule

_TICK = timedelta(microseconds=1)
_MOST_SCHEDULES = 2000  # whose definitions are kept in memory
CLOCK_CHANGES = {
    ClockChange.SHIFTED: "clock change: its time is skipped",
    ClockChange.FIRST: "clock change: first of two",
    ClockChange.SECOND: "clock change: second of two",
}
"""What a change of the clock does to an occurrence."""


@dataclass(frozen=True, slots=True)
class UpcomingRun:
    """An occurrence to come of a schedule; `paused` is why the schedule is paused."""

    name: str
    planned: Planned
    paused: str | None


def upcoming_runs(
    stored: Sequence[StoredSchedule],
    now: datetime,
    days: float,
    *,
    after: tuple[datetime, str] | None = None,
) -> Iterator[UpcomingRun]:
    """Yield the occurrences of the next days; a definition that is invalid now has none.

    With `after`, the start and the name of one of them, only those that follow it.
    """
    end = now + timedelta(days=days)

    def of(one: StoredSchedule) -> Iterator[UpcomingRun]:
        try:
            schedule = stored_schedule(one)
        except ConfigError:  # of another version of longline
            return
        if not schedule.enabled:
            return
        begin = now if after is None else max(now, after[0] - schedule.delay - _TICK)
        for planned in plan_next(schedule, begin, (end - begin) / timedelta(days=1)):
            if after is None or (planned.starts_at, one.name) > after:
                yield UpcomingRun(one.name, planned, why_paused(one))

    def key(one: UpcomingRun) -> tuple[datetime, str]:
        return one.planned.starts_at, one.name

    return heapq.merge(*(of(one) for one in stored), key=key)


def due_since(one: StoredSchedule) -> float | None:
    """Return when the first undecided occurrence by time was or is due; None: there is none."""
    if one.paused_at is not None:
        return None
    try:
        found = next_start(stored_schedule(one), utc_datetime(one.decided_until))
    except ConfigError:  # of another version of longline
        return None
    return None if found is None else found.timestamp()


def why_paused(one: StoredSchedule) -> str | None:
    """Return why a schedule is paused; None: it is not."""
    return None if one.paused_at is None else one.pause_reason or "no reason given"


def stored_schedule(one: StoredSchedule) -> Schedule:
    """Return what a definition says; that of the same definition is validated once.

    Raises:
        BadOption: this version of longline does not know it.
    """
    return _schedule_of(orjson.dumps(one.definition))


@lru_cache(_MOST_SCHEDULES)
def _schedule_of(definition: bytes) -> Schedule:
    return make_schedule(orjson.loads(definition))
