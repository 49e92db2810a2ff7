"""Commit outcomes: item, record, new items, statistics and events, all or nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, null, select, update
from sqlalchemy.exc import StatementError

from longline.core.errors import FailureKind, LeaseLost
from longline.core.model import ItemState, Lease, Outcome, OutcomeAction, Usage
from longline.pipeline.pipeline import pack_raw
from longline.storage.backends import BulkChange, as_json
from longline.storage.events.events import (
    EventRow,
    add_statistics,
    append_events,
    event_row,
    usage_events,
)
from longline.storage.queue.enqueue import Discovered, enqueue_items
from longline.storage.queue.failures import note_failures
from longline.storage.records import store_records
from longline.storage.schema import items, jobs

T = TypeVar("T")
LeasedOutcome = tuple[Lease, Outcome]
_STATE_OF = {
    OutcomeAction.SKIP: ItemState.SKIPPED,
    OutcomeAction.FAIL: ItemState.FAILED,
    OutcomeAction.QUARANTINE: ItemState.QUARANTINED,
    OutcomeAction.DEFER: ItemState.QUEUED,
}
_HELD = (
    select(items.c.id, items.c.lease_token)
    .where(
        items.c.id.in_(bindparam("b_ids", expanding=True)),
        items.c.state == ItemState.LEASED,
    )
    .order_by(items.c.id)  # every transaction locks in the same order
    .with_for_update()  # ignored by SQLite, whose one writer holds the lock already
)
_COMPLETE = BulkChange(
    {
        "id": items.c.id.type,
        "state": items.c.state.type,
        "kind": items.c.kind.type,
        "reason": items.c.reason.type,
        "raw": items.c.raw.type,
        "due": items.c.due_at.type,
        "seconds": items.c.seconds.type,
        "finished": items.c.finished_at.type,
        "status": items.c.status.type,
        "requests": items.c.requests.type,
    },
    lambda given: (
        update(items)
        .where(items.c.id == given.id)
        .values(
            state=given.state,
            kind=given.kind,
            reason=given.reason,
            raw=given.raw,
            due_at=given.due,
            seconds=given.seconds,
            finished_at=given.finished,
            status=given.status,
            requests=items.c.requests + given.requests,
            lease_owner=null(),
            lease_until=null(),
        )
    ),
)


def complete_all(
    connection: Connection,
    attempts: Sequence[LeasedOutcome],
    before: Mapping[int, ItemState] = MappingProxyType({}),
) -> list[ItemState | LeaseLost]:
    """Commit outcomes in the caller's transaction; return the new state of each item.

    LeaseLost for an outcome whose token is outdated or was used before: nothing of it is written.
    `before` has the states, by id, of items that are processed again without a request.
    """
    rows = connection.execute(_HELD, {"b_ids": [lease.id for lease, _ in attempts]})
    tokens = dict(rows.all())
    is_valid = []
    for lease, _ in attempts:
        is_valid.append(tokens.get(lease.id) == lease.token)
        if is_valid[-1]:
            del tokens[lease.id]
    valid = [one for one, is_held in zip(attempts, is_valid, strict=True) if is_held]
    states = iter(_write_outcomes(connection, valid, before))
    return [
        next(states) if is_held else LeaseLost(lease.item.key, lease.token)
        for (lease, _), is_held in zip(attempts, is_valid, strict=True)
    ]


def _write_outcomes(
    connection: Connection, attempts: Sequence[LeasedOutcome], before: Mapping[int, ItemState]
) -> list[ItemState]:
    records = [
        (outcome.record, lease.job, outcome.at)
        for lease, outcome in attempts
        if outcome.record is not None
    ]
    changed = iter(store_records(connection, records, are_seen=not before))
    states = [
        _STATE_OF[outcome.action]
        if outcome.record is None
        else ItemState.STORED
        if next(changed)
        else ItemState.UNCHANGED
        for _, outcome in attempts
    ]
    _COMPLETE.run(
        connection,
        [
            _item_row(lease, outcome, state)
            for (lease, outcome), state in zip(attempts, states, strict=True)
        ],
    )
    happened: list[EventRow] = []
    for (lease, outcome), state in zip(attempts, states, strict=True):
        if outcome.found or outcome.spent:
            settings = connection.scalar(select(jobs.c.settings).where(jobs.c.id == lease.job))
            limit = (settings or {}).get("limit")
            found, parent = outcome.found, lease.item.key
            added = Discovered(
                lease.job, found, outcome.at, limit=limit, parent=parent, spent=outcome.spent
            )
            enqueue_items(connection, added)
        happened += _events(lease, outcome, state, before.get(lease.id))
    append_events(connection, happened)
    failed = [
        (lease.job, lease.item.key, lease.tries, outcome.usage)
        for lease, outcome in attempts
        if outcome.usage.failures
    ]
    if failed:
        note_failures(connection, failed)
    add_statistics(
        connection,
        [
            (lease.job, _cost(outcome, state))
            for (lease, outcome), state in zip(attempts, states, strict=True)
        ],
    )
    return states


def _item_row(lease: Lease, outcome: Outcome, state: ItemState) -> dict[str, Any]:
    raw = None
    if outcome.raw is not None and outcome.record is None:
        try:
            raw = as_json(outcome.raw)
        except TypeError:  # a value that JSON cannot hold
            packed = pack_raw(outcome.raw)
            raw = None if packed is None else as_json(packed)
    return {
        "id": lease.id,
        "state": state,
        "kind": outcome.kind,
        "reason": outcome.reason,
        "raw": raw,
        "due": outcome.due or 0.0,
        "seconds": outcome.seconds,
        "finished": None if state is ItemState.QUEUED else outcome.at,
        "status": outcome.usage.status,
        "requests": outcome.usage.requests,
    }


def _events(
    lease: Lease, outcome: Outcome, state: ItemState, before: ItemState | None
) -> list[EventRow]:
    data: dict[str, Any] = {"seconds": round(outcome.seconds, 4)}
    if outcome.usage.requests:
        data["requests"] = outcome.usage.requests
    if before:
        data["before"] = before
    if outcome.kind:
        data["failure"] = outcome.kind
    if outcome.reason:
        data["reason"] = outcome.reason
    if outcome.due:
        data["due"] = outcome.due
    name = "deferred" if state is ItemState.QUEUED else state.value
    key = lease.item.key
    completed = event_row(lease.job, outcome.at, f"item.{name}", key=key, **data)
    return [*usage_events(lease.job, key, outcome.at, outcome.usage), completed]


def cost_of(usage: Usage) -> dict[str, float]:
    """Return the cost of an attempt for the statistics of its job."""
    cost = usage.as_counts()
    cost["item_requests"] = usage.requests  # without those of discovery
    return cost


def _cost(outcome: Outcome, state: ItemState) -> dict[str, float]:
    cost = cost_of(outcome.usage)
    cost[f"items/{'deferred' if state is ItemState.QUEUED else state}"] = 1
    if outcome.action is not OutcomeAction.DEFER:
        cost["item_seconds"] = outcome.seconds
    return cost


async def complete_storable(
    complete: Callable[[list[tuple[T, Outcome]]], Awaitable[list[ItemState | LeaseLost]]],
    attempts: list[tuple[T, Outcome]],
) -> list[ItemState | LeaseLost]:
    """Commit outcomes together; one that no database can store is quarantined alone."""
    try:
        return await complete(attempts)
    except (StatementError, ValueError, TypeError, OverflowError) as error:
        if len(attempts) > 1:
            return [end for one in attempts for end in await complete_storable(complete, [one])]
        ((attempted, outcome),) = attempts
        return await complete([(attempted, _quarantine_unstorable(outcome, error))])


def _quarantine_unstorable(outcome: Outcome, error: Exception) -> Outcome:
    """Return the outcome of an attempt whose result no database can store."""
    cause = error.orig if isinstance(error, StatementError) else error
    return replace(
        outcome,
        action=OutcomeAction.QUARANTINE,
        record=None,
        kind=FailureKind.INVALID,
        reason=f"it cannot be stored: {cause}",
        due=None,
        raw=pack_raw(outcome.raw),
        found=(),
        spent=(),
    )
