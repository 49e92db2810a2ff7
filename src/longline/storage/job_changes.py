"""What a job has changed: the records that are gone, and the event that lists all changes.

A record is gone when its page does not exist, or when it is unlisted: a job that has found all
items lacks an item that the last such job of the same identity had. Whether a job has found all
items is stored when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, Row, Select, and_, exists, func, or_, select, update

from longline.core.errors import FailureKind
from longline.core.json import diff_json
from longline.core.model import ItemState, JobState
from longline.storage.database import defer_write
from longline.storage.events.events import append_events, event_row
from longline.storage.records import versions_by_id
from longline.storage.schema import events, items, jobs, records

_ENDED = (JobState.COMPLETE, JobState.PARTIAL, JobState.FAILED)
_BAD = (ItemState.FAILED, ItemState.QUARANTINED)
_MISSING = (404, 410)
_WITH_DATA = (JobState.COMPLETE, JobState.PARTIAL)
_ENDS = tuple(f"job.{state}" for state in _ENDED)
RECORD_CHANGES = {
    "record.changed": "changed",
    "record.created": "new",
    "record.gone": "gone",
    "record.returned": "returned",
}
"""The types of events that change records, and the name of each change."""
_MOST_LISTED = 20  # records of each kind
_LONGEST_VALUE = 300  # characters
_LARGEST_LIST = 12_000  # bytes; a message of a webhook may have 20,000


def is_incremental(settings: Mapping[str, Any]) -> bool:
    """Return whether a job requests only what has changed, by its manifest."""
    endpoints = (settings.get("manifest") or {}).get("endpoints")
    return isinstance(endpoints, Mapping) and any(
        isinstance(one, Mapping) and bool(one.get("incremental")) for one in endpoints.values()
    )


def was_given_items(connection: Connection, job: str) -> bool:
    """Return whether all items were queued before the job started, and none discovered."""
    query = select(func.min(events.c.id)).where(events.c.job_id == job)
    discovered = connection.scalar(query.where(events.c.type == "job.discovered"))
    started = connection.scalar(query.where(events.c.type == "job.started"))
    return discovered is not None and started is not None and discovered < started


def last_inventory(connection: Connection, job: Row[Any]) -> str | None:
    """Return the last job before this one, of the same identity, that has found all items."""
    is_before = or_(
        jobs.c.created_at < job.created_at,
        and_(jobs.c.created_at == job.created_at, jobs.c.id < job.id),
    )
    query = (
        select(jobs.c.id)
        .where(jobs.c.identity == job.identity, is_before)
        .where(jobs.c.found_all.is_(True), jobs.c.state.in_(_ENDED))
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(1)
    )
    found: str | None = connection.scalar(query)
    return found


def lacks_steps(connection: Connection, job: str, inventory: str | None) -> bool:
    """Return whether items may be missing because those that lead to them were not collected."""
    is_bad = exists().where(items.c.job_id == job, items.c.state.in_(_BAD))
    # Skipped without an attempt, since the job was resumed from a later item.
    is_untried = (items.c.state == ItemState.SKIPPED) & items.c.finished_at.is_(None)
    leads = exists().where(
        events.c.job_id.in_([job] if inventory is None else [job, inventory]),
        events.c.type == "items.enqueued",
        events.c.key.is_not(None),  # an item has found them
    )
    untried = exists().where(items.c.job_id == job, is_untried)
    return bool(connection.scalar(select(and_(leads, or_(is_bad, untried)))))


def mark_gone(connection: Connection, job: Row[Any], at: float, inventory: str | None) -> None:
    """Mark the records that are gone by the end of a job, in its transaction.

    `inventory` is the earlier job to compare with; None if this one has not found all items.
    """
    missing = select(items.c.key).where(
        items.c.job_id == job.id,
        items.c.state == ItemState.SKIPPED,
        items.c.kind == FailureKind.GONE,
    )
    for status in _MISSING:
        _mark(connection, job, at, missing.where(items.c.status == status), status=status)
    if inventory is not None:
        listed = items.alias("listed")
        is_listed = exists().where(listed.c.job_id == job.id, listed.c.key == items.c.key)
        _mark(
            connection, job, at, select(items.c.key).where(items.c.job_id == inventory, ~is_listed)
        )


def _mark(connection: Connection, job: Row[Any], at: float, keys: Select[Any], **data: int) -> None:
    marked = connection.execute(
        update(records)
        .where(
            records.c.source == job.source,
            records.c.key.in_(keys),
            records.c.gone_at.is_(None),
            # Another job may have seen it meanwhile.
            records.c.seen_at < (job.started_at or job.created_at),
        )
        .values(gone_at=at)
        .returning(records.c.key, records.c.version)
    )
    happened = [
        event_row(job.id, at, "record.gone", key=key, source=job.source, version=version, **data)
        for key, version in sorted(marked.all())
    ]
    append_events(connection, happened)


# ---------------- The event that lists the changes


def append_changes(connection: Connection, job: Row[Any], at: float, state: JobState) -> None:
    """Append `source.changed` if a job that ends has changed records of its source.

    The first run of a source with data is what later ones are compared with; it has no such event.
    """
    # After the events of this transaction, which are inserted just before its commit.
    defer_write(connection, _append_all, (job, at, state), is_last=True)


def _append_all(
    connection: Connection, several: Sequence[tuple[Row[Any], float, JobState]]
) -> None:
    rows = [
        event_row(job.id, at, "source.changed", source=job.source, state=state, **found)
        for job, at, state in several
        if _has_earlier_run(connection, job)
        if (found := _summary(connection, job)) is not None
    ]
    append_events(connection, rows)


def _has_earlier_run(connection: Connection, job: Row[Any]) -> bool:
    is_earlier = exists().where(
        jobs.c.source == job.source,
        jobs.c.id != job.id,
        jobs.c.created_at <= job.created_at,
        jobs.c.state.in_(_WITH_DATA),
    )
    return bool(connection.scalar(select(is_earlier)))


def _summary(connection: Connection, job: Row[Any]) -> dict[str, Any] | None:
    """Return counts and first changes since the job last ended; None without a change."""
    of_job = events.c.job_id == job.id
    ends = select(events.c.id).where(of_job, events.c.type.in_(_ENDS))
    # The first is this end.
    previous = connection.scalar(ends.order_by(events.c.id.desc()).offset(1).limit(1)) or 0
    wanted = (of_job, events.c.type.in_(RECORD_CHANGES), events.c.id > previous)
    counted = connection.execute(
        select(events.c.type, func.count(events.c.key.distinct()))
        .where(*wanted)
        .group_by(events.c.type)
    )
    found: dict[str, int] = dict(counted.all())
    if not found:
        return None
    changes: list[dict[str, Any]] = []
    for name, change in RECORD_CHANGES.items():
        query = select(events.c.key, events.c.data).where(*wanted, events.c.type == name)
        rows = connection.execute(query.order_by(events.c.id).limit(_MOST_LISTED)).all()
        versions = {row.key: row.data["version"] for row in rows}
        changes += _describe(connection, job, change, versions)
    listed = _within_size(changes)
    return {
        **{change: found.get(name, 0) for name, change in RECORD_CHANGES.items()},
        "records": listed,
        "unlisted": sum(found.values()) - len(listed),
    }


def _describe(
    connection: Connection, job: Row[Any], change: str, versions: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return records with the fields that differ from before; of gone ones, all they had."""
    query = select(records.c.id, records.c.key, records.c.url).where(
        records.c.source == job.source, records.c.key.in_(versions)
    )
    rows = {row.key: row for row in connection.execute(query)}
    past = versions_by_id(connection, [row.id for row in rows.values()])
    volatile = (job.settings.get("manifest") or {}).get("volatile") or ()
    described = []
    for key, version in versions.items():
        if key not in rows:
            continue
        by_number = {one.version: one.data for one in past[rows[key].id]}
        new = {} if change == "gone" else by_number.get(version, {})
        old = by_number.get(version - (change == "changed"), {}) if change != "new" else {}
        diffs = diff_json(old, new, ignored=volatile)
        fields = [
            {"field": diff.field, **{n: _clipped(v) for n, v in diff.values.items()}}
            for diff in diffs
        ]
        one = {"key": key, "url": rows[key].url, "change": change, "fields": fields}
        described.append(one)
    return described


def _clipped(value: Any) -> Any:
    """Return a value, or the beginning of its text if it is long."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return value if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _within_size(changes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    size, listed = 0, []
    for one in changes:
        size += len(orjson.dumps(one, default=str))
        if size > _LARGEST_LIST:
            break
        listed.append(one)
    return listed
