"""Drift in a run: what is committed is watched as it comes, and judged as a whole at the end.

The watch may see only a part: other processes commit items of the same job, and in a long run only
every so many records are looked at. What decides is read from the database at the end, so that
nothing depends on who saw what.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import orjson
from pydantic import BaseModel

from longline.core.clock import Clock
from longline.core.errors import BadOption, FailureKind, LonglineError
from longline.core.model import Event, ItemState, Job
from longline.drift.detector import (
    DriftDetector,
    DriftNotice,
    FieldDrift,
    RunVerdict,
    far_fewer,
    judge_run,
)
from longline.drift.profiles import Profile, Shape, Shared, shape_of, shape_of_failure
from longline.drift.uniformity import ALIKE
from longline.sources.base import Source
from longline.storage.events import EventRow, event_row
from longline.storage.queue.outcomes import Completion
from longline.storage.records.profiles import CommittedItem, DriftResult, StoredProfile
from longline.storage.store import Store

# ---------------- Which earlier runs a run is measured by: the same question, as much ground, the

_LIST = "list "  # begins the scope of a job that was given its items
_RUNS, _RECORDS = 5, 200  # that are the measure of a run, at least, if there are so many


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What decides by which earlier runs a run is measured.

    `scope` stands for its options and parameters, and is empty for a run without any;
    `definitions` stand for how a manifest reads each field. A run that `is_cut` has left items
    out: a limit, a budget, a list that could not be read to its end.
    """

    scope: str = ""
    definitions: Mapping[str, str] = field(default_factory=dict)
    items: int = 0
    is_cut: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as it is kept beside the profile of a run."""
        return {
            "scope": self.scope,
            "definitions": dict(self.definitions),
            "items": self.items,
            "is_cut": self.is_cut,
        }

    @classmethod
    def from_json(cls, profile: Mapping[str, Any]) -> RunTerms:
        """Return what `as_json` has written; of an older profile, what is not known is empty."""
        return cls(
            profile.get("scope", ""),
            profile.get("definitions", {}),
            profile.get("items", 0),
            bool(profile.get("is_cut")),
        )

    def fits(self, earlier: Mapping[str, Any]) -> bool:
        """Say whether an earlier run has covered the ground of this one: all of it, or as much."""
        return not earlier.get("is_cut") or earlier.get("items", 0) >= self.items


@dataclass(frozen=True, slots=True)
class Baseline:
    """Earlier sound runs, merged; `fewest` is how many items the smallest of them has found."""

    profile: Profile | None = None
    jobs: tuple[str, ...] = ()
    fewest: int = 0


async def terms_before(store: Store, source: Source, job: Job) -> RunTerms:
    """Return the terms of a run that begins: without a limit, it may find any number of items."""
    after = await terms_after(store, source, job)
    if after.scope.startswith(_LIST):
        return after
    return replace(after, items=job.settings.get("limit") or sys.maxsize)


async def terms_after(store: Store, source: Source, job: Job) -> RunTerms:
    """Return the terms of a run that ends."""
    found, left_out = await store.profiles.extent(job.id)
    limit = job.settings.get("limit")
    is_limited = limit is not None and found >= limit
    is_list = await _is_list(store, job)
    is_short = job.shortfall is not None or bool((await store.jobs.caveats(job.id)).cuts)
    scope = _scope(source, job)
    return RunTerms(
        f"{_LIST}{scope}" if is_list else scope,
        _definitions(source),
        found - left_out,
        is_cut=is_limited or is_list or bool(left_out) or is_short,
    )


async def measure_for(store: Store, source: str, job: str, terms: RunTerms) -> Baseline:
    """Return what a job of these terms is measured by."""
    found = await store.profiles.baselines(
        source, scope=terms.scope, but=job, is_comparable=terms.fits
    )
    same = [one for one in found if not _changed(one, terms)]
    return together(same or found, terms)


async def empty_before(
    store: Store, source: str, job: str, terms: RunTerms, records: int
) -> frozenset[str]:
    """Return the fields that were empty in the last run of about as many records, sound or not.

    A field that the manifest reads in another way since then is not among them.
    """
    for one in await store.profiles.recent(source, scope=terms.scope, but=job):
        if 2 * one.profile["records"] >= records:
            return frozenset(one.profile.get("empty", ())) - _changed(one, terms)
    return frozenset()


def together(found: Iterable[StoredProfile], terms: RunTerms) -> Baseline:
    """Return the newest few of these profiles as one, without the fields that are read anew."""
    kept = _enough(found)
    if not kept:
        return Baseline()
    whole = Profile()
    for one in kept:
        whole.merge(Profile.from_json(one.profile))
    whole.forget({name for one in kept for name in _changed(one, terms)})
    uncut = [one for one in kept if not one.profile.get("is_cut")] or kept
    fewest = min(one.profile.get("items", 0) for one in uncut)
    return Baseline(whole, tuple(one.job for one in kept), fewest)


def _enough(kept: Iterable[StoredProfile]) -> list[StoredProfile]:
    """Return the newest few, and more of them if they are of single items or little tries."""
    taken: list[StoredProfile] = []
    records = 0
    for one in kept:
        if len(taken) >= _RUNS and records >= _RECORDS:
            break
        taken.append(one)
        records += one.profile["records"]
    return taken


def _changed(earlier: StoredProfile, terms: RunTerms) -> set[str]:
    """Return the fields that the manifest of an earlier run reads in another way, or not at all."""
    before = earlier.profile.get("definitions")
    if before is None:
        return set()
    now = terms.definitions
    return {name for name in {*before, *now} if before.get(name) != now.get(name)}


def _scope(source: Source, job: Job) -> str:
    # As the source understands them: 50 from a file and "50" from a shell are the same.
    options = source.options.model_dump(mode="json", exclude_defaults=True, fallback=str)
    params = job.settings.get("params") or {}
    return _hash([options, params]) if options or params else ""


def _definitions(source: Source) -> dict[str, str]:
    manifest: Any = getattr(source, "manifest", None)
    endpoints: Mapping[str, Any] = getattr(manifest, "endpoints", None) or {}
    found: dict[str, list[Any]] = {}
    for part in (manifest, getattr(manifest, "items", None), *endpoints.values()):
        fields = getattr(part, "fields", None)
        for name, one in fields.items() if isinstance(fields, Mapping) else ():
            found.setdefault(name, []).append(_plain(one))
    return {name: _hash(several) for name, several in found.items()}


def _plain(one: Any) -> Any:
    return one.model_dump(mode="json", fallback=str) if isinstance(one, BaseModel) else one


async def _is_list(store: Store, job: Job) -> bool:
    """Say whether a job was given its items: then all was there before it began."""
    known = await store.events.list(job.id, kind="job.discovered")
    started = await store.events.list(job.id, kind="job.started")
    return bool(known and started and known[0].id < started[0].id)


def _hash(value: Any) -> str:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(text).hexdigest()[:16]


NOTICED = "drift.noticed"
UNJUDGED = "drift.unjudged"
_OVER = ("job.complete", "job.partial", "job.failed", "job.reopened")
_EVERY_ONE = 400  # items; from there on the share that is looked at falls
_LEAST = 4  # down to one in so many: a dozen of them still show within fifty items what vanished
_SAMPLE = 1500  # records that a whole run is judged by
_RESUMED_SAMPLE = 300  # records that a resumed run is compared with: reading them delays it
_MADE = (ItemState.STORED, ItemState.UNCHANGED)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)
_AT_FAULT = (FailureKind.INVALID, FailureKind.BUG)


class DriftMonitor:
    """Watches the outcomes of one run of a job."""

    def __init__(self, store: Store, source: Source, clock: Clock) -> None:
        self._store = store
        self._source = source
        self._clock = clock
        self._job = ""
        self._watch = DriftDetector()
        self._place = 0
        self._waiting: list[tuple[int, Completion]] = []
        self._troubles: set[str] = set()

    async def begin(self, job: Job) -> None:
        """Take up the watch: earlier runs are the measure, and what this job has committed."""
        self._job = job.id
        try:
            await self._begin(job)
        except LonglineError:
            raise
        except Exception as error:  # noqa: BLE001  # a bug here must not keep a job from its work
            await self._give_up(error)

    async def _begin(self, job: Job) -> None:
        terms = await terms_before(self._store, self._source, job)
        measure = await measure_for(self._store, self._source.name, job.id, terms)
        noticed = await self._noticed()
        self._watch = DriftDetector(measure.profile, (one.data["field"] for one in noticed))
        for shape in await self._evidence(_RESUMED_SAMPLE):
            self._place += 1
            self._watch.add(shape, self._place)

    def tell(self, finish: Completion, state: ItemState | None) -> None:
        """Note what was committed; looked at when `look` is called, so that this costs nothing."""
        outcome = finish.outcome
        is_record = outcome.record is not None and state in _MADE
        is_at_fault = outcome.record is None and outcome.kind in _AT_FAULT and state in _BAD
        if not is_record and not is_at_fault:
            return
        self._place += 1
        if self._place % min(1 + self._place // _EVERY_ONE, _LEAST) == 0:
            self._waiting.append((self._place, finish))

    async def look(self) -> None:
        """Look at what has come since the last time; what is noticed becomes an event."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        try:
            facts = [
                self._told(notice)
                for place, finish in waiting
                for notice in self._watch.add(_shape_of(finish), place)
            ]
        except Exception as error:  # noqa: BLE001  # nor from going on with it
            await self._give_up(error)
            return
        if facts:
            await self._store.events.append(*facts)

    async def ending(self) -> DriftResult:
        """Judge the whole job by what is committed.

        A job that has ended before keeps what was said of it then, if a later one has taken over
        the records that this was said of. What cannot be judged is told as a warning: no bug of
        ours keeps a job from its end.
        """
        await self.look()
        try:
            return await self._ending()
        except LonglineError:
            raise
        except Exception as error:  # noqa: BLE001  # the edge of a job: it has to end all the same
            return await self._unjudged(await self._give_up(error))

    async def _unjudged(self, trouble: str) -> DriftResult:
        drift = {one.data["field"]: one.data["text"] for one in await self._noticed()}
        profile = {**Profile().as_json(), "drift": drift}
        return DriftResult(profile, tuple(drift.values()), (trouble,))

    async def _give_up(self, error: Exception) -> str:
        """Write down that drift cannot be judged; return that as a sentence."""
        problem = f"{type(error).__name__}: {error}"
        self._watch = DriftDetector()
        if problem not in self._troubles:  # the same may come with every look
            self._troubles.add(problem)
            told = event_row(self._job, self._clock.now(), UNJUDGED, error=problem)
            await self._store.events.append(told)
        return f"drift could not be judged: {problem}"

    async def _ending(self) -> DriftResult:
        job = await self._store.jobs.get(self._job)
        terms = await terms_after(self._store, self._source, job)
        measure = await measure_for(self._store, self._source.name, job.id, terms)
        kept = await self._store.profiles.find(job.id)
        judgement = await self._judge(terms, measure, kept)
        if kept is not None and judgement.profile.records < kept.profile["records"]:
            return await self._as_before(kept)
        drift = {one.field: str(one) for one in judgement.drift}
        for event in await self._noticed():
            drift.setdefault(event.data["field"], event.data["text"])
        warnings = list(judgement.warnings)
        if problem := await self._nothing(judgement):
            if measure.profile and measure.profile.records and not _may_be_empty(self._source):
                drift["@records"] = f"{problem}, earlier runs had records"
            else:
                warnings.insert(0, problem)
        elif few := self._few(terms, measure):
            drift[few.field] = str(few)
        profile = {**judgement.profile.as_json(), **terms.as_json(), "measured_by": measure.jobs}
        profile |= {"alike": list(judgement.alike), "empty": list(judgement.empty), "drift": drift}
        return DriftResult(profile, tuple(drift.values()), tuple(warnings))

    async def _judge(
        self, terms: RunTerms, measure: Baseline, kept: StoredProfile | None
    ) -> RunVerdict:
        history = measure.profile
        quiet = set(self._source.usually_empty)
        if kept is not None and kept.is_accepted:
            quiet.update(kept.profile["quiet"])
        if quiet:
            history = history or Profile()
            history.quiet |= quiet
        shapes = await self._evidence(_SAMPLE)
        records = sum(one.is_valid for one in shapes)
        known = await empty_before(self._store, self._source.name, self._job, terms, records)
        return await asyncio.to_thread(
            lambda: judge_run(
                shapes,
                history,
                declared=_declared(self._source),
                runs=len(measure.jobs),
                known_empty=known,
            )
        )

    async def _evidence(self, most: int) -> list[Shape]:
        read = partial(_shape, shared=Shared())
        return await self._store.profiles.committed(self._job, read, most=most)

    async def _as_before(self, kept: StoredProfile) -> DriftResult:
        """Return what was said of a job when it ended, and what was noticed since."""
        drift: dict[str, str] = dict(kept.profile.get("drift", {}))
        is_untold = "drift" not in kept.profile and not kept.is_sound
        events = await self._store.events.list(self._job, kind=NOTICED)
        for event in events if is_untold else await self._noticed():
            drift.setdefault(event.data["field"], event.data["text"])
        if is_untold and not drift:
            drift["@before"] = "as it was told when the job ended before"
        return DriftResult({**kept.profile, "drift": drift}, tuple(drift.values()))

    def _few(self, terms: RunTerms, measure: Baseline) -> FieldDrift | None:
        """Say that far fewer items were found than ever, where that is no choice of anybody."""
        if terms.is_cut or _may_be_empty(self._source):
            return None
        return far_fewer(terms.items, measure.fewest)

    async def _nothing(self, judgement: RunVerdict) -> str | None:
        """Say in which way there is nothing; None when there is, or failures tell it already."""
        if judgement.profile.records:
            return None
        counts = await self._store.queue.counts(self._job)
        if not sum(counts.values()):
            return "nothing was found"
        if counts[ItemState.FAILED] or counts[ItemState.QUARANTINED]:
            return None
        made = counts[ItemState.STORED] + counts[ItemState.UNCHANGED]
        return None if made else f"none of {sum(counts.values())} items became a record"

    async def _noticed(self) -> list[Event]:
        """Return what any process has noticed since the job has ended, if it did before."""
        events = await self._store.events.list(self._job, kind=NOTICED)
        over = [
            event.id
            for kind in _OVER
            for event in await self._store.events.list(self._job, kind=kind)
        ]
        return [event for event in events if event.id > max(over, default=0)]

    def _told(self, notice: DriftNotice) -> EventRow:
        difference = notice.difference
        return event_row(
            self._job,
            self._clock.now(),
            NOTICED,
            key=notice.since,
            field=notice.field,
            before=difference.before,
            now=difference.now,
            item=notice.place,
            text=str(notice),
        )


async def accept_profile(store: Store, job: str, at: float) -> StoredProfile:
    """Make what the records of a job looked like the measure of later runs.

    Raises:
        UnknownJob: there is no such job.
        BadOption: the job has not ended, or ended before profiles were kept.
    """
    found = await store.jobs.get(job)
    kept = await store.profiles.find(found.id)
    if kept is None:
        raise BadOption("JOB", f"{found.id} has left no profile: it is {found.state.value}")
    profile = Profile.from_json(kept.profile)
    profile.quiet = {name for name in profile.fields if not profile.share(name)}
    if kept.profile.get("alike"):
        profile.quiet.add(ALIKE)
    await store.profiles.accept(found.id, {**kept.profile, **profile.as_json()}, at)
    return kept


def _shape(sighting: CommittedItem, *, shared: Shared) -> Shape:
    if sighting.data is None:
        return shape_of_failure(sighting.key, sighting.reason, site=sighting.site)
    return shape_of(sighting.key, sighting.data, sighting.score, site=sighting.site, shared=shared)


def _shape_of(finish: Completion) -> Shape:
    lease, record = finish.lease, finish.outcome.record
    if record is None:
        return shape_of_failure(lease.item.key, finish.outcome.reason, site=lease.domain)
    score = record.quality.score if record.quality else None
    return shape_of(lease.item.key, record.data, score, site=lease.domain)


def _declared(source: Source) -> tuple[str, ...]:
    """Return the fields that a manifest says its records have."""
    if source.pipeline:  # which may rename them, or leave them out
        return ()
    fields: Any = getattr(getattr(source, "manifest", None), "fields", None)
    return tuple(fields) if isinstance(fields, Mapping) else ()


def _may_be_empty(source: Source) -> bool:
    """Say whether a run may find nothing: its manifest says so, or it asks only for what is new."""
    manifest: Any = getattr(source, "manifest", None)
    endpoints: Mapping[str, Any] = getattr(manifest, "endpoints", None) or {}
    is_incremental = any(getattr(one, "incremental", None) for one in endpoints.values())
    return is_incremental or bool(getattr(manifest, "may_be_empty", False))
