"""Runs of sources at given times, through the real store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from longline.core.errors import FailureKind
from longline.core.model import Item, Job, Lease, Note, Outcome, OutcomeAction, Record, Usage
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store


@dataclass(frozen=True, slots=True)
class SeededRun:
    """A run that ends at `end` after `seconds`.

    `records` are the keys with the value of each; `bad` are keys that fail, with their reasons, and
    `held` those that are quarantined. With `is_open`, it does not end.
    """

    source: str
    end: float
    records: Mapping[str, str] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    requests: int = 1
    is_open: bool = False


async def seed(store: Store, run: SeededRun) -> Job:
    """Create the job of a run, with all its items."""
    start = run.end - run.seconds
    job = await store.jobs.create(NewJob(run.source, {}, {"of": run.source}, start))
    await store.jobs.start(job.id, start)
    keys = [*run.records, *run.bad, *run.held]
    items = [Item(key, f"https://{run.source}.test/{key}") for key in keys]
    await store.queue.enqueue(Discovered(job.id, items, start, is_last=True))
    if keys:
        leases = await store.queue.lease(Claim(job.id, "me", len(keys), start, run.end + 60))
        await store.queue.complete_all([(one, _outcome(run, one)) for one in leases])
    if not run.is_open:
        await store.jobs.finish(job.id, run.end)
    return await store.jobs.get(job.id)


def _outcome(run: SeededRun, lease: Lease) -> Outcome:
    outcome = _plain_outcome(run, lease.item)
    usage = Usage(requests=run.requests)
    return replace(outcome, at=run.end, seconds=run.seconds / 10, usage=usage)


def _plain_outcome(run: SeededRun, item: Item) -> Outcome:
    key = item.key
    if key in run.bad:
        return Outcome(OutcomeAction.FAIL, kind=FailureKind.SERVER, reason=run.bad[key])
    if key in run.held:
        return Outcome(OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason=run.held[key])
    value = run.records[key]
    record = Record(
        source=run.source,
        key=key,
        url=item.url,
        data={"title": f"{key} {value}", "price": value, "note": None},
        fingerprint=value,
        provenance={"title": "page"},
        notes=(Note("note", "the site has none"),),
        layers={"page": "ok"},
        quality=None,
    )
    return Outcome(OutcomeAction.STORE, record=record)
