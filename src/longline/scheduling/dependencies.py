"""Triggers other than time: the end of another run, an event, data that has become too old.

Policies, as in `planning.py`: the caller passes the time and what is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from longline.core.clock import utc_datetime
from longline.core.errors import BadOption
from longline.core.event_types import EVENT_TYPES, match_types
from longline.core.model import Event
from longline.scheduling.schedule import Dependency, Schedule
from longline.scheduling.triggers import next_occurrence, occurrences
from longline.storage.scheduling.schedules import ScheduleState, StoredSchedule

_TICK = 0.001  # seconds; an occurrence is later than what is decided
_ENDS = ("complete", "partial", "failed", "cancelled", "compensated", "needs_attention")
_END_TYPES = tuple(
    name
    for name in (f"{kind}.{end}" for kind in ("job", "flow") for end in _ENDS)
    if name in EVENT_TYPES
)
_STATES: Mapping[str, Collection[str]] = {
    "complete": ("complete",),
    "partial": ("complete", "partial"),
    "any": _ENDS,
}


# ---------------- Events


def waits_for_events(schedule: Schedule) -> bool:
    """Return whether events trigger a schedule."""
    return schedule.enabled and (schedule.after is not None or schedule.on is not None)


def trigger_types(schedules: Iterable[Schedule]) -> list[str]:
    """Return the types of the events that may trigger one of these schedules."""
    types: dict[str, None] = {}
    for one in schedules:
        if one.after is not None:
            types.update(dict.fromkeys(_END_TYPES))
        elif one.on is not None:
            types.update(dict.fromkeys(match_types([one.on.event])))
    return list(types)


def is_triggered(
    schedule: Schedule, event: Event, source: str | None, own: Collection[str]
) -> bool:
    """Return whether an event triggers a schedule.

    Args:
        schedule: waits for events.
        event: happened since the schedule was added.
        source: the source of the job of the event.
        own: `source NAME` and `flow NAME` of what the schedule itself runs, whose events do not
            trigger it.
    """
    if schedule.after is not None:
        kind, _, end = event.type.partition(".")
        if event.type not in _END_TYPES or end not in _STATES[schedule.after.states]:
            return False
        if schedule.after.flow is not None:
            return kind == "flow" and event.data.get("flow") == schedule.after.flow
        return kind == "job" and source == schedule.after.source
    if schedule.on is None or event.type not in match_types([schedule.on.event]):
        return False
    about = source or event.data.get("source")
    if schedule.on.source is not None:
        return bool(about == schedule.on.source)
    is_own = f"source {about}" in own or f"flow {event.data.get('flow')}" in own
    return not is_own and event.data.get("schedule") != schedule.name


# ---------------- Deadlines


def next_deadline(
    schedule: Schedule, upstream: Iterable[Schedule], since: datetime
) -> datetime | None:
    """Return the first deadline after `since`; None: there is none.

    `upstream` are the schedules by time of what this one runs after.
    """
    if schedule.after is None or schedule.after.within is None or not schedule.enabled:
        return None
    within = timedelta(seconds=schedule.after.within)
    found = [next_occurrence(one, since - within) for one in upstream]
    return min((one.nominal + within for one in found if one is not None), default=None)


def missed_deadlines(
    schedule: Schedule,
    upstream: Iterable[Schedule],
    state: ScheduleState,
    triggered: Collection[datetime],
    now: datetime,
) -> Iterator[datetime]:
    """Yield the deadlines until `now` before which nothing has triggered a schedule."""
    if schedule.after is None or schedule.after.within is None or not schedule.enabled:
        return
    within = timedelta(seconds=schedule.after.within)
    since = utc_datetime(state.row.decided_until)
    ended = {utc_datetime(at) for at, fate in state.occurrences.items() if fate != "missed"}
    for one in upstream:
        for due in occurrences(one, since - within, now - within):
            is_older = due.nominal.timestamp() <= state.row.created_at
            if is_older or one.exclusion(due.nominal) is not None:
                continue
            end = due.nominal + within
            if not any(due.nominal <= at <= end for at in (*ended, *triggered)):
                yield end


# ---------------- Freshness


def stale_from(row: StoredSchedule, limit: float, data_at: float | None) -> float:
    """Return from when on a schedule with the trigger `fresh` is due.

    That is when the data is older than `limit` seconds; without data, since the schedule was added.
    After a run without a result, it is due again `limit` seconds later.
    """
    is_first = row.decided_until <= row.created_at
    due = row.created_at + _TICK if is_first else row.decided_until + limit
    return due if data_at is None else max(due, data_at + limit)


# ---------------- Cycles


def check_cycles(dependencies: Iterable[tuple[Dependency, Collection[str]]]) -> None:
    """Check that no source or flow triggers itself, directly or through others.

    Args:
        dependencies: each with `source NAME` and `flow NAME` of what it triggers.

    Raises:
        BadOption: one does; says which.
    """
    follows: dict[str, set[str]] = {}
    for after, triggered in dependencies:
        before = f"flow {after.flow}" if after.flow else f"source {after.source}"
        follows.setdefault(before, set()).update(triggered)
    for start in follows:
        path = _path_back(start, follows)
        if path:
            raise BadOption("after", f"these trigger each other in a cycle: {' → '.join(path)}")


def _path_back(start: str, follows: Mapping[str, Collection[str]]) -> list[str]:
    """Return a path from `start` back to it; empty if there is none."""
    paths = [[start]]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        for one in sorted(follows.get(path[-1], ())):
            if one == start:
                return [*path, one]
            if one not in seen:
                seen.add(one)
                paths.append([*path, one])
    return []
