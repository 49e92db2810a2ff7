"""Quarantined items looked at again with a mended source: compose and pipeline, no request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longline.clock import Clock
from longline.config.files import SUFFIXES
from longline.config.spec import make_spec
from longline.errors import BadOption, LeaseLost, NotArchived
from longline.fetching.messages import Page, Request
from longline.jobs.collector import Collector, refusal
from longline.jobs.drifting import Drifting
from longline.jobs.reextraction import source_for
from longline.model import Account, ItemState, Job, JobState, Outcome, Verdict
from longline.pipeline.material import Material, material_of
from longline.pipeline.pipeline import Pipeline
from longline.sources.base import Source
from longline.stores.journal import fact
from longline.stores.quarantine import UNENDED, Held, Mended
from longline.stores.store import Store

_BATCH = 200  # items in one transaction
_EXIT_PARTIAL = 3
_EXIT_CODES = {JobState.COMPLETE: 0, JobState.FAILED: 1, JobState.PARTIAL: _EXIT_PARTIAL}
_EXIT_OPEN = 4
_HELD = (ItemState.QUARANTINED, ItemState.FAILED)
_UNFINISHED = (ItemState.QUEUED, ItemState.LEASED)
# Their layers ask only through the visit, which can be refused; others' code may ask by itself.
_ASKS_THROUGH_US = frozenset({"html", "api"})


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of the quarantined items of a job.

    `left` says of each that could not be looked at, by its key, why; `still` of each that does not
    fit, what is wrong now. `others` counts those that another replay has settled meanwhile.
    """

    job: str
    source: str
    state: JobState
    is_dry: bool = False
    ends: Mapping[str, int] = field(default_factory=dict)
    still: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    others: int = 0

    @property
    def items(self) -> int:
        """How many items there were."""
        return sum(self.ends.values()) + len(self.left) + self.others

    @property
    def exit_code(self) -> int:
        """What the command line exits with: as a run that left the job in this state.

        One that changed nothing: 3 when something would still be in quarantine.
        """
        if self.is_dry:
            return _EXIT_PARTIAL if self.still or self.left else 0
        return _EXIT_CODES.get(self.state, _EXIT_OPEN)

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
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
        }


def source_now(job: Job, reference: str | None) -> Source:
    """Return the source of a job as it is now: the one that is named, or the job's own.

    A manifest is read from its file again, if that is still there; else the job's copy counts.

    Raises:
        ConfigError: there is no such source, or it is another one than the job's.
    """
    spec = make_spec(job.settings)
    if reference is None and spec.source.endswith(SUFFIXES) and Path(spec.source).is_file():
        reference = spec.source
    source = source_for(job, reference, {})
    if source.name != job.source:
        problem = f"job {job.id} is one of {job.source!r}, and this source is {source.name!r}"
        raise BadOption("--source", problem)
    return source


async def replay(
    store: Store,
    job: Job,
    source: Source,
    clock: Clock,
    *,
    keys: Sequence[str] = (),
    dry_run: bool = False,
) -> Replay:
    """Make records of what is quarantined in a job, without a request; end the job anew.

    Every batch of items is committed whole, so that whoever is killed here goes on later.

    Args:
        store: where the job and its records are.
        job: whose items.
        source: what they are made with now; of the job's name.
        clock: says when it happened.
        keys: only these items.
        dry_run: change nothing, and say what would come of it.

    Raises:
        BadOption: a key is not in quarantine, or the job is running.
    """
    if not dry_run and (await store.jobs.get(job.id)).state is JobState.RUNNING:
        problem = "is running; replay it when it has ended, or resume it if it was killed"
        raise BadOption("JOB", f"{job.id} {problem}")
    replayer = _Replayer(store, job, source, clock, is_dry=dry_run)
    for key in keys:
        await store.quarantine.get(job.id, key)  # a wrong one is told before anything is done
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
    )


class _Replayer:
    """Goes through the quarantine of one job."""

    def __init__(
        self, store: Store, job: Job, source: Source, clock: Clock, *, is_dry: bool
    ) -> None:
        self._store = store
        self._job = job
        self._source = source
        self._clock = clock
        self._is_dry = is_dry
        self._pipeline = Pipeline(source)
        self._needed = [layer.name for layer in source.layers() if not layer.is_optional]
        self.ends: Counter[str] = Counter()
        self.still: dict[str, str] = {}
        self.left: dict[str, str] = {}
        self.others = 0

    async def run(self, keys: Sequence[str]) -> None:
        """Look at every item once."""
        last = 0
        while batch := await self._store.quarantine.held(
            self._job.id, keys=keys, after=last, limit=_BATCH
        ):
            last = batch[-1].id
            looked_at = [(held, await self._look(held)) for held in batch]
            mended = [Mended(held, outcome) for held, outcome in looked_at if outcome is not None]
            await self._commit(mended)

    async def finish(self) -> None:
        """Say what was done, and end the job if nothing of it is left to do."""
        jobs, now = self._store.jobs, self._clock.now()
        # Whoever was killed after the last item has left only this to do.
        is_unended = (await jobs.get(self._job.id)).reason == UNENDED
        if not (self.ends or is_unended or await jobs.is_over(self._job.id)):
            return
        ends = dict(self.ends)
        told = fact(self._job.id, now, "job.replayed", ends=ends, left=len(self.left))
        drift = Drifting(self._store, self._source, self._clock)
        await drift.begin(self._job)
        await self._store.quarantine.end(self._job.id, now, await drift.ending(), [told])

    async def _commit(self, mended: list[Mended]) -> None:
        if not mended:
            return
        quarantine = self._store.quarantine
        if self._is_dry:
            self._count(zip(mended, await quarantine.foresee(mended), strict=True))
            return
        ends = await quarantine.settle(mended, self._clock.now())
        pairs = list(zip(mended, ends, strict=True))
        self._count((one, end) for one, end in pairs if not isinstance(end, LeaseLost))
        lost = [one for one, end in pairs if isinstance(end, LeaseLost)]
        self._count_lost(zip(lost, await quarantine.states(lost), strict=True))

    def _count(self, ends: Iterable[tuple[Mended, ItemState]]) -> None:
        for mended, end in ends:
            self.ends[end.value] += 1
            if end in _HELD:
                self.still[mended.held.item.key] = mended.outcome.reason or "it cannot be stored"

    def _count_lost(self, states: Iterable[tuple[Mended, ItemState]]) -> None:
        for mended, state in states:
            if state in _HELD:
                self.left[mended.held.item.key] = "somebody else has looked at it meanwhile"
            elif state in _UNFINISHED:
                self.left[mended.held.item.key] = "it is collected again"
            else:
                self.others += 1

    async def _look(self, held: Held) -> Outcome | None:
        """Return what comes of an item now; None when that would take a request."""
        material = material_of(held.raw)
        missing = [name for name in self._needed if name not in material.results]
        if missing:
            return await self._look_without_asking(held, missing)
        return self._made(held, material)

    def _made(self, held: Held, material: Material) -> Outcome:
        try:
            record = self._pipeline.record(held.item, material)
        except Exception as error:  # noqa: BLE001  # the edge of an item: others are still to come
            return refusal(error, material, is_whole=True)
        return Outcome(Verdict.STORE, record=record, raw=material.as_raw())

    async def _look_without_asking(self, held: Held, missing: Sequence[str]) -> Outcome | None:
        """Run the layers again: what discovery brought along needs no request."""
        refusing = _Refusing()
        if self._source.kind in _ASKS_THROUGH_US:
            params = self._job.settings.get("params") or {}
            collector = Collector(self._source, refusing, self._clock, params)
            extraction = await collector.collect(held.item, tries=held.tries)
            if not refusing.was_asked:
                return extraction.outcome
        self.left[held.item.key] = (
            f"layer {', '.join(missing)} left nothing to work with; `longline retry` asks for it"
        )
        return None


class _Refusing:
    """A request chain that answers nothing."""

    was_asked = False

    async def __call__(self, request: Request, account: Account) -> Page:
        del account
        self.was_asked = True
        raise NotArchived(request.url, request.method)
