"""Quarantined items looked at again with a mended source: compose and pipeline, no request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
from longline.stores.quarantine import Held, Mended
from longline.stores.store import Store

_BATCH = 200  # items in one transaction
_EXIT_PARTIAL = 3
# Their layers ask only through the visit, which can be refused; others' code may ask by itself.
_ASKS_THROUGH_US = frozenset({"html", "api"})


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of the quarantined items of a job.

    `left` says of each that could not be looked at, by its key, why; `still` of each that does not
    fit, what is wrong now.
    """

    job: str
    source: str
    state: JobState
    is_dry: bool = False
    ends: Mapping[str, int] = field(default_factory=dict)
    still: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def items(self) -> int:
        """How many items there were."""
        return sum(self.ends.values()) + len(self.left)

    @property
    def exit_code(self) -> int:
        """What the command line exits with: 3 when something is still in quarantine."""
        return _EXIT_PARTIAL if self.still or self.left else 0

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
        BadOption: a key is not in quarantine.
    """
    replayer = _Replayer(store, job, source, clock, is_dry=dry_run)
    for key in keys:
        await store.quarantine.get(job.id, key)  # a wrong one is told before anything is done
    await replayer.run(keys)
    if not dry_run:
        await replayer.finish()
    ended = await store.jobs.get(job.id)
    return Replay(
        job.id, source.name, ended.state, dry_run, replayer.ends, replayer.still, replayer.left
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
        self._is_open = False
        self.ends: Counter[str] = Counter()
        self.still: dict[str, str] = {}
        self.left: dict[str, str] = {}

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
        now = self._clock.now()
        if self._is_open:
            ends = dict(self.ends)
            told = fact(self._job.id, now, "job.replayed", ends=ends, left=len(self.left))
            await self._store.journal.append(told)
        if not await self._store.jobs.is_over(self._job.id):
            return
        drift = Drifting(self._store, self._source, self._clock)
        await drift.begin(self._job)
        await self._store.jobs.finish(self._job.id, now, await drift.ending())

    async def _commit(self, mended: list[Mended]) -> None:
        if not mended:
            return
        ends: list[ItemState | LeaseLost]
        if self._is_dry:
            ends = [_would_be(one.outcome) for one in mended]
        else:
            await self._open(len(mended))
            ends = await self._store.quarantine.settle(mended, self._clock.now())
        for one, end in zip(mended, ends, strict=True):
            self._count(one, end)

    async def _open(self, count: int) -> None:
        if not self._is_open:
            await self._store.quarantine.reopen(self._job.id, self._clock.now(), count)
        self._is_open = True

    def _count(self, mended: Mended, end: ItemState | LeaseLost) -> None:
        key = mended.held.item.key
        if isinstance(end, LeaseLost):
            self.left[key] = "somebody else was at it"
            return
        self.ends[end.value] += 1
        if end in (ItemState.QUARANTINED, ItemState.FAILED):
            self.still[key] = mended.outcome.reason or "it cannot be stored"

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


def _would_be(outcome: Outcome) -> ItemState:
    states = {
        Verdict.STORE: ItemState.STORED,
        Verdict.SKIP: ItemState.SKIPPED,
        Verdict.QUARANTINE: ItemState.QUARANTINED,
    }
    return states.get(outcome.verdict, ItemState.FAILED)
