"""Items on their way into the queue: each key once in a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select, update

from longline.core.model import Item, ItemState, Usage
from longline.http.messages import origin_of
from longline.storage.bulk import (
    BulkInsert,
    as_sanitized_json,
    sanitize_key,
    sanitize_text,
    sanitize_value,
)
from longline.storage.database import lock_job
from longline.storage.events import add_statistics, append_events, event_row, usage_events
from longline.storage.queue.failures import note_failures
from longline.storage.schema import items, jobs

_MOST_URGENT = 2**31 - 1  # the largest number that PostgreSQL has for it
_LARGEST_LOOKUP = 10_000  # keys; a stock SQLite takes 32,766 variables in a statement


@dataclass(frozen=True, slots=True)
class Discovered:
    """Items found by discovery, and how far it has come with them.

    `shortfall` says why not all could be found, when that is known.
    """

    job: str
    items: Sequence[Item]
    at: float
    cursor: Mapping[str, Any] | None = None
    is_last: bool = False
    limit: int | None = None
    usage: Usage = field(default_factory=Usage)
    shortfall: str | None = None


def add(connection: Connection, discovered: Discovered) -> int | None:
    """Queue what is new of these items; return how many the job has now.

    None, uncounted, when neither a limit nor the end asks for it: counting takes the longer the
    more there are.
    """
    job, limit = discovered.job, discovered.limit
    lock_job(connection, job)  # keys and the limit are counted by one at a time
    first: dict[str, Item] = {}
    for item in discovered.items:
        first.setdefault(sanitize_key(item.key), item)
    found = list(first.values())
    if limit is not None:
        fresh = _fresh(connection, job, found)
        found = fresh[: max(0, limit - _total(connection, job))]
    if found:
        _QUEUE_UP.run(connection, [_queued(job, item) for item in found])
    changes: dict[str, Any] = {"is_discovered": True} if discovered.is_last else {}
    if discovered.cursor is not None:
        changes["cursor"] = sanitize_value(discovered.cursor)
    if discovered.shortfall is not None:
        changes["shortfall"] = discovered.shortfall
    if changes:
        connection.execute(update(jobs).where(jobs.c.id == job).values(**changes))
    add_statistics(connection, [(job, discovered.usage.as_counts())])
    note_failures(connection, [(job, None, 0, discovered.usage)])
    append_events(connection, usage_events(job, None, discovered.at, discovered.usage))
    if limit is None and not discovered.is_last:
        return None
    total = _total(connection, job)
    if discovered.is_last:
        append_events(connection, [event_row(job, discovered.at, "job.discovered", items=total)])
    return total


def _total(connection: Connection, job: str) -> int:
    return connection.scalar(select(func.count()).where(items.c.job_id == job)) or 0


def _fresh(connection: Connection, job: str, found: Sequence[Item]) -> list[Item]:
    """Return the items whose keys the job does not have."""
    fresh = {sanitize_key(item.key): item for item in found}
    keys = list(fresh)
    for start in range(0, len(keys), _LARGEST_LOOKUP):
        some = keys[start : start + _LARGEST_LOOKUP]
        known = select(items.c.key).where(items.c.job_id == job, items.c.key.in_(some))
        for key in connection.scalars(known).all():
            del fresh[key]
    return list(fresh.values())


def _queued(job: str, item: Item) -> dict[str, Any]:
    return {
        "job_id": job,
        "key": sanitize_key(item.key),
        "url": sanitize_text(item.url),
        "data": as_sanitized_json(item.data),
        "priority": max(-_MOST_URGENT, min(item.priority, _MOST_URGENT)),
        "state": ItemState.QUEUED,
        "due_at": 0.0,
        "tries": 0,
        "lease_token": 0,
        "domain": sanitize_key(origin_of(item.url)[1]),
    }


_QUEUE_UP = BulkInsert(
    items,
    (
        *("job_id", "key", "url", "data", "priority", "state"),
        *("due_at", "tries", "lease_token", "domain"),
    ),
    # Whether a key is known is the index's to say: to ask first reads the job's keys twice.
    finish=lambda rows: rows.on_conflict_do_nothing(index_elements=["job_id", "key"]),
)
