"""Drift in a run: what is committed is watched as it comes, and judged as a whole at the end.

The watch may see only a part: other processes commit items of the same job, and in a long run only
every so many records are looked at. What decides is read from the database at the end, so that
nothing depends on who saw what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from longline.clock import Clock
from longline.errors import BadOption, FailureKind
from longline.model import Event, ItemState, Job
from longline.monitoring.drift import Judgement, Notice, Watch, judge
from longline.monitoring.profiles import Profile
from longline.monitoring.shapes import Shape, shape_of, shape_of_failure
from longline.sources.base import Source
from longline.stores.finishing import Finish
from longline.stores.journal import Fact, fact
from longline.stores.profiles import Ending, KeptProfile, Sighting
from longline.stores.store import Store

NOTICED = "drift.noticed"
_EVERY_ONE = 400  # items; from there on the share that is looked at falls
_LEAST = 4  # down to one in so many: a dozen of them still show within fifty items what vanished
_SAMPLE = 1500  # records that a whole run is judged by
_RUNS, _RECORDS = 5, 200  # that are the measure of a run, at least, if there are so many
_MADE = (ItemState.STORED, ItemState.UNCHANGED)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)
_AT_FAULT = (FailureKind.INVALID, FailureKind.BUG)


class Drifting:
    """Watches the outcomes of one run of a job."""

    def __init__(self, store: Store, source: Source, clock: Clock) -> None:
        self._store = store
        self._source = source
        self._clock = clock
        self._job = ""
        self._watch = Watch()
        self._place = 0
        self._waiting: list[tuple[int, Finish]] = []

    async def begin(self, job: Job) -> None:
        """Take up the watch: earlier runs are the measure, and what this job has committed."""
        self._job = job.id
        history, _ = await self._history()
        noticed = await self._noticed()
        self._watch = Watch(history, (one.data["field"] for one in noticed))
        for sighting in await self._store.profiles.evidence(job.id, most=_SAMPLE):
            self._place += 1
            self._watch.add(_shape(sighting), self._place)

    def tell(self, finish: Finish, state: ItemState | None) -> None:
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
        facts = [
            self._told(notice)
            for place, finish in waiting
            for notice in self._watch.add(_shape_of(finish), place)
        ]
        if facts:
            await self._store.journal.append(*facts)

    async def ending(self) -> Ending:
        """Judge the whole job by what is committed."""
        await self.look()
        history, runs = await self._history()
        evidence = await self._store.profiles.evidence(self._job, most=_SAMPLE)
        declared = _declared(self._source)
        judgement = await asyncio.to_thread(
            lambda: judge([_shape(one) for one in evidence], history, declared=declared, runs=runs)
        )
        drift = {one.field: str(one) for one in judgement.drift}
        for event in await self._noticed():
            drift.setdefault(event.data["field"], event.data["text"])
        warnings = list(judgement.warnings)
        if problem := await self._nothing(judgement):
            is_drift = history is not None and history.records and not _may_be_empty(self._source)
            if is_drift:
                drift["@records"] = f"{problem}, earlier runs had records"
            else:
                warnings.insert(0, problem)
        return Ending(judgement.profile.as_json(), tuple(drift.values()), tuple(warnings))

    async def _nothing(self, judgement: Judgement) -> str | None:
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

    async def _history(self) -> tuple[Profile | None, int]:
        kept = enough(await self._store.profiles.measure(self._source.name, but=self._job))
        return merged(kept), len(kept)

    async def _noticed(self) -> list[Event]:
        """Return what any process has noticed since the job was last opened again."""
        events = await self._store.journal.events(self._job, kind=NOTICED)
        reopened = await self._store.journal.events(self._job, kind="job.reopened")
        last = reopened[-1].id if reopened else 0
        return [event for event in events if event.id > last]

    def _told(self, notice: Notice) -> Fact:
        difference = notice.difference
        return fact(
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


def enough(kept: Iterable[KeptProfile]) -> list[KeptProfile]:
    """Return the newest few, and more of them if they are of single items or little tries."""
    taken: list[KeptProfile] = []
    records = 0
    for one in kept:
        if len(taken) >= _RUNS and records >= _RECORDS:
            break
        taken.append(one)
        records += one.profile["records"]
    return taken


def merged(kept: Iterable[KeptProfile]) -> Profile | None:
    """Return several profiles as one; None when there are none."""
    whole: Profile | None = None
    for one in kept:
        profile = Profile.from_json(one.profile)
        if whole is None:
            whole = profile
        else:
            whole.merge(profile)
    return whole


async def accept(store: Store, job: str, at: float) -> KeptProfile:
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
    await store.profiles.accept(found.id, profile.as_json(), at)
    return kept


def _shape(sighting: Sighting) -> Shape:
    if sighting.data is None:
        return shape_of_failure(sighting.key, sighting.reason, site=sighting.site)
    return shape_of(sighting.key, sighting.data, sighting.score, site=sighting.site)


def _shape_of(finish: Finish) -> Shape:
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
