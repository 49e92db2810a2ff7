"""What happened to the records of a source between two of its runs.

A record has disappeared only when a run that could have seen it did not: what failed, what was
quarantined and what a run did not reach is unknown, and said to be.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from longline.analysis.job_report import Coverage, coverage_of, differing_scope
from longline.core.errors import BadOption, FailureKind
from longline.core.model import OPEN_STATES, ItemState, Job, JobState
from longline.storage.records.differences import Difference
from longline.storage.records.runs import Meeting, Pair, Sighting
from longline.storage.store import Store

_FINISHED = (JobState.COMPLETE, JobState.PARTIAL)
_FEW = 20  # records of which any number may go at once
_MOST_LOST = 0.5  # of the records of a run: beyond that, the list was more likely cut


class Fate(StrEnum):
    """What became of a record."""

    APPEARED = "appeared"
    CHANGED = "changed"
    DISAPPEARED = "disappeared"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Change:
    """One record: what became of it, the fields that differ, why that is unknown."""

    key: str
    fate: Fate
    differences: tuple[Difference, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """All that happened between two runs; `older` is None for the first run of a source.

    `counts` are of all records; `told` holds those that are not unchanged, at most as many of
    each fate as were asked for. `caveats` say what the runs could not see.
    """

    source: str
    older: str | None
    newer: str
    counts: Mapping[Fate, int]
    told: tuple[Change, ...]
    caveats: tuple[str, ...] = ()

    def of(self, fate: Fate) -> tuple[Change, ...]:
        """Return the records of this fate."""
        return tuple(one for one in self.told if one.fate is fate)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "source": self.source,
            "from": self.older,
            "to": self.newer,
            "counts": {fate.value: self.counts[fate] for fate in Fate},
            "appeared": [one.key for one in self.of(Fate.APPEARED)],
            "changed": {
                one.key: [difference.as_dict() for difference in one.differences]
                for one in self.of(Fate.CHANGED)
            },
            "disappeared": [one.key for one in self.of(Fate.DISAPPEARED)],
            "unknown": {one.key: one.reason for one in self.of(Fate.UNKNOWN)},
            "caveats": list(self.caveats),
        }


async def changes_between(
    store: Store,
    source: str | None = None,
    older_job: str | None = None,
    newer_job: str | None = None,
    *,
    most: int | None = None,
) -> Changes:
    """Return what happened between two runs: the last two finished ones, unless others are named.

    Args:
        store: where the jobs are.
        source: whose runs; unless said, that of the jobs named, or of the last finished job.
        older_job: an id or its beginning.
        newer_job: an id or its beginning.
        most: tell at most this many records of each fate; all are counted.

    Raises:
        UnknownJob: none or several fit.
        BadOption: there is no finished run, or these two cannot be compared.
    """
    older, newer, later = await _chosen(store, source, older_job, newer_job)
    then = await coverage_of(store, older) if older else Coverage()
    now = await coverage_of(store, newer)
    before = differing_scope(newer, older) if older else ()
    scope = differing_scope(older, newer) if older else ()
    judge = _Judge(older is None, (*then.gaps, *before), (*now.gaps, *scope), most)
    pair = Pair(newer.source, older.id if older else "", newer.id, _end(older))
    await store.records.history.meet(pair, judge.hear_all)
    caveats = (*_caveats(older, newer, judge), *then.notes, *now.notes, *later)
    return Changes(
        source=newer.source,
        older=older.id if older else None,
        newer=newer.id,
        counts={fate: judge.counts[fate] for fate in Fate},
        told=tuple(judge.told),
        caveats=caveats,
    )


@dataclass(slots=True)
class _Judge:
    """Hears of the items of two runs, one by one, and says what became of their records."""

    is_first: bool
    older_gaps: tuple[str, ...]
    newer_gaps: tuple[str, ...]
    most: int | None
    counts: Counter[Fate] = field(default_factory=Counter)
    told: list[Change] = field(default_factory=list)
    lost_steps: int = 0
    had: int = 0
    missing: int = 0
    first_missing: str | None = None

    def hear_all(self, meetings: Iterable[Meeting]) -> None:
        for meeting in meetings:
            self.had += _was_record(meeting)
            change = self._judged(meeting)
            if change is not None:
                self._note(change)

    def _note(self, change: Change) -> None:
        self.counts[change.fate] += 1
        has_room = self.most is None or self.counts[change.fate] <= self.most
        if change.fate is not Fate.UNCHANGED and has_room:
            self.told.append(change)

    def _judged(self, met: Meeting) -> Change | None:
        if met.newer is None:
            return self._absent(met)
        if met.newer.is_good:
            return self._seen(met)
        if met.newer.state is ItemState.SKIPPED:
            return _skipped(met, met.newer)
        if met.older is not None and _is_step(met.older):
            self.lost_steps += 1  # what it leads to could not be found this time
        return Change(met.key, Fate.UNKNOWN, reason=_why(met.newer))

    def _seen(self, met: Meeting) -> Change:
        was_there = met.older is not None and met.older.kind is not FailureKind.GONE
        may_have_been = met.older is None and bool(self.older_gaps)
        if met.was_known and not self.is_first and (was_there or may_have_been):
            fate = Fate.CHANGED if met.differences else Fate.UNCHANGED
            return Change(met.key, fate, met.differences)
        if met.older is not None and was_there and not met.older.is_good:
            return Change(met.key, Fate.UNKNOWN, reason=_why_new(met.older))
        return Change(met.key, Fate.APPEARED)

    def _absent(self, met: Meeting) -> Change | None:
        """Judge what only the older run had."""
        if not _was_record(met):
            return None
        if self.newer_gaps or self.lost_steps:
            return Change(met.key, Fate.UNKNOWN, reason="the newer run did not reach it")
        self.missing += 1
        self.first_missing = self.first_missing or met.key
        return Change(met.key, Fate.DISAPPEARED)


def _skipped(met: Meeting, newer: Sighting) -> Change | None:
    """Judge what the newer run left out: gone is gone, the rest was a choice of ours."""
    if met.older is None or not met.older.is_good:
        return None
    if newer.kind is FailureKind.GONE:
        return Change(met.key, Fate.DISAPPEARED, reason=newer.reason)
    return Change(met.key, Fate.UNKNOWN, reason=_why(newer))


def _was_record(met: Meeting) -> bool:
    """Say whether the older run had an item whose record was there by then."""
    return met.was_known and met.older is not None and met.older.state is not ItemState.SKIPPED


def _is_step(sighting: Sighting) -> bool:
    """Say whether an item was only a step on the way to others, such as a list."""
    return sighting.state is ItemState.SKIPPED and sighting.kind is None


def _why(sighting: Sighting) -> str:
    if sighting.state in {ItemState.QUEUED, ItemState.LEASED}:
        return "not reached yet"
    return f"{sighting.state.value}: {sighting.reason or 'no reason was kept'}"


def _why_new(older: Sighting) -> str:
    """Return why a new record is no new item: the older run knew it, and made no record of it."""
    verb = "left it out" if older.state is ItemState.SKIPPED else "could not read it"
    return f"the older run {verb}: {_why(older)}"


def _end(job: Job | None) -> float:
    if job is None:
        return 0.0
    return float("inf") if job.finished_at is None else job.finished_at


def _caveats(older: Job | None, newer: Job, judge: _Judge) -> list[str]:
    told = [
        f"what disappeared cannot be told: {newer.id} {gap}"
        for gap in dict.fromkeys(judge.newer_gaps)
    ]
    if judge.lost_steps:
        told.append(
            f"what disappeared cannot be told: {judge.lost_steps} pages that lead to others "
            f"could not be read by {newer.id}"
        )
    if older is not None:
        gaps = dict.fromkeys(judge.older_gaps)
        told += [f"what appeared may have been there before: {older.id} {gap}" for gap in gaps]
    return [*told, *_cut(older, newer, judge)]


def _cut(older: Job | None, newer: Job, judge: _Judge) -> list[str]:
    """Return a doubt when so much is missing at once that the list was probably cut."""
    if older is None or judge.had < _FEW or judge.missing <= judge.had * _MOST_LOST:
        return []
    one = shlex.quote(f"{newer.source}/{judge.first_missing}")
    lost = f"{judge.missing:,} of {judge.had:,} records of {older.id} are missing at once"
    doubt = "more likely a list that was cut than so many that went"
    look = f"see how far it came (longline jobs {newer.id}) and whether one is still there"
    return [f"{lost}, {doubt}: {look} (longline records show {one})"]


async def _chosen(
    store: Store, source: str | None, older_job: str | None, newer_job: str | None
) -> tuple[Job | None, Job, tuple[str, ...]]:
    older = await store.jobs.get(older_job) if older_job else None
    newer = await store.jobs.get(newer_job) if newer_job else None
    later: tuple[str, ...] = ()
    named = [job for job in (newer, older) if job]
    name = source or (named[0].source if named else None)
    jobs = await store.jobs.list(limit=None)
    finished = [job for job in jobs if _is_finished(job, name)]
    if newer is None:
        newer = next((job for job in finished if job != older), None)
        if newer is None:
            of = f" of {name}" if name else ""
            raise BadOption("changes", f"there is no finished run{of} here to look at")
        later = _later(jobs, newer)
    if older is None:
        earlier = (job for job in finished if _is_before(job, newer))
        older = next((job for job in earlier if job.source == newer.source), None)
    _check(older, newer, name or newer.source)
    return older, newer, later


def _is_finished(job: Job, source: str | None) -> bool:
    return job.state in _FINISHED and (source is None or job.source == source)


def _is_before(job: Job, newer: Job) -> bool:
    return (job.created_at, job.id) != (newer.created_at, newer.id) and (
        job.created_at <= newer.created_at
    )


def _check(older: Job | None, newer: Job, source: str) -> None:
    for job in (older, newer):
        if job is not None and job.source != source:
            raise BadOption("changes", f"{job.id} is a run of {job.source}, not of {source}")
    if older is None:
        return
    if older.id == newer.id:
        raise BadOption("changes", f"{older.id} cannot be compared with itself")
    if older.created_at > newer.created_at:
        raise BadOption("changes", f"{older.id} began after {newer.id}; name them the other way")


def _later(jobs: Sequence[Job], newer: Job) -> tuple[str, ...]:
    """Return a word on runs after the last finished one, which are not looked at."""
    others = [
        job for job in jobs if job.source == newer.source and job.created_at > newer.created_at
    ]
    return tuple(f"{job.id} is later and not compared: it {_how(job.state)}" for job in others)


def _how(state: JobState) -> str:
    if state in OPEN_STATES:
        return f"is {state.value}"
    return "failed" if state is JobState.FAILED else "was cancelled"
