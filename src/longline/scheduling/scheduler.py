"""The scheduler: decides due occurrences, by time and by other triggers, and places launches.

An executor calls `tick` again and again. Times are in a heap, so a tick without a due occurrence
costs one query. Several schedulers may share a database: an occurrence is decided in a transaction
that locks its schedule. The leader lease only saves work: the others decide what the leader has not
decided for some seconds.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from longline.config.settings import Settings
from longline.core.clock import Clock, utc_datetime
from longline.core.errors import BadFile, ConfigError, UnknownJob
from longline.core.model import Event
from longline.engine.owner import this_run
from longline.scheduling.definitions import DefinitionFiles, Target, problem_text, sync_files
from longline.scheduling.dependencies import (
    is_triggered,
    missed_deadlines,
    next_deadline,
    stale_from,
    trigger_types,
    waits_for_events,
)
from longline.scheduling.planning import Decision, Fate, Reason, Situation, decide, next_start
from longline.scheduling.schedule import Schedule, make_schedule
from longline.storage.events.events import EventFilter, event_row
from longline.storage.scheduling.launches import NewLaunch, schedule_origin
from longline.storage.scheduling.schedules import (
    DecidedOccurrence,
    ScheduleState,
    StoredSchedule,
    Wanted,
)
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)
LEADER = "scheduler"
"""The name of the lease of the scheduler that decides what is due; the others stand by."""
_LEADER_LEASE = 15.0  # seconds
_LEADER_RENEWAL = 5.0
_FOLLOWER_LAG = 10.0  # seconds by which the leader may be late before others decide
_FILES_INTERVAL = 2.0  # seconds between two checks of the files
_POLL = 1.0  # seconds between two ticks at most: changes of other processes are seen then
_NAMES_PER_STEP = 100  # schedules that are decided in one transaction
_MOST_DECISIONS = 500  # about one schedule in one transaction
_EVENTS_PER_STEP = 500
_WITH_DATA = ("job.complete", "job.partial")


def launch_of(schedule: Schedule, target: Target, nominal_at: float, at: float) -> NewLaunch:
    """Return the launch of one occurrence of a schedule."""
    origin = schedule_origin(schedule.name)
    return NewLaunch(
        kind=target.kind,
        name=target.name,
        spec=target.spec,
        origin=origin,
        at=at,
        key=f"{origin}@{utc_datetime(nominal_at).isoformat()}",
        priority=schedule.priority,
    )


@dataclass(slots=True)
class _Known:
    """A schedule in use, as it was last read.

    `triggered` are the times of events whose occurrences are not decided yet. Deadlines and the age
    of data need no decision before `checked_until`.
    """

    row: StoredSchedule
    schedule: Schedule
    triggered: set[float] = field(default_factory=set)
    checked_until: float = 0.0
    source: str | None = None
    """The source whose age triggers it."""

    @property
    def kind(self) -> str:
        """The kind of its occurrences."""
        if self.schedule.after is not None:
            return "after"
        if self.schedule.on is not None:
            return "event"
        return "scheduled" if self.schedule.fresh is None else "fresh"


@dataclass(slots=True)
class _Step:
    """What one transaction decides; filled in the thread of the writer."""

    now: float
    unfinished: set[str] = field(default_factory=set)
    handled: dict[str, set[float]] = field(default_factory=lambda: defaultdict(set))
    checked_until: dict[str, float] = field(default_factory=dict)


class Scheduler:
    """Decides the occurrences of all schedules of a home.

    Args:
        store: the database.
        clock: the time of all executors on this database.
        settings: name the files that define schedules.
        owner: the name for the leader lease; unique.
    """

    def __init__(
        self, store: Store, clock: Clock, settings: Settings, *, owner: str | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner or this_run()
        self._files = DefinitionFiles(settings)
        self._files_at = 0.0  # when they are checked next, on the clock of the loop
        self._is_leader = False
        self._renew_at = 0.0  # on the clock of the loop
        self._is_loaded = False
        self._known: dict[str, _Known] = {}
        self._waiting: list[_Known] = []  # those that events trigger
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}  # the entry of the heap that counts
        self._released_since: dict[str, float] = {}  # on the clock of the loop
        self._seen = 0  # the newest event whose changes of schedules are known
        self._types: list[str] = []  # of the events that trigger schedules
        self._cursor: int | None = None  # the last event that has triggered what it had to
        self._late_from: dict[str, float | None] = {}  # by source with a limit; None: it is late
        self._reported: dict[str, str] = {}  # problems, so that each is logged once

    async def tick(self) -> float | None:
        """Decide what is due; return the seconds until it wants to be called again.

        Raises:
            StoreError: the database is unavailable.
        """
        await self._check_files()
        await self._lead()
        polled = await self._store.schedules.poll()
        await self._read_changes(polled.newest_event)
        await self._read_triggers(polled.newest_event)
        await self._judge_freshness()
        await self._decide(self._released(polled.released))
        return self._pause()

    async def close(self) -> None:
        """Let another scheduler lead immediately."""
        if self._is_leader:
            self._is_leader = False
            await self._store.leaders.release(LEADER, self._owner)

    # ---------------- Definitions

    async def _check_files(self) -> None:
        """Store the definitions of files that have changed."""
        elapsed = _loop_time()
        if self._is_loaded and elapsed < self._files_at:
            return
        self._files_at = elapsed + _FILES_INTERVAL
        is_first = not self._is_loaded
        problems = await sync_files(self._store, self._files, self._clock.now(), is_first=is_first)
        for error in problems:
            await self._report_file(error)
        limits = self._files.freshness()
        if is_first or limits.keys() != self._late_from.keys():
            await self._store.schedules.forget_freshness(list(limits))
        self._late_from = {source: self._late_from.get(source, 0.0) for source in limits}

    async def _report_file(self, error: BadFile) -> None:
        if self._reported.get(error.path) == str(error):
            return
        self._reported[error.path] = str(error)
        _LOG.error("a file is invalid; its previous schedules stay in use: %s", error)
        data = {"path": error.path, "problem": str(error)}
        await self._store.events.append(
            event_row(None, self._clock.now(), "config.invalid", **data)
        )

    async def _read_changes(self, newest: int) -> None:
        """Read the schedules that were added, changed or removed, by any process."""
        schedules = self._store.schedules
        if not self._is_loaded:
            await asyncio.to_thread(self._use, await schedules.list(), [])
            self._is_loaded, self._seen = True, newest
        if newest <= self._seen:
            return
        wanted = EventFilter(("schedule.*", *(_WITH_DATA if self._late_from else ())))
        found, seen = await self._store.events.read(self._seen, wanted, limit=5000)
        names = sorted({one.data["schedule"] for one in found if one.type not in _WITH_DATA})
        if names:
            await asyncio.to_thread(self._use, await schedules.list(names=names), names)
        self._seen = seen
        for source in {
            await self._source_of_job(one.job) for one in found if one.type in _WITH_DATA
        }:
            if source in self._late_from and self._late_from[source] is None:
                self._late_from[source] = 0.0  # to be judged again

    def _use(self, rows: Sequence[StoredSchedule], names: Sequence[str]) -> None:
        """Use these rows as the schedules of these names; may import what they run."""
        old = {name: self._known.pop(name, None) for name in names}
        for name in names:
            self._due.pop(name, None)
        for row in rows:
            try:
                known = _Known(row, make_schedule(row.definition))
                if known.schedule.fresh is not None:
                    known.source = self._files.target_of(known.schedule).name
            except ConfigError as error:
                self._report(row.name, error)
                continue
            if (before := old.get(row.name)) is not None:
                known.triggered = before.triggered
            self._known[row.name] = known
        self._waiting = [one for one in self._known.values() if waits_for_events(one.schedule)]
        for row in rows:
            self._plan_next(row.name)
        for one in self._waiting:  # their deadlines depend on when others are due
            self._plan_next(one.row.name)

    def _report(self, name: str, error: ConfigError) -> None:
        problem = problem_text(error)
        if self._reported.get(name) != problem:
            self._reported[name] = problem
            _LOG.error("schedule %s cannot run: %s", name, problem)

    # ---------------- When something is due

    async def _lead(self) -> None:
        """Acquire or renew the leader lease."""
        elapsed = _loop_time()
        if elapsed < self._renew_at:
            return
        self._renew_at = elapsed + _LEADER_RENEWAL
        at = self._clock.now()
        self._is_leader = await self._store.leaders.acquire(
            LEADER, self._owner, at, at + _LEADER_LEASE
        )

    def _horizon(self) -> float:
        """Return until when it decides: now, or as long ago as another leader may be late."""
        return self._clock.now() - (0.0 if self._is_leader else _FOLLOWER_LAG)

    def _plan_next(self, name: str) -> None:
        """Put the next time at which a schedule needs a decision into the heap."""
        known = self._known.get(name)
        at = None if known is None else self._next_time(known)
        if at is None:
            self._due.pop(name, None)
        elif self._due.get(name) != at:
            self._due[name] = at
            heapq.heappush(self._heap, (at, name))

    def _next_time(self, known: _Known) -> float | None:
        schedule, since = known.schedule, known.row.decided_until
        if not schedule.enabled:
            return None
        times = [next_start(schedule, utc_datetime(since))]
        if schedule.after is not None:
            after = utc_datetime(max(since, known.checked_until))
            times.append(next_deadline(schedule, self._upstream(schedule), after))
        found = [one.timestamp() for one in times if one is not None]
        if schedule.fresh is not None:
            found.append(max(since, known.checked_until))
        if known.triggered:
            found.append(min(known.triggered) + schedule.delay.total_seconds())
        return min(found, default=None)

    def _pop_due(self) -> set[str]:
        horizon = self._horizon()
        names: set[str] = set()
        while self._heap and self._heap[0][0] <= horizon:
            at, name = heapq.heappop(self._heap)
            if self._due.get(name) == at:
                del self._due[name]
                names.add(name)
        return names

    def _released(self, names: Sequence[str]) -> set[str]:
        """Return the schedules with queued occurrences that are to be started now."""
        elapsed = _loop_time()
        self._released_since = {
            name: self._released_since.get(name, elapsed) for name in names if name in self._known
        }
        lag = 0.0 if self._is_leader else _FOLLOWER_LAG
        return {name for name, since in self._released_since.items() if elapsed - since >= lag}

    def _pause(self) -> float:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return _POLL
        return min(_POLL, max(0.0, self._heap[0][0] - self._horizon()))

    # ---------------- Decisions

    async def _decide(self, released: set[str]) -> None:
        """Decide what is due, some schedules at a time."""
        names = self._pop_due() | released
        try:
            await self._decide_several({*names})
        except BaseException:
            for name in names:  # they are still due, unless they were decided
                self._plan_next(name)
            raise

    async def _decide_several(self, names: set[str]) -> None:
        while names:
            some = sorted(names)[:_NAMES_PER_STEP]
            names.difference_update(some)
            if not self._is_leader:
                some = await self._still_due(some)
            wanted = {name: self._wanted(self._known[name]) for name in some if name in self._known}
            # Files are read, and sources in Python imported, before a transaction that needs them.
            await asyncio.to_thread(self._resolve, wanted)
            step = _Step(self._clock.now())
            plan = partial(self._plan, step)
            rows = await self._store.schedules.decide(wanted, plan, step.now) if wanted else []
            self._take_over(rows, wanted, step)
            names |= step.unfinished

    async def _still_due(self, names: Sequence[str]) -> list[str]:
        """Return those of these schedules that no other scheduler has decided."""
        horizon = self._horizon()
        left = []
        for name, until in (await self._store.schedules.decided_until(names)).items():
            known = self._known.get(name)
            if known is not None and until > known.row.decided_until:
                known.row = replace(known.row, decided_until=until)
                self._plan_next(name)
                if self._due.get(name, math.inf) > horizon:
                    continue
            left.append(name)
        return left

    def _take_over(
        self, rows: Sequence[StoredSchedule], wanted: Mapping[str, Wanted], step: _Step
    ) -> None:
        """Use the rows after a decision, and find out when they are due next."""
        for row in rows:
            known = self._known[row.name]
            if row.definition == known.row.definition:
                known.row = row
            known.triggered -= step.handled[row.name]
            known.checked_until = step.checked_until.get(row.name, known.checked_until)
            self._plan_next(row.name)
        for name in wanted.keys() - {row.name for row in rows}:  # it was removed
            del self._known[name]
            self._due.pop(name, None)

    def _wanted(self, known: _Known) -> Wanted:
        after = known.schedule.after
        return Wanted(
            triggered=sorted(known.triggered),
            back=0.0 if after is None or after.within is None else 2 * after.within,
            source=known.source,
        )

    def _plan(self, step: _Step, state: ScheduleState) -> Iterator[DecidedOccurrence]:
        """Yield the decisions about one schedule; runs in the thread of the writer."""
        known = self._known[state.row.name]
        if state.row.definition != known.row.definition:
            return  # the event of the change comes with the next tick
        schedule, now = known.schedule, utc_datetime(step.now)
        triggered = {utc_datetime(one) for one in state.wanted.triggered}
        missed = [*missed_deadlines(schedule, self._upstream(schedule), state, triggered, now)]
        if schedule.fresh is not None:
            due = stale_from(state.row, schedule.fresh, state.data_at)
            is_late = step.now - due > schedule.misfire.grace
            triggered = {utc_datetime(step.now if is_late else due)} if due <= step.now else set()
            step.checked_until[schedule.name] = due
        elif schedule.after is not None:
            step.checked_until[schedule.name] = step.now
        labels = {one.target or f"launch {one.launch}": one.launch for one in state.running}
        situation = Situation(
            utc_datetime(state.row.decided_until),
            decided={utc_datetime(one) for one in state.occurrences},
            queued=[utc_datetime(one) for one in state.queued],
            triggered=sorted(triggered),
            running=[*labels],
            paused=None if state.row.paused_at is None else state.row.pause_reason or "",
        )
        made = [*itertools.islice(decide(schedule, situation, now), _MOST_DECISIONS)]
        if len(made) == _MOST_DECISIONS:
            step.unfinished.add(schedule.name)
        nominals = {one.nominal for one in made}
        step.handled[schedule.name] = {
            one
            for one in state.wanted.triggered
            if one in state.occurrences
            or utc_datetime(one) in nominals
            or not schedule.is_active(utc_datetime(one))
        }
        yield from self._with_launches(known, made, labels, step.now)
        for nominal in sorted(set(missed) - nominals):
            reason = "deadline: the run it depends on has not ended in time"
            yield DecidedOccurrence(nominal.timestamp(), known.kind, Fate.MISSED.value, reason)

    def _with_launches(
        self, known: _Known, made: Sequence[Decision], labels: Mapping[str, int], now: float
    ) -> Iterator[DecidedOccurrence]:
        """Yield decisions as they are stored; without a valid target, nothing is started."""
        target, problem = self._target(known.schedule) if made else (None, "")
        for one in made:
            nominal_at = one.nominal.timestamp()
            is_started = one.fate in (Fate.FIRED, Fate.QUEUED) or one.reason is Reason.RUNNING
            if target is None and is_started:
                reason = f"invalid: {problem}"
                yield DecidedOccurrence(nominal_at, known.kind, Fate.MISSED.value, reason)
                continue
            launch = None
            if one.fate is Fate.FIRED and target is not None:
                launch = launch_of(known.schedule, target, nominal_at, now)
            parts = [part for part in (one.reason, one.detail) if part]
            cancels = [labels[label] for label in one.cancels]
            text = ": ".join(parts) or None
            yield DecidedOccurrence(nominal_at, known.kind, one.fate.value, text, launch, cancels)

    def _resolve(self, names: Iterable[str]) -> None:
        """Find out what schedules run; the files remember it until they change."""
        for name in names:
            self._target(self._known[name].schedule)

    def _target(self, schedule: Schedule) -> tuple[Target | None, str]:
        """Return what a schedule runs, or the problem with it."""
        try:
            return self._files.target_of(schedule), ""
        except ConfigError as error:
            self._report(schedule.name, error)
            return None, problem_text(error)

    # ---------------- Triggers by events

    async def _read_triggers(self, newest: int) -> None:
        """Find the schedules that events have triggered since the durable cursor."""
        await self._open_cursor()
        if self._cursor is None or self._cursor >= newest:
            return
        if not self._is_leader:  # what the leader has handled already
            self._cursor = max(self._cursor, await self._store.schedules.cursor() or 0)
        horizon, is_last = self._horizon(), False
        while self._cursor < newest and not is_last:
            wanted = EventFilter(tuple(self._types))
            found, cursor = await self._store.events.read(
                self._cursor, wanted, limit=_EVENTS_PER_STEP
            )
            ready = [*itertools.takewhile(lambda event: event.at <= horizon, found)]
            is_last = len(ready) < len(found)
            for event in ready:
                await self._trigger(event)
            await self._decide(set())
            self._cursor = found[len(ready)].id - 1 if is_last else cursor
            # After a crash, those that still wait for their jitter are read again.
            if not any(one.triggered for one in self._waiting):
                await self._store.schedules.move_cursor(self._cursor, self._clock.now())

    async def _open_cursor(self) -> None:
        types = trigger_types(one.schedule for one in self._waiting)
        if types == self._types and (self._cursor is None) == (not types):
            return
        self._types = types
        if types:
            since = min(one.row.decided_until for one in self._waiting)
            now = self._clock.now()
            self._cursor = await self._store.schedules.open_cursor(types, now, since)
        else:
            self._cursor = None
            await self._store.schedules.close_cursor()

    async def _trigger(self, event: Event) -> None:
        """Note which schedules an event triggers."""
        source = await self._source_of_job(event.job)
        for one in self._waiting:
            target = None if one.schedule.on is None else self._target(one.schedule)[0]
            own = frozenset[str]() if target is None else target.runs
            if event.at <= one.row.created_at:
                continue
            if not is_triggered(one.schedule, event, source, own):
                continue
            if not await self._is_too_late(one.schedule, event):
                one.triggered.add(utc_datetime(event.at).timestamp())
                self._plan_next(one.row.name)

    async def _source_of_job(self, job: str | None) -> str | None:
        try:
            return None if job is None else (await self._store.jobs.get(job)).source
        except UnknownJob:
            return None

    async def _is_too_late(self, schedule: Schedule, event: Event) -> bool:
        """Return whether a run has ended after the deadline, when this occurrence was missed."""
        run = event.job or event.data.get("run")
        if schedule.after is None or schedule.after.within is None or run is None:
            return False
        nominal = await self._store.schedules.nominal_of(run)
        return nominal is not None and event.at > nominal + schedule.after.within

    def _upstream(self, schedule: Schedule) -> list[Schedule]:
        """Return the schedules by time of what another one runs after."""
        after = schedule.after
        if after is None or after.within is None:
            return []
        return [
            one.schedule
            for one in list(self._known.values())
            if one.schedule.trigger is not None and one.schedule.enabled
            if one.row.paused_at is None and self._runs(one.schedule, after.source, after.flow)
        ]

    def _runs(self, schedule: Schedule, source: str | None, flow: str | None) -> bool:
        target, _ = self._target(schedule)
        wanted = ("source", source) if flow is None else ("flow", flow)
        return target is not None and (target.kind, target.name) == wanted

    # ---------------- Freshness

    async def _judge_freshness(self) -> None:
        """Report sources whose data has become too old, or is fresh again."""
        limits = self._files.freshness()
        horizon = self._horizon()
        for source, late_from in self._late_from.items():
            if late_from is not None and late_from <= horizon:
                self._late_from[source] = await self._store.schedules.judge_freshness(
                    source, limits[source], self._clock.now()
                )


def _loop_time() -> float:
    # Not the clock, which may be set back.
    return asyncio.get_running_loop().time()
