"""What a test of the store begins with: jobs, items and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, inspect

from longline.core.errors import LeaseLost
from longline.core.model import (
    Item,
    ItemState,
    Job,
    Lease,
    Note,
    Outcome,
    OutcomeAction,
    Quality,
    QualityPart,
    Record,
    Usage,
)
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store
from tests.virtual import EPOCH


def new_job(**identity: Any) -> NewJob:
    return NewJob("shop", {"limit": 5}, identity, EPOCH)


def item(key: str, priority: int = 0) -> Item:
    return Item(key, f"https://shop.test/{key}", priority, {"n": key})


def record(
    key: str,
    data: Mapping[str, Any] | None = None,
    *,
    source: str = "shop",
    fingerprint: str = "first",
    score: float | None = None,
) -> Record:
    grade = "Good" if score and score >= 70 else "Poor"
    parts = (QualityPart("fields", 60, 50, ("no price",)),)
    return Record(
        source=source,
        key=key,
        url=f"https://{source}.test/{key}",
        data=data if data is not None else {"title": f"Thing {key}"},
        fingerprint=fingerprint,
        provenance={"title": "page"},
        notes=(Note("price", "sold out"),),
        layers={"page": "ok"},
        quality=None if score is None else Quality(score, grade, parts),
    )


async def queued(store: Store, *keys: str, is_last: bool = False) -> Job:
    """Return a running job that has these items."""
    job = await store.jobs.create(new_job())
    await store.jobs.start(job.id, EPOCH)
    await store.queue.enqueue(
        Discovered(job.id, [item(key) for key in keys], EPOCH, is_last=is_last)
    )
    return job


async def leased(
    store: Store, job: Job, count: int = 1, *, owner: str = "me", at: float = EPOCH
) -> list[Lease]:
    return await store.queue.lease(Claim(job.id, owner, count, at, at + 20))


LeasedOutcome = tuple[Lease, Outcome]


def attempt(
    lease: Lease,
    outcome: Outcome,
    at: float,
    seconds: float = 0.0,
    usage: Usage | None = None,
    *,
    found: Sequence[Item] = (),
) -> LeasedOutcome:
    """Return a lease and the outcome of an attempt that ended at `at`."""
    usage = usage or Usage()
    return lease, replace(outcome, at=at, seconds=seconds, usage=usage, found=found)


def stored(lease: Lease, **values: Any) -> LeasedOutcome:
    """Return the outcome of an attempt that made a record."""
    outcome = Outcome(OutcomeAction.STORE, record=record(lease.item.key))
    return attempt(lease, outcome, EPOCH + 1, **values)


def ended(lease: Lease, action: OutcomeAction, **values: Any) -> LeasedOutcome:
    """Return the outcome of an attempt that made no record."""
    return attempt(lease, Outcome(action, **values), EPOCH + 1)


async def complete(store: Store, one: LeasedOutcome) -> ItemState:
    """Commit one outcome.

    Raises:
        LeaseLost: the token is outdated.
    """
    (end,) = await store.queue.complete_all([one])
    if isinstance(end, LeaseLost):
        raise end
    return end


def tables_of(connection: Connection) -> dict[str, Any]:
    """Return the definition of each table in a database; the order of columns is left out."""
    found = inspect(connection)
    return {
        name: {
            "columns": {
                one["name"]: (str(one["type"]), one["nullable"], one["default"])
                for one in found.get_columns(name)
            },
            "primary key": found.get_pk_constraint(name),
            "foreign keys": sorted(found.get_foreign_keys(name), key=str),
            "unique": sorted(found.get_unique_constraints(name), key=str),
            "indexes": [_plain_index(one) for one in found.get_indexes(name)],
        }
        for name in sorted(found.get_table_names())
    }


def _plain_index(index: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return {**index, "dialect_options": options}
