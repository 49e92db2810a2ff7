"""What is decided about each occurrence of a schedule: fired, queued, skipped or missed.

A policy: the caller passes the time and what is stored, and stores the decisions. The nominal time
identifies an occurrence, so it is decided once, whatever the clock does.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property

from longline.scheduling.schedule import Exclusion, MisfirePolicy, Overlap, Schedule
from longline.scheduling.triggers import Occurrence, next_occurrence, occurrences


class Fate(StrEnum):
    """What is decided about an occurrence; a queued one is decided again later."""

    FIRED = "fired"
    QUEUED = "queued"
    SKIPPED = "skipped"
    MISSED = "missed"


class Reason(StrEnum):
    """Why an occurrence is not fired, or not yet."""

    EXCLUDED = "excluded"
    """The schedule excludes it; the detail is the reason of the exclusion."""
    PAUSED = "paused"
    """The schedule is paused; the detail is why."""
    LATE = "late"
    """It is late, and the schedule skips late occurrences."""
    TOO_OLD = "too old"
    """It is later than the maximum age."""
    TOO_MANY = "too many"
    """It is late, and the maximum count of later ones is due."""
    SUPERSEDED = "superseded"
    """Only the latest of several is started; the detail is its nominal time."""
    RUNNING = "running"
    """An earlier occurrence still runs; the detail is its job, if it has one already."""
    QUEUE_FULL = "queue full"
    """An earlier occurrence is already queued."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The fate of one occurrence; `cancels` are the jobs to cancel before it is started."""

    nominal: datetime
    fate: Fate
    reason: Reason | None = None
    detail: str = ""
    cancels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """What is stored about a schedule.

    All occurrences up to `since` are decided: it is the last nominal time that is, or the time when
    the schedule was added. `decided` has later nominal times that are decided, too, and `queued`
    those that are queued, in order. `triggered` has the undecided nominal times of other triggers,
    in order: when another run ended, an event happened or data became too old. `running` has the
    jobs that were started and have not ended. `paused` is why the schedule is paused; None: it is
    not.
    """

    since: datetime
    _: KW_ONLY
    decided: Collection[datetime] = ()
    queued: Sequence[datetime] = ()
    triggered: Sequence[datetime] = ()
    running: Sequence[str] = ()
    paused: str | None = None


def decide(schedule: Schedule, situation: Situation, now: datetime) -> Iterator[Decision]:
    """Yield the decisions about queued and about due occurrences, each in order.

    A long downtime of a frequent schedule makes many decisions. The caller may stop after any
    number of them, store these, and continue with the situation that follows.
    """
    return _Plan(schedule, situation, now).decisions() if schedule.enabled else iter(())


class _Plan:
    """The decisions at one time; remembers what the earlier ones start and queue."""

    def __init__(self, schedule: Schedule, situation: Situation, now: datetime) -> None:
        self._schedule = schedule
        self._situation = situation
        self._ready = now - schedule.delay  # an occurrence with this nominal time is due now
        self._is_busy = bool(situation.running)
        self._queued = 0

    def decisions(self) -> Iterator[Decision]:
        for nominal in self._situation.queued:
            if (decision := self._release(nominal)) is not None:
                yield decision
        for nominal in self._due(self._situation.since):
            decision = (
                self._refuse(nominal) or self._miss(nominal) or self._begin_occurrence(nominal)
            )
            self._is_busy |= decision.fate is Fate.FIRED
            self._queued += decision.fate is Fate.QUEUED
            yield decision

    def _release(self, nominal: datetime) -> Decision | None:
        """Decide about a queued occurrence; None: it stays queued."""
        if self._is_older(nominal, self._schedule.misfire.max_age):
            return Decision(nominal, Fate.MISSED, Reason.TOO_OLD)
        if self._is_busy or self._situation.paused is not None:
            self._queued += 1
            return None
        self._is_busy = True
        return Decision(nominal, Fate.FIRED)

    def _refuse(self, nominal: datetime) -> Decision | None:
        """Skip an occurrence that must not start at all."""
        exclusion = self._schedule.exclusion(nominal)
        if exclusion is not None:
            return Decision(nominal, Fate.SKIPPED, Reason.EXCLUDED, exclusion.reason or "")
        if self._situation.paused is not None:
            return Decision(nominal, Fate.SKIPPED, Reason.PAUSED, self._situation.paused)
        return None

    def _miss(self, nominal: datetime) -> Decision | None:
        """Give up an occurrence that is late."""
        misfire = self._schedule.misfire
        if not self._is_older(nominal, misfire.grace):
            return None
        if misfire.policy is MisfirePolicy.SKIP:
            return Decision(nominal, Fate.MISSED, Reason.LATE)
        if self._is_older(nominal, misfire.max_age):
            return Decision(nominal, Fate.MISSED, Reason.TOO_OLD)
        if nominal >= self._recent[0]:
            return None
        if misfire.policy is MisfirePolicy.LATEST:
            newest = self._recent[-1].isoformat()
            return Decision(nominal, Fate.MISSED, Reason.SUPERSEDED, newest)
        return Decision(nominal, Fate.MISSED, Reason.TOO_MANY)

    def _begin_occurrence(self, nominal: datetime) -> Decision:
        """Fire an occurrence, or what the schedule wants while an earlier one runs."""
        overlap, running = self._schedule.overlap, self._situation.running
        if overlap is Overlap.CANCEL_RUNNING:
            if nominal < self._recent[-1]:
                newest = self._recent[-1].isoformat()
                return Decision(nominal, Fate.SKIPPED, Reason.SUPERSEDED, newest)
            if running:
                return Decision(nominal, Fate.FIRED, cancels=tuple(running))
        if not self._is_busy:
            return Decision(nominal, Fate.FIRED)
        job = next(iter(running), "")
        if overlap is Overlap.SKIP:
            return Decision(nominal, Fate.SKIPPED, Reason.RUNNING, job)
        if overlap is Overlap.QUEUE_ONE and self._queued:
            return Decision(nominal, Fate.SKIPPED, Reason.QUEUE_FULL)
        return Decision(nominal, Fate.QUEUED, Reason.RUNNING, job)

    def _due(self, after: datetime) -> Iterator[datetime]:
        due: Iterator[datetime] = (
            one.nominal for one in occurrences(self._schedule, after, self._ready)
        )
        if self._situation.triggered:
            others = (
                one
                for one in self._situation.triggered
                if one <= self._ready and self._schedule.is_active(one)
            )
            due = heapq.merge(due, others)
        return (one for one in due if one not in self._situation.decided)

    @cached_property
    def _recent(self) -> Sequence[datetime]:
        """The last due occurrences, at least one; of late ones only these are started."""
        misfire = self._schedule.misfire
        count = misfire.max_count if misfire.policy is MisfirePolicy.ALL else 1
        oldest = self._ready - timedelta(
            seconds=max(misfire.max_age, misfire.grace), microseconds=1
        )
        due = self._due(max(self._situation.since, oldest))
        return deque((one for one in due if self._schedule.exclusion(one) is None), maxlen=count)

    def _is_older(self, nominal: datetime, seconds: float) -> bool:
        return self._ready - nominal > timedelta(seconds=seconds)


def next_start(schedule: Schedule, since: datetime) -> datetime | None:
    """Return when the first occurrence after `since` is to be started; None: there is none."""
    found = next_occurrence(schedule, since) if schedule.enabled else None
    return None if found is None else found.nominal + schedule.delay


def should_pause(schedule: Schedule, has_failed: Sequence[bool]) -> bool:
    """Return whether to pause a schedule, by whether its last runs have failed, newest first."""
    limit = schedule.pause_after_failures
    return limit is not None and len(has_failed) >= limit and all(has_failed[:limit])


@dataclass(frozen=True, slots=True)
class Planned:
    """An occurrence to come, when it will start, and what excludes it."""

    occurrence: Occurrence
    starts_at: datetime
    exclusion: Exclusion | None


def next_planned(schedule: Schedule, now: datetime, days: float) -> Planned | None:
    """Return the next occurrence that is not excluded; None: there is none in these days."""
    planned = plan_next(schedule, now, days) if schedule.enabled else iter(())
    return next((one for one in planned if one.exclusion is None), None)


def plan_next(schedule: Schedule, now: datetime, days: float) -> Iterator[Planned]:
    """Yield the occurrences of the next days."""
    for one in occurrences(schedule, now, now + timedelta(days=days)):
        yield Planned(one, one.nominal + schedule.delay, schedule.exclusion(one.nominal))
