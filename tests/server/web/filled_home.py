"""What pages show: jobs with items in all states, quarantined items, duplicates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from longline.analysis.duplicates import find_duplicates
from longline.analysis.match_rules import Rules
from longline.core.clock import SystemClock
from longline.core.errors import FailureKind
from longline.core.model import Failure, Item, Outcome, OutcomeAction, Record, Usage
from longline.pipeline.pipeline import Material
from longline.storage.jobs import NewJob
from longline.storage.profiles import DriftResult
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store

URL = "http://x.test/"
RULES: dict[str, Any] = {
    "match": "things",
    "sources": ["left", "right"],
    "block": [["code"]],
    "compare": {"title": {"weight": 1}, "price": {"weight": 5}, "code": {"weight": 2}},
    "threshold": 4,
}


def failed(reason: str = "refused", kind: FailureKind = FailureKind.NETWORK) -> Outcome:
    """An item whose request failed."""
    usage = Usage(requests=1)
    usage.failures.append(Failure(time.time(), URL, kind, reason, "gave up", 0.3))
    return Outcome(OutcomeAction.FAIL, kind=kind, reason=reason, usage=usage)


def quarantined(reason: str = "price: not a number", data: Any = None) -> Outcome:
    """An item whose data breaks a rule."""
    raw = Material({"page": data or {"price": "?"}}, layers={"page": "ok"}, problems=[reason])
    return Outcome(
        OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason=reason, raw=raw.as_raw()
    )


def skipped(reason: str = "gone") -> Outcome:
    """An item that the site no longer has."""
    return Outcome(OutcomeAction.SKIP, kind=FailureKind.GONE, reason=reason)


async def run_job(
    store: Store,
    outcomes: Sequence[Outcome] = (),
    *,
    source: str = "shop",
    prefix: str = "k",
    drift: DriftResult | None = None,
) -> str:
    """Run a job with an item for each outcome, to its end if it has any."""
    now = time.time()
    job = await store.jobs.create(NewJob(source, {"source": source}, {}, now - 100))
    await store.jobs.start(job.id, now - 99)
    items = [Item(f"{prefix}{place}", f"{URL}{place}") for place in range(len(outcomes))]
    await store.queue.enqueue(Discovered(job.id, items, now - 98, is_last=True))
    if outcomes:
        leases = await store.queue.lease(Claim(job.id, "me", len(items), now - 97, now + 60))
        by_url = {item.url: one for item, one in zip(items, outcomes, strict=True)}
        await store.queue.complete_all([(one, by_url[one.item.url]) for one in leases])
        await store.jobs.finish(job.id, now - 40, drift)
    return job.id


async def add_duplicates(store: Store, pairs: int = 1, *, title: str = "Thing") -> None:
    """Add records of two sources, of which each has a duplicate."""
    for number in range(pairs):
        for source in RULES["sources"]:
            data = {"code": number, "title": title, "price": 10, "colour": source}
            mark = f"{source} {number}"
            record = Record(source, f"key{number}", URL, data, fingerprint=mark)
            await store.records.create(record, at=time.time())
    await find_duplicates(store.matches, Rules.model_validate(RULES), clock=SystemClock())
