"""Compare two runs of a source: which records appeared, changed and disappeared.

A record has disappeared only if a run that could have seen it did not. Whatever failed, was
quarantined or was not reached is reported as unknown.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from longline.core.errors import BadOption, FailureKind
from longline.core.json import FieldDiff
from longline.core.model import OPEN_STATES, ItemState, Job, JobState
from longline.core.output import count_text
from longline.storage.job_changes import is_incremental
from longline.storage.jobs import ItemComparison, ItemResult, RunPair
from longline.storage.store import Store

_FINISHED = (JobState.COMPLETE, JobState.PARTIAL)
_FEW_RECORDS = 20  # of so few, any number may disappear
_MAX_LOST = 0.5  # share of the records of a run; beyond that, the list was probably cut short


class ChangeKind(StrEnum):
    """What happened to a record."""

    APPEARED = "appeared"
    CHANGED = "changed"
    DISAPPEARED = "disappeared"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One record: the kind of change, the fields that differ, why it is unknown."""

    key: str
    kind: ChangeKind
    differences: tuple[FieldDiff, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The changes between two runs; `older` is None for the first run of a source.

    `counts` covers all records; `listed` has records that are not unchanged, up to a limit for each
    kind. `caveats` say what the runs could not see.
    """

    source: str
    older: str | None
    newer: str
    counts: Mapping[ChangeKind, int]
    listed: tuple[RecordChange, ...]
    caveats: tuple[str, ...] = ()

    def of(self, kind: ChangeKind) -> tuple[RecordChange, ...]:
        """Return the listed records of this kind."""
        return tuple(one for one in self.listed if one.kind is kind)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "source": self.source,
            "from": self.older,
            "to": self.newer,
            "counts": {kind.value: self.counts[kind] for kind in ChangeKind},
            "appeared": [one.key for one in self.of(ChangeKind.APPEARED)],
            "changed": {
                one.key: [diff.as_dict() for diff in one.differences]
                for one in self.of(ChangeKind.CHANGED)
            },
            "disappeared": [one.key for one in self.of(ChangeKind.DISAPPEARED)],
            "unknown": {one.key: one.reason for one in self.of(ChangeKind.UNKNOWN)},
            "caveats": list(self.caveats),
        }


async def compare_runs(
    store: Store,
    source: str | None = None,
    older_job: str | None = None,
    newer_job: str | None = None,
    *,
    most: int | None = None,
) -> RunChanges:
    """Compare two runs: the last two finished ones, unless others are named.

    Args:
        store: where the jobs are.
        source: whose runs; by default that of the named jobs, or of the last finished job.
        older_job: an id or a prefix of it.
        newer_job: an id or a prefix of it.
        most: list at most this many records of each kind; all are counted.

    Raises:
        UnknownJob: no job or several jobs match.
        BadOption: there is no finished run, or these two cannot be compared.
    """
    older, newer, later = await _choose_jobs(store, source, older_job, newer_job)
    older_gaps, older_notes = await _gaps_and_notes(store, older) if older else ((), ())
    newer_gaps, newer_notes = await _gaps_and_notes(store, newer)
    if older is not None:
        older_gaps += _differing_scope(newer, older)
        newer_gaps += _differing_scope(older, newer)
    detector = _Detector(older is None, older_gaps, newer_gaps, most)
    older_end = 0.0
    if older is not None:
        older_end = float("inf") if older.finished_at is None else older.finished_at
    pair = RunPair(newer.source, older.id if older else "", newer.id, older_end)
    await store.jobs.compare_items(pair, detector.add_all)
    return RunChanges(
        source=newer.source,
        older=older.id if older else None,
        newer=newer.id,
        counts={kind: detector.counts[kind] for kind in ChangeKind},
        listed=tuple(detector.listed),
        caveats=(*_caveats(older, newer, detector), *older_notes, *newer_notes, *later),
    )


@dataclass(slots=True)
class _Detector:
    """Takes the items of two runs one by one and classifies their records."""

    is_first: bool
    older_gaps: tuple[str, ...]
    newer_gaps: tuple[str, ...]
    most: int | None
    counts: Counter[ChangeKind] = field(default_factory=Counter)
    listed: list[RecordChange] = field(default_factory=list)
    lost_steps: int = 0
    had: int = 0
    missing: int = 0
    first_missing: str | None = None

    def add_all(self, items: Iterable[ItemComparison]) -> None:
        for item in items:
            self.had += _was_record(item)
            change = self._classify(item)
            if change is None:
                continue
            self.counts[change.kind] += 1
            has_room = self.most is None or self.counts[change.kind] <= self.most
            if change.kind is not ChangeKind.UNCHANGED and has_room:
                self.listed.append(change)

    def _classify(self, item: ItemComparison) -> RecordChange | None:
        older, newer = item.older, item.newer
        if newer is None:
            return self._classify_missing(item)
        if newer.is_good:
            return self._classify_seen(item)
        if newer.state is ItemState.SKIPPED:
            if older is None or not older.is_good:
                return None
            if newer.kind is FailureKind.GONE:
                return RecordChange(item.key, ChangeKind.DISAPPEARED, reason=newer.reason)
        elif older is not None and older.state is ItemState.SKIPPED and older.kind is None:
            self.lost_steps += 1  # a page that leads to others, which could not be found this time
        return RecordChange(item.key, ChangeKind.UNKNOWN, reason=_explain_state(newer))

    def _classify_seen(self, item: ItemComparison) -> RecordChange:
        older = item.older
        was_there = older is not None and older.kind is not FailureKind.GONE
        may_have_been = older is None and bool(self.older_gaps)
        if item.was_known and not self.is_first and (was_there or may_have_been):
            kind = ChangeKind.CHANGED if item.differences else ChangeKind.UNCHANGED
            return RecordChange(item.key, kind, item.differences)
        if older is not None and was_there and not older.is_good:
            # The record is new, the item is not: the older run had it and made no record.
            verb = "skipped it" if older.state is ItemState.SKIPPED else "could not read it"
            reason = f"the older run {verb}: {_explain_state(older)}"
            return RecordChange(item.key, ChangeKind.UNKNOWN, reason=reason)
        return RecordChange(item.key, ChangeKind.APPEARED)

    def _classify_missing(self, item: ItemComparison) -> RecordChange | None:
        """Classify an item that only the older run had."""
        if not _was_record(item):
            return None
        if self.newer_gaps or self.lost_steps:
            reason = "the newer run did not reach it"
            return RecordChange(item.key, ChangeKind.UNKNOWN, reason=reason)
        self.missing += 1
        self.first_missing = self.first_missing or item.key
        return RecordChange(item.key, ChangeKind.DISAPPEARED)


def _was_record(item: ItemComparison) -> bool:
    """Return whether the older run had an item whose record existed by then."""
    return item.was_known and item.older is not None and item.older.state is not ItemState.SKIPPED


def _explain_state(result: ItemResult) -> str:
    if result.state in {ItemState.QUEUED, ItemState.LEASED}:
        return "not reached yet"
    return f"{result.state.value}: {result.reason or 'no reason was stored'}"


def _caveats(older: Job | None, newer: Job, detector: _Detector) -> list[str]:
    found = [
        f"it is unknown which records disappeared: {newer.id} {gap}"
        for gap in dict.fromkeys(detector.newer_gaps)
    ]
    if detector.lost_steps:
        found.append(
            f"it is unknown which records disappeared: {newer.id} could not read "
            f"{count_text(detector.lost_steps, 'page')} with links to items"
        )
    if older is None:
        return found
    gaps = dict.fromkeys(detector.older_gaps)
    found += [f"records that appeared may have existed before: {older.id} {gap}" for gap in gaps]
    if detector.had >= _FEW_RECORDS and detector.missing > detector.had * _MAX_LOST:
        one = shlex.quote(f"{newer.source}/{detector.first_missing}")
        found.append(
            f"{detector.missing:,} of {detector.had:,} records of {older.id} are missing; the "
            f"list was probably cut short. Check how far the run got (longline jobs {newer.id}), "
            f"and whether a missing record is still on the site (longline records show {one})"
        )
    return found


# ---------------- Which runs are compared


async def _choose_jobs(
    store: Store, source: str | None, older_job: str | None, newer_job: str | None
) -> tuple[Job | None, Job, tuple[str, ...]]:
    """Return the older job, the newer job, and notes on later runs that are not compared."""
    older = await store.jobs.get(older_job) if older_job else None
    newer = await store.jobs.get(newer_job) if newer_job else None
    later: tuple[str, ...] = ()
    named = [job for job in (newer, older) if job]
    name = source or (named[0].source if named else None)
    jobs = await store.jobs.list(limit=None, source=name)
    finished = [job for job in jobs if job.state in _FINISHED]
    if newer is None:
        newer = next((job for job in finished if job != older), None)
        if newer is None:
            of = f" of {name}" if name else ""
            raise BadOption("changes", f"there is no finished run{of}")
        later = tuple(
            f"{job.id} is more recent but is not compared: its state is {job.state.value}"
            for job in jobs
            if job.source == newer.source and job.created_at > newer.created_at
        )
    if older is None:
        older = next((job for job in finished if _is_before(job, newer)), None)
    _check_comparable(older, newer, name or newer.source)
    return older, newer, later


def _is_before(job: Job, newer: Job) -> bool:
    is_same = (job.created_at, job.id) == (newer.created_at, newer.id)
    return job.source == newer.source and not is_same and job.created_at <= newer.created_at


def _check_comparable(older: Job | None, newer: Job, source: str) -> None:
    for job in (older, newer):
        if job is not None and job.source != source:
            raise BadOption("changes", f"{job.id} is a run of {job.source}, not of {source}")
    if older is not None and older.id == newer.id:
        raise BadOption("changes", f"{older.id} cannot be compared with itself")
    if older is not None and older.created_at > newer.created_at:
        raise BadOption("changes", f"{older.id} started after {newer.id}; swap the two jobs")


# ---------------- What a run could not see

_SCOPE = {"set": "--set", "params": "--param"}
# Parts of a manifest that do not decide which items are found. All others may, including those
# that later versions add.
_IRRELEVANT = {
    *("about", "burst", "ca_file", "cache", "expects", "fields", "fresh", "locale"),
    *("max_in_flight", "may_be_empty", "name", "pipeline", "proxies", "rate", "retry"),
    *("schedule", "sessions", "silence", "timeout", "usually_empty", "version", "volatile"),
}
_NAMED_PARTS = {"parameters", "endpoints"}  # mappings of names to parts


async def _gaps_and_notes(store: Store, job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return why a run cannot have found everything, and what it noted during discovery."""
    gaps = []
    if job.state in OPEN_STATES:
        gaps.append(f"has not ended; it is {job.state.value}")
    elif not job.is_discovered:
        gaps.append(f"could not find all of its items ({job.state.value})")
    if job.shortfall:
        gaps.append(f"did not find all of its items: {job.shortfall}")
    if is_incremental(job.settings):
        gaps.append("requests only what changed (incremental)")
    limit = job.settings.get("limit")
    if limit is not None and sum((await store.queue.counts(job.id)).values()) >= limit:
        gaps.append(f"was limited to {count_text(limit, 'item')}")
    if await store.jobs.was_given_items(job.id):
        gaps.append("was given a list of items to collect")
    cuts = (await store.jobs.caveats(job.id)).cuts
    gaps += [f"ended discovery early: {cut}" for cut in cuts if cut != job.shortfall]
    events = await store.events.list(job.id, types=["discovery.note"])
    notes = dict.fromkeys(str(event.data.get("text", "")) for event in events)
    return tuple(gaps), tuple(f"{job.id} noted: {note}" for note in notes)


def _differing_scope(older: Job, newer: Job) -> tuple[str, ...]:
    """Return the settings that decide which items are found and differ between two runs."""
    options = [
        option
        for name, option in _SCOPE.items()
        if (older.settings.get(name) or {}) != (newer.settings.get(name) or {})
    ]
    then, now = (_deciding_parts(job.settings.get("manifest") or {}) for job in (older, newer))
    edited = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    return tuple(
        f"ran with different settings than {older.id} ({name} differs)"
        for name in (*options, *(f"`{name}` in the manifest" for name in edited))
    )


def _deciding_parts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a manifest that decide which items are found."""
    items = manifest.get("items")
    if isinstance(items, Mapping) and items.get("elements") and not manifest.get("key"):
        return dict(manifest)  # the key of each element is made of its fields
    return {
        name: {one: _deciding_part(part) for one, part in value.items()}
        if name in _NAMED_PARTS and isinstance(value, Mapping)
        else _deciding_part(value)
        for name, value in manifest.items()
        if name not in _IRRELEVANT
    }


def _deciding_part(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: one for name, one in value.items() if name not in {"about", "fields", "rate"}}
