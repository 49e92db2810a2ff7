"""Runs of a shop, made by hand, for tests of what happened between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from longline.analysis.changes import ChangeKind, RunChanges
from longline.core.errors import FailureKind
from longline.core.model import Item, Job, Outcome, OutcomeAction, Record
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store
from tests.storage.given import attempt, complete
from tests.virtual import EPOCH

FAILED = Outcome(OutcomeAction.FAIL, kind=FailureKind.SERVER, reason="it answered 500")
WRONG = Outcome(OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason="no price")
GONE = Outcome(OutcomeAction.SKIP, kind=FailureKind.GONE, reason="it answered 404")
UNPAID = Outcome(OutcomeAction.SKIP, kind=FailureKind.BUDGET, reason="the budget is spent")
STEP = Outcome(OutcomeAction.SKIP, reason="3 links")
FILTERED = Outcome(OutcomeAction.SKIP, reason="too cheap")


@dataclass
class Runs:
    """Makes runs of a shop, an hour apart."""

    store: Store
    at: float = EPOCH
    made: list[Job] = field(default_factory=list)

    async def __call__(
        self,
        things: Mapping[str, Mapping[str, Any] | Outcome | None],
        *,
        source: str = "shop",
        is_finished: bool = True,
        shortfall: str | None = None,
        **settings: Any,
    ) -> str:
        """Run once: each thing becomes data, ends like an outcome, or stays queued (None)."""
        self.at += 3600
        job = await self.store.jobs.create(NewJob(source, settings, {}, self.at))
        await self.store.jobs.start(job.id, self.at)
        items = [Item(key, f"https://shop.test/{key}") for key in things]
        found = Discovered(job.id, items, self.at, is_last=True, shortfall=shortfall)
        await self.store.queue.enqueue(found)
        for lease in await self.store.queue.lease(Claim(job.id, "me", 99, self.at, self.at + 60)):
            if (end := things[lease.item.key]) is not None:
                self.at += 1
                await complete(
                    self.store, attempt(lease, outcome(source, lease.item, end), self.at)
                )
        if is_finished:
            await self.store.jobs.finish(job.id, self.at)
        self.made.append(job)
        return job.id


def outcome(source: str, item: Item, end: Mapping[str, Any] | Outcome) -> Outcome:
    if isinstance(end, Outcome):
        return end
    text = orjson.dumps(dict(end), option=orjson.OPT_SORT_KEYS).decode()
    return Outcome(OutcomeAction.STORE, record=Record(source, item.key, item.url, end, text))


def keys(found: RunChanges) -> dict[str, list[str]]:
    """Return the keys by fate, without the fates of none."""
    shown = {fate.value: [one.key for one in found.of(fate)] for fate in ChangeKind}
    return {name: some for name, some in shown.items() if some}
