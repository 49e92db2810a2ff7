"""Process quarantined items again with a changed source, without a request.

Items of manifests are extracted again from archived pages, starting with discovery. For other
sources, and for jobs without an archive, compose and pipeline run again on the stored material.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from longline.analysis.reextract import (
    PairedItems,
    Rediscovery,
    is_manifest,
    missing_response,
    pair_items,
    rediscover,
    replay_collector,
    source_for,
)
from longline.config.job_spec import make_spec
from longline.core.clock import Clock
from longline.core.errors import BadOption, ConfigError, LeaseLost
from longline.core.model import ItemState, Job, JobState, Outcome, OutcomeAction, Usage
from longline.drift.monitor import DriftMonitor
from longline.engine.collector import Collector, failed_outcome
from longline.http.archive.warc import Archive
from longline.http.errors import NotArchived
from longline.http.messages import Page, Request
from longline.pipeline.pipeline import Pipeline, unpack_material
from longline.sources.base import Source
from longline.sources.loader import load_source
from longline.sources.manifest import Manifest
from longline.storage.backends import sanitize_key
from longline.storage.events.events import event_row
from longline.storage.queue.quarantine import REPLAY_UNFINISHED, QuarantinedItem, ReprocessedItem
from longline.storage.store import Store

_BATCH = 200  # items in one transaction
_EXIT_PARTIAL = 3
_EXIT_CODES = {JobState.COMPLETE: 0, JobState.FAILED: 1, JobState.PARTIAL: _EXIT_PARTIAL}
_EXIT_OPEN = 4
_HELD = (ItemState.QUARANTINED, ItemState.FAILED)
_UNFINISHED = (ItemState.QUEUED, ItemState.LEASED)
_NOT_RULES = {  # parts of a manifest that decide neither what is requested nor how it is read
    *("about", "version", "rate", "burst", "max_in_flight", "headers", "cookies", "auth", "cache"),
    *("ca_file", "expects", "fresh", "pipeline", "proxies", "retry", "schedule", "sessions"),
}
_NO_PAGES = (
    "the manifest reads it differently now, and the job has no archived pages; run the source "
    "again, with --archive to be able to replay later"
)
_NOT_FOUND = "the source no longer finds it; `longline reextract` shows what it finds"


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of replaying the quarantined items of a job.

    `left` says by key why an item could not be replayed, `still` what is wrong with one that is
    still invalid. `others` counts items that another replay has settled meanwhile. `renamed` has
    the new keys of items that the changed source names differently.
    """

    job: str
    source: str
    state: JobState
    is_dry: bool = False
    ends: Mapping[str, int] = field(default_factory=dict)
    still: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    others: int = 0
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """How many items there were."""
        return sum(self.ends.values()) + len(self.left) + self.others

    @property
    def exit_code(self) -> int:
        """The exit code of a run that leaves the job in this state.

        For a dry run: 3 when an item would still be in quarantine.
        """
        if self.is_dry:
            return _EXIT_PARTIAL if self.still or self.left else 0
        return _EXIT_CODES.get(self.state, _EXIT_OPEN)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        states = ("stored", "unchanged", "skipped", "failed", "quarantined")
        return {
            "job": self.job,
            "source": self.source,
            "state": self.state.value,
            "dry_run": self.is_dry,
            "items": self.items,
            **{name: self.ends.get(name, 0) for name in states},
            "left": len(self.left),
            "settled_by_others": self.others,
            "requests": 0,
            "reasons": dict(self.still),
            "not_replayed": dict(self.left),
            "renamed": dict(self.renamed),
        }


def source_now(job: Job, reference: str | None) -> Source:
    """Return the source of a job as it is now: the named one, or the job's own.

    A manifest is read from its file again if that exists; otherwise the job's copy is used.

    Raises:
        ConfigError: there is no such source, or it is not the job's.
    """
    source = source_for(job, reference, {})
    if source.name != job.source:
        problem = f"job {job.id} is a run of {job.source!r}, and this source is {source.name!r}"
        raise BadOption("--source", problem)
    return source


async def replay(
    store: Store,
    job: Job,
    source: Source,
    clock: Clock,
    *,
    archive: Archive | None = None,
    keys: Sequence[str] = (),
    dry_run: bool = False,
) -> Replay:
    """Turn the quarantined items of a job into records, without a request, and end it again.

    Every batch of items is one transaction, so a killed replay can be run again.

    Args:
        store: where the job and its records are.
        job: whose items.
        source: processes them now; has the job's source name.
        clock: the time of the changes.
        archive: where the responses of the job are, if it has any.
        keys: only these items.
        dry_run: change nothing, and return what would happen.

    Raises:
        BadOption: a key is not in quarantine, or the job is running.
    """
    if not dry_run and (await store.jobs.get(job.id)).state is JobState.RUNNING:
        problem = "is running; replay it when it has ended, or resume it if it was killed"
        raise BadOption("JOB", f"{job.id} {problem}")
    if archive is not None and not (is_manifest(source) and await archive.count(job.id)):
        archive = None
    replayer = _Replayer(store, job, source, clock, archive, dry_run)
    for key in keys:
        await store.quarantine.get(job.id, key)  # raises for a wrong key before anything is done
    await replayer.run(keys)
    if not dry_run:
        await replayer.finish()
    ended = await store.jobs.get(job.id)
    return Replay(
        job.id,
        source.name,
        ended.state,
        dry_run,
        replayer.ends,
        replayer.still,
        replayer.left,
        replayer.others,
        replayer.renamed,
    )


@dataclass
class _Replayer:
    """Replays the quarantine of one job."""

    store: Store
    job: Job
    source: Source
    clock: Clock
    archive: Archive | None
    """Only of manifests."""
    is_dry: bool
    again: Rediscovery = field(default_factory=lambda: Rediscovery(is_repeated=False))
    pairs: PairedItems = field(default_factory=PairedItems)
    keys: set[str] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)
    still: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    others: int = 0
    renamed: dict[str, str] = field(default_factory=dict)

    async def run(self, keys: Sequence[str]) -> None:
        """Replay every item once."""
        quarantine, job = self.store.quarantine, self.job
        if self.archive is not None and await quarantine.held(job.id, limit=1):
            rows = await self.store.queue.rows(job.id)
            self.again = await rediscover(self.store, self.archive, job, self.source, rows)
            limit = job.settings.get("limit")
            self.pairs = pair_items(self.source, rows, self.again.items, limit)
            self.keys = {row["key"] for row in rows}
        last = 0
        while batch := await quarantine.held(job.id, keys=keys, after=last, limit=_BATCH):
            last = batch[-1].id
            replayed = [await self._replay(held) for held in batch]
            await self._commit_batch([one for one in replayed if one is not None])

    async def finish(self) -> None:
        """Append an event, and end the job if nothing is left to do."""
        jobs, now = self.store.jobs, self.clock.now()
        # A replay that was killed after its last item has left only this to do.
        is_unended = (await jobs.get(self.job.id)).reason == REPLAY_UNFINISHED
        if not (self.ends or is_unended or await jobs.is_over(self.job.id)):
            return
        ends = dict(self.ends)
        event = event_row(self.job.id, now, "job.replayed", ends=ends, left=len(self.left))
        drift = DriftMonitor(self.store, self.source, self.clock)
        await drift.begin(self.job)
        await self.store.quarantine.finish(self.job.id, now, await drift.result(), [event])

    async def _commit_batch(self, reprocessed: list[ReprocessedItem]) -> None:
        if not reprocessed:
            return
        quarantine = self.store.quarantine
        ends: Sequence[ItemState | LeaseLost]
        if self.is_dry:
            ends = await quarantine.preview(reprocessed)
        else:
            ends = await quarantine.complete(reprocessed, self.clock.now())
        lost = []
        for one, end in zip(reprocessed, ends, strict=True):
            if isinstance(end, LeaseLost):
                lost.append(one)
                continue
            self.ends[end.value] += 1
            if end in _HELD:
                self.still[one.held.item.key] = one.outcome.reason or "it cannot be stored"
        states = await quarantine.states(lost) if lost else []
        for one, state in zip(lost, states, strict=True):
            if state in _HELD:
                self.left[one.held.item.key] = "another replay has processed it meanwhile"
            elif state in _UNFINISHED:
                self.left[one.held.item.key] = "it is being collected again"
            else:
                self.others += 1

    async def _replay(self, held: QuarantinedItem) -> ReprocessedItem | None:
        """Return the outcome of an item now; None when that takes a request."""
        reprocessed: ReprocessedItem | None = None
        problem: str | None = None
        if self.archive is not None:
            reprocessed, problem = await self._replay_archived(self.archive, held)
        # Stored material is valid only if the rules that read it are unchanged.
        is_usable = self._is_read_as_before or _manifest_of(self.source) is None
        if reprocessed is None and is_usable:
            reprocessed, problem = await self._replay_material(held)
        elif reprocessed is None and self.archive is None:
            # The record in an item is enough if only its fields are read differently.
            is_enough = self._is_listed_as_before and "record" in held.item.data
            reprocessed = await self._replay_without_requests(held) if is_enough else None
            problem = _NO_PAGES
        if reprocessed is None and problem is not None:
            self.left[held.item.key] = problem
        return reprocessed

    async def _replay_material(
        self, held: QuarantinedItem
    ) -> tuple[ReprocessedItem | None, str | None]:
        """Return the outcome from the stored results of layers, or why there is none."""
        material = unpack_material(held.raw)
        needed = [layer.name for layer in self.source.layers() if not layer.is_optional]
        missing = [name for name in needed if name not in material.results]
        if missing:
            # Layers of manifests request only through the visit, which can be refused here.
            may_run = is_manifest(self.source)
            reprocessed = await self._replay_without_requests(held) if may_run else None
            layers = ", ".join(missing)
            return (
                reprocessed,
                f"layer {layers} has no stored result; `longline retry` fetches it again",
            )
        try:
            record = self._pipeline.record(held.item, material)
            outcome = Outcome(OutcomeAction.STORE, record=record, raw=material.as_raw())
        except Exception as error:  # noqa: BLE001  # the edge of an item: others follow
            outcome = failed_outcome(error, material, is_whole=True)
        return ReprocessedItem(held, outcome), None

    async def _replay_archived(
        self, archive: Archive, held: QuarantinedItem
    ) -> tuple[ReprocessedItem | None, str | None]:
        """Return the outcome from archived responses, or why there is none."""
        old, found = held.item.key, self.pairs.items.get(held.item.key)
        if found is None:
            return None, self.again.problem or _NOT_FOUND
        item = replace(found, key=sanitize_key(found.key))
        if item.key != old and item.key in self.keys:
            return None, f"its key would be {item.key}, which another item of the job has"
        collector = replay_collector(archive, self.job, self.source, until=held.finished_at)
        outcome = await collector.collect(item, tries=held.tries)
        if problem := missing_response(outcome):
            return None, problem
        if outcome.action is OutcomeAction.DEFER:
            return None, outcome.reason
        if item.key != old:
            self.renamed[old] = item.key
        return ReprocessedItem(replace(held, item=item), outcome), None

    @cached_property
    def _pipeline(self) -> Pipeline:
        return Pipeline(self.source)

    @cached_property
    def _is_read_as_before(self) -> bool:
        """Whether the manifest requests and reads the same as the one the job was run with."""
        return self._rules_of_job is not None and _rules(self.source) == self._rules_of_job

    @cached_property
    def _is_listed_as_before(self) -> bool:
        """Whether the manifest differs at most in the fields of records."""
        return self._rules_of_job is not None and _without_fields(
            _rules(self.source)
        ) == _without_fields(self._rules_of_job)

    @cached_property
    def _rules_of_job(self) -> dict[str, Any] | None:
        manifest = make_spec(self.job.settings).manifest
        try:
            return None if manifest is None else _rules(load_source(self.source.name, manifest))
        except ConfigError:
            return None  # an older version wrote it

    async def _replay_without_requests(self, held: QuarantinedItem) -> ReprocessedItem | None:
        """Run the layers again on the item; None when they need a request."""
        refusing = _RefuseRequests()
        collector = Collector(
            self.source, refusing, self.clock, self.job.settings.get("params") or {}
        )
        outcome = await collector.collect(held.item, tries=held.tries)
        return None if refusing.was_called else ReprocessedItem(held, outcome)


def _manifest_of(source: Source | type[Source]) -> Manifest | None:
    found = getattr(source, "manifest", None)
    return found if isinstance(found, Manifest) else None


def _rules(source: Source | type[Source]) -> dict[str, Any] | None:
    """Return the parts of a manifest that decide what is requested and how it is read."""
    manifest = _manifest_of(source)
    return None if manifest is None else manifest.model_dump(exclude=_NOT_RULES)


def _without_fields(rules: Mapping[str, Any] | None) -> dict[str, Any]:
    endpoints: Mapping[str, Mapping[str, Any]] = (rules or {}).get("endpoints", {})
    others = {name: {**one, "fields": None} for name, one in endpoints.items()}
    return {**(rules or {}), "fields": None, "endpoints": others}


class _RefuseRequests:
    """A request chain that refuses every request."""

    was_called = False

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        self.was_called = True
        raise NotArchived(request.url, request.method)
