"""Enqueue discovered items: each key once per job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select, update

from longline.core.model import Item, ItemState, Usage
from longline.http.messages import origin_of
from longline.storage.backends import (
    BulkInsert,
    as_sanitized_json,
    sanitize_key,
    sanitize_text,
    sanitize_value,
)
from longline.storage.database import lock_job
from longline.storage.events.events import add_statistics, append_events, event_row, usage_events
from longline.storage.queue.failures import note_failures
from longline.storage.queue.quotas import QuotaCounter, exhausted_event, have_quotas
from longline.storage.schema import items, jobs

_MAX_PRIORITY = 2**31 - 1  # of an integer column in PostgreSQL
_MAX_LOOKUP = 10_000  # keys per statement; SQLite allows 32,766 variables


@dataclass(frozen=True, slots=True)
class Discovered:
    """Items that discovery found, and its cursor.

    `shortfall` says why not all items could be found, when that is known. `parent` is the key of
    the item that has found them, if it was not discovery; `spent` names the quotas that it uses.
    """

    job: str
    items: Sequence[Item]
    at: float
    cursor: Mapping[str, Any] | None = None
    is_last: bool = False
    limit: int | None = None
    usage: Usage = field(default_factory=Usage)
    shortfall: str | None = None
    parent: str | None = None
    spent: Sequence[str] = ()


_INSERT = BulkInsert(
    items,
    (
        *("job_id", "key", "url", "data", "priority", "state"),
        *("due_at", "tries", "lease_token", "domain"),
    ),
    # The index rejects known keys: a query for them would read the keys of the job twice.
    finish=lambda rows: rows.on_conflict_do_nothing(index_elements=["job_id", "key"]),
)


def enqueue_items(connection: Connection, discovered: Discovered) -> int | None:
    """Enqueue new items in the caller's transaction; return how many items the job has now.

    None when there is no limit and discovery continues: counting takes longer with every item.
    """
    job, limit = discovered.job, discovered.limit
    lock_job(connection, job)  # keys and the limit are counted by one transaction at a time
    found: dict[str, Item] = {}
    for item in discovered.items:
        found.setdefault(sanitize_key(item.key), item)
    found = _without_excess(connection, discovered, found)
    rows = [
        {
            "job_id": job,
            "key": key,
            "url": sanitize_text(item.url),
            "data": as_sanitized_json(item.data),
            "priority": max(-_MAX_PRIORITY, min(item.priority, _MAX_PRIORITY)),
            "state": ItemState.QUEUED,
            "due_at": 0.0,
            "tries": 0,
            "lease_token": 0,
            "domain": sanitize_key(origin_of(item.url)[1]),
        }
        for key, item in found.items()
    ]
    new = _INSERT.run(connection, rows)
    if new:
        parent = discovered.parent
        event = event_row(job, discovered.at, "items.enqueued", key=parent, items=new)
        append_events(connection, [event])
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
    total = _count_items(connection, job)
    if discovered.is_last:
        data: dict[str, Any] = {"items": total}
        if discovered.shortfall is not None:
            data["shortfall"] = discovered.shortfall
        append_events(connection, [event_row(job, discovered.at, "job.discovered", **data)])
    return total


def _without_excess(
    connection: Connection, discovered: Discovered, found: dict[str, Item]
) -> dict[str, Item]:
    """Return the items that are new, within their quotas and within the limit of the job."""
    job, limit = discovered.job, discovered.limit
    has_quotas = have_quotas(found, discovered.spent)
    if limit is not None or has_quotas:
        _remove_known(connection, job, found)
    if has_quotas:
        exhausted = QuotaCounter(connection, job, found, discovered.spent).admit()
        at, parent = discovered.at, discovered.parent
        append_events(connection, [exhausted_event(job, at, one, parent) for one in exhausted])
    if limit is not None:
        room = max(0, limit - _count_items(connection, job))
        found = dict(list(found.items())[:room])
    return found


def _count_items(connection: Connection, job: str) -> int:
    return connection.scalar(select(func.count()).where(items.c.job_id == job)) or 0


def _remove_known(connection: Connection, job: str, found: dict[str, Item]) -> None:
    keys = list(found)
    for start in range(0, len(keys), _MAX_LOOKUP):
        some = keys[start : start + _MAX_LOOKUP]
        known = select(items.c.key).where(items.c.job_id == job, items.c.key.in_(some))
        for key in connection.scalars(known).all():
            del found[key]
