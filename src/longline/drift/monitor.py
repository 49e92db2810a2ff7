"""Monitor the committed items of a run for drift, and judge the whole run at its end.

A monitor may see only a part: other processes commit items of the same job, and in a long run only
a sample is checked. The result is computed from the database at the end, so that it does not
depend on which process saw what.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
from pydantic import BaseModel

from longline.core.clock import Clock
from longline.core.errors import BadOption, FailureKind, LonglineError, NotFoundError
from longline.core.model import Event, ItemState, Job, Lease, Outcome
from longline.drift.detector import (
    ALIKE,
    DriftDetector,
    FieldDrift,
    RunAssessment,
    far_fewer,
    judge_run,
)
from longline.drift.profiles import Profile, Shape, shape_of, shape_of_failure
from longline.sources.base import Source
from longline.storage.events.events import event_row
from longline.storage.profiles import CommittedItem, DriftResult, StoredProfile
from longline.storage.store import Store

# ---------------- The baseline: earlier runs with the same options and at least as many items

_LIST = "list "  # prefix of the scope of a job that was given its items
_MIN_RUNS, _MIN_RECORDS = 5, 200  # of a baseline, if there are as many


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What decides which earlier runs a run is compared with; stored in its profile.

    `scope` is a hash of its options and parameters, empty for a run without any; `definitions` are
    hashes of how a manifest reads each field. `is_cut` means that items are missing: a limit, a
    budget, or a list that could not be read to its end.
    """

    scope: str
    definitions: Mapping[str, str]
    items: int
    is_cut: bool

    def fits(self, earlier: Mapping[str, Any]) -> bool:
        """Return whether an earlier run was complete, or has at least as many items."""
        return not earlier.get("is_cut") or earlier.get("items", 0) >= self.items


@dataclass(frozen=True, slots=True)
class Baseline:
    """Earlier sound runs, merged; `fewest` is the number of items of the smallest.

    `empty` are the fields that no record of the newest had.
    """

    profile: Profile
    jobs: tuple[str, ...] = ()
    fewest: int = 0
    empty: frozenset[str] = frozenset()


async def _terms_so_far(store: Store, source: Source, job: Job) -> RunTerms:
    found, skipped = await store.profiles.extent(job.id)
    limit = job.settings.get("limit")
    is_limited = limit is not None and found >= limit
    is_list = await store.jobs.was_given_items(job.id)
    is_short = job.shortfall is not None or bool((await store.jobs.caveats(job.id)).cuts)
    # Parsed by the source, so that 50 from a file and "50" from a shell are the same.
    options = source.options.model_dump(mode="json", exclude_defaults=True, fallback=str)
    params = job.settings.get("params") or {}
    scope = _hash([options, params]) if options or params else ""
    return RunTerms(
        f"{_LIST}{scope}" if is_list else scope,
        _field_definitions(source),
        found - skipped,
        is_cut=is_limited or is_list or bool(skipped) or is_short,
    )


def _field_definitions(source: Source) -> dict[str, str]:
    manifest: Any = getattr(source, "manifest", None)
    endpoints: Mapping[str, Any] = getattr(manifest, "endpoints", None) or {}
    found: dict[str, list[Any]] = {}
    for part in (manifest, getattr(manifest, "items", None), *endpoints.values()):
        fields = getattr(part, "fields", None)
        for name, one in fields.items() if isinstance(fields, Mapping) else ():
            is_model = isinstance(one, BaseModel)
            rule = one.model_dump(mode="json", fallback=str) if is_model else one
            found.setdefault(name, []).append(rule)
    return {name: _hash(several) for name, several in found.items()}


def _hash(value: Any) -> str:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:16]


async def _baseline_for(store: Store, source: str, job: str, terms: RunTerms) -> Baseline:
    found = await store.profiles.baselines(
        source, scope=terms.scope, but=job, is_comparable=terms.fits
    )
    same = [one for one in found if not _redefined_fields(one, terms.definitions)]
    return _merge_profiles(same or found, terms.definitions)


def _merge_profiles(found: Iterable[StoredProfile], definitions: Mapping[str, str]) -> Baseline:
    """Merge the newest of these profiles, without fields that are read differently now."""
    kept: list[StoredProfile] = []
    whole = Profile()
    for one in found:
        if len(kept) >= _MIN_RUNS and whole.records >= _MIN_RECORDS:
            break
        kept.append(one)
        whole.merge(Profile.from_json(one.profile))
    if not kept:
        return Baseline(whole)
    redefined = {name for one in kept for name in _redefined_fields(one, definitions)}
    whole.forget(redefined)
    uncut = [one for one in kept if not one.profile.get("is_cut")] or kept
    fewest = min(one.profile.get("items", 0) for one in uncut)
    empty = frozenset(kept[0].profile.get("empty", ())) - redefined
    return Baseline(whole, tuple(one.job for one in kept), fewest, empty)


def _redefined_fields(earlier: StoredProfile, now: Mapping[str, str]) -> set[str]:
    """Return the fields that the manifest of an earlier run read differently, or not at all."""
    before = earlier.profile.get("definitions", now)
    return {name for name in {*before, *now} if before.get(name) != now.get(name)}


# ---------------- The monitor

NOTICED = "drift.noticed"
UNJUDGED = "drift.unjudged"
_OVER = ("job.complete", "job.partial", "job.failed", "job.reopened")
_CHECK_ALL = 400  # items; after that a falling share is checked
_MAX_INTERVAL = 4  # at least every fourth item: twelve of them show a lost field within fifty
_SAMPLE = 1500  # records by which a whole run is judged
_RESUMED_SAMPLE = 300  # records that a resumed run reads before it goes on
_STORED = (ItemState.STORED, ItemState.UNCHANGED)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)
_AT_FAULT = (FailureKind.INVALID, FailureKind.BUG)


class DriftMonitor:
    """Checks the committed outcomes of one run of a job.

    A bug in it must not stop the job: it becomes an event and a warning.
    """

    def __init__(self, store: Store, source: Source, clock: Clock) -> None:
        self._store = store
        self._source = source
        self._clock = clock
        self._job = ""
        self._detector = DriftDetector()
        self._count = 0
        self._found: list[FieldDrift] = []
        self._error: Exception | None = None
        self._problems: set[str] = set()

    async def begin(self, job: Job) -> None:
        """Load the baseline from earlier runs and from what this job has committed."""
        self._job = job.id
        try:
            terms = await _terms_so_far(self._store, self._source, job)
            if not terms.scope.startswith(_LIST):  # how many items it will find is not known yet
                terms = replace(terms, items=job.settings.get("limit") or sys.maxsize)
            baseline = await _baseline_for(self._store, self._source.name, job.id, terms)
            noticed = [one.data["field"] for one in await self._notices()]
            self._detector = DriftDetector(baseline.profile, noticed)
            for shape in await self._shapes(_RESUMED_SAMPLE):
                self._count += 1
                self._detector.add(shape, self._count)
        except LonglineError:
            raise
        except Exception as error:  # noqa: BLE001  # a bug here must not stop a job
            await self._report_problem(error)

    def on_commit(self, lease: Lease, outcome: Outcome, state: ItemState | None) -> None:
        """Check a committed outcome; `check` reports what was found."""
        is_record = outcome.record is not None and state in _STORED
        is_at_fault = outcome.record is None and outcome.kind in _AT_FAULT and state in _BAD
        if not is_record and not is_at_fault:
            return
        self._count += 1
        if self._count % min(1 + self._count // _CHECK_ALL, _MAX_INTERVAL) == 0:
            try:
                self._found += self._detector.add(_shape_of_outcome(lease, outcome), self._count)
            except Exception as error:  # noqa: BLE001  # a bug here must not stop a job
                self._error = error

    async def check(self) -> None:
        """Append an event for each field that has drifted since the last call."""
        found, self._found = self._found, []
        error, self._error = self._error, None
        if error is not None:
            await self._report_problem(error)
        rows = [
            event_row(
                self._job,
                self._clock.now(),
                NOTICED,
                key=one.since,
                field=one.field,
                before=one.before,
                now=one.now,
                item=one.place,
                text=str(one),
            )
            for one in found
        ]
        if rows:
            await self._store.events.append(*rows)

    async def result(self) -> DriftResult:
        """Judge the whole job by what is committed.

        A job that has ended before keeps its earlier result if a later job has stored its records
        since.
        """
        await self.check()
        noticed = {one.data["field"]: one.data["text"] for one in await self._notices()}
        try:
            return await self._result(noticed)
        except LonglineError:
            raise
        except Exception as error:  # noqa: BLE001  # the edge of a job, which must end
            problem = await self._report_problem(error)
            profile = {**Profile().as_json(), "drift": noticed}
            return DriftResult(profile, tuple(noticed.values()), (problem,))

    async def _result(self, noticed: dict[str, str]) -> DriftResult:
        job = await self._store.jobs.get(self._job)
        terms = await _terms_so_far(self._store, self._source, job)
        baseline = await _baseline_for(self._store, self._source.name, job.id, terms)
        kept = await self._store.profiles.find(job.id)
        history = baseline.profile
        history.quiet.update(self._source.usually_empty)
        if kept is not None and kept.is_accepted:
            history.quiet.update(kept.profile["quiet"])
        shapes = await self._shapes(_SAMPLE)
        declared = _declared_fields(self._source)
        assessment = await asyncio.to_thread(
            lambda: judge_run(shapes, history, declared=declared, known_empty=baseline.empty)
        )
        if kept is not None and assessment.profile.records < kept.profile["records"]:
            old: dict[str, str] = kept.profile.get("drift", {})
            drift = old | {name: text for name, text in noticed.items() if name not in old}
            return DriftResult({**kept.profile, "drift": drift}, tuple(drift.values()))
        drift = {one.field: str(one) for one in assessment.drift}
        drift |= {name: text for name, text in noticed.items() if name not in drift}
        warnings = list(assessment.warnings)
        may_be_empty = _may_be_empty(self._source)
        few = None if terms.is_cut or may_be_empty else far_fewer(terms.items, baseline.fewest)
        if problem := await self._no_records(assessment):
            if history.records and not may_be_empty:
                drift["@records"] = f"{problem}; earlier runs had records"
            else:
                warnings.insert(0, problem)
        elif few:
            drift[few.field] = str(few)
        profile = {
            **assessment.profile.as_json(),
            **asdict(terms),
            "measured_by": baseline.jobs,
            "alike": list(assessment.alike),
            "empty": list(assessment.empty),
            "drift": drift,
        }
        return DriftResult(profile, tuple(drift.values()), tuple(warnings))

    async def _no_records(self, assessment: RunAssessment) -> str | None:
        """Return why there is no record; None when there is one, or failures explain it."""
        if assessment.profile.records:
            return None
        counts = await self._store.queue.counts(self._job)
        if not sum(counts.values()):
            return "nothing was found"
        if any(counts[state] for state in (*_BAD, *_STORED)):
            return None
        return f"none of {sum(counts.values())} items became a record"

    async def _report_problem(self, error: Exception) -> str:
        """Append an event that drift could not be judged; return that as a sentence."""
        problem = f"{type(error).__name__}: {error}"
        self._detector = DriftDetector()
        if problem not in self._problems:  # each check may fail the same way
            self._problems.add(problem)
            event = event_row(self._job, self._clock.now(), UNJUDGED, error=problem)
            await self._store.events.append(event)
        return f"drift could not be checked: {problem}"

    async def _shapes(self, most: int) -> list[Shape]:
        return await self._store.profiles.committed(self._job, _shape_of_item, most=most)

    async def _notices(self) -> list[Event]:
        """Return what any process has noticed since the job last ended."""
        events = await self._store.events.list(self._job, types=[NOTICED])
        over = [
            event.id
            for kind in _OVER
            for event in await self._store.events.list(self._job, types=[kind])
        ]
        return [event for event in events if event.id > max(over, default=0)]


async def accept_profile(store: Store, job: str, at: float) -> StoredProfile:
    """Make the profile of a job the baseline of later runs.

    Raises:
        UnknownJob: there is no such job.
        BadOption: the job has not ended, or ended before profiles were kept.
    """
    found = await store.jobs.get(job)
    kept = await store.profiles.find(found.id)
    if kept is None:
        problem = f"{found.id} has no field statistics to accept; its state is {found.state.value}"
        raise BadOption("JOB", problem)
    profile = Profile.from_json(kept.profile)
    profile.quiet = {name for name in profile.fields if not profile.share(name)}
    if kept.profile.get("alike"):
        profile.quiet.add(ALIKE)
    await store.profiles.accept(found.id, {**kept.profile, **profile.as_json()}, at)
    return kept


def _shape_of_item(item: CommittedItem) -> Shape:
    if item.data is None:
        return shape_of_failure(item.key, item.reason, site=item.site)
    return shape_of(item.key, item.data, item.score, site=item.site)


def _shape_of_outcome(lease: Lease, outcome: Outcome) -> Shape:
    record = outcome.record
    if record is None:
        return shape_of_failure(lease.item.key, outcome.reason, site=lease.domain)
    score = record.quality.score if record.quality else None
    return shape_of(lease.item.key, record.data, score, site=lease.domain)


def _declared_fields(source: Source) -> tuple[str, ...]:
    """Return the fields that a manifest declares."""
    if source.pipeline:  # may rename or drop fields
        return ()
    fields: Any = getattr(getattr(source, "manifest", None), "fields", None)
    return tuple(fields) if isinstance(fields, Mapping) else ()


def _may_be_empty(source: Source) -> bool:
    """Return whether a run may find nothing: its manifest allows it, or it is incremental."""
    manifest: Any = getattr(source, "manifest", None)
    endpoints: Mapping[str, Any] = getattr(manifest, "endpoints", None) or {}
    is_incremental = any(getattr(one, "incremental", None) for one in endpoints.values())
    return is_incremental or bool(getattr(manifest, "may_be_empty", False))


# ---------------- Show drift: the fields of a source before, and in its last run

Row = dict[str, Any]
_MOST_NAMED = 20  # sources in an error


class NoRunEnded(NotFoundError):
    """No run of a source has ended; `known` are the first sources that have one."""

    source: str
    known: tuple[str, ...] = ()
    message = "no run of {source!r} has ended"
    hint = "Known sources: {listed}."

    @property
    def listed(self) -> str:
        """The sources that have one."""
        return ", ".join(self.known) or "none"


async def sources_watched(store: Store, names: Sequence[str] | None = None) -> list[Row]:
    """Return the last run of each source, the newest first; or of these, in their order."""
    profiles = store.profiles
    chosen = await profiles.sources() if names is None else names
    return [await _run_row(store, one) for one in await profiles.last(chosen)]


async def last_profile(store: Store, source: str) -> StoredProfile:
    """Return the profile of the last run of a source.

    Raises:
        NoRunEnded: no run of this source has ended yet.
    """
    last = await store.profiles.last([source])
    if not last:
        known = sorted(await store.profiles.sources())
        raise NoRunEnded(source, tuple(known[:_MOST_NAMED]))
    return last[0]


async def drift_of(store: Store, source: str) -> Row:
    """Return the last run of a source, and its fields next to the baseline.

    Raises:
        NoRunEnded: no run of this source has ended yet.
    """
    last = await last_profile(store, source)
    return {**await _run_row(store, last), **await compare_fields(store, last)}


async def compare_fields(store: Store, kept: StoredProfile) -> Row:
    """Return the fields of a run next to those of the earlier runs that it was compared with."""
    found = [await store.profiles.find(job) for job in kept.profile.get("measured_by", ())]
    measured_by = [one for one in found if one is not None]
    baseline = _merge_profiles(measured_by, kept.profile.get("definitions", {}))
    before, now = baseline.profile, Profile.from_json(kept.profile)
    return {
        "baseline": {"runs": len(baseline.jobs), "records": before.records},
        "fields": [
            {
                "field": name,
                "before": _field_statistics(before, name),
                "now": _field_statistics(now, name),
            }
            for name in dict.fromkeys([*now.fields, *before.fields])
        ],
    }


async def _run_row(store: Store, kept: StoredProfile) -> Row:
    job = await store.jobs.get(kept.job)
    events = await store.events.list(kept.job, types=[NOTICED])
    return {
        "source": kept.source,
        "job": kept.job,
        "at": kept.at,
        "records": kept.profile["records"],
        "is_sound": kept.is_sound,
        "is_accepted": kept.is_accepted,
        "state": job.state.value,
        "reason": job.reason,
        "drift": kept.profile.get("drift", {one.data["field"]: one.data["text"] for one in events}),
        "noticed": [dict(event.data) for event in events],
    }


def _field_statistics(profile: Profile, name: str) -> Row | None:
    known = profile.fields.get(name)
    if known is None or not profile.seen(name):
        return None
    kind = known.kinds.most_common(1)[0][0] if known.kinds else None
    sketch = known.sizes.get(kind) if kind else None
    return {
        "filled": round(profile.share(name), 4),
        "kind": kind,
        "middle": sketch.quantile(0.5) if sketch else None,
        "lowest": sketch.low if sketch else None,
        "highest": sketch.high if sketch else None,
    }
