"""The end of one try at an item: item, record, new items, statistics, events, all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, bindparam, case, null, select, update
from sqlalchemy.exc import StatementError

from longline.core.errors import FailureKind, LeaseLost
from longline.core.model import Item, ItemState, Lease, Outcome, OutcomeAction, Usage
from longline.pipeline.material import pack_raw
from longline.storage.bulk import BulkChange, BulkUpdate, as_json
from longline.storage.events import EventRow, add_statistics, append_events, event_row, usage_events
from longline.storage.queue.enqueue import Discovered, add
from longline.storage.queue.failures import note_failures
from longline.storage.records import store_records
from longline.storage.schema import items, records

_STATE_OF = {
    OutcomeAction.SKIP: ItemState.SKIPPED,
    OutcomeAction.FAIL: ItemState.FAILED,
    OutcomeAction.QUARANTINE: ItemState.QUARANTINED,
    OutcomeAction.DEFER: ItemState.QUEUED,
}


@dataclass(frozen=True, slots=True)
class Completion:
    """All that one try at an item changes; committed whole or not at all.

    `limit` is that of the job, which `found` items count towards too.
    """

    lease: Lease
    outcome: Outcome
    at: float
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    found: Sequence[Item] = ()
    limit: int | None = None


_HELD = (
    select(items.c.id, items.c.lease_token)
    .where(
        items.c.id.in_(bindparam("b_ids", expanding=True)),
        items.c.state == ItemState.LEASED,
    )
    .order_by(items.c.id)  # locked in the same order by all
    .with_for_update()  # ignored by SQLite, whose one writer holds the lock already
)
_SETTLE = BulkChange(
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


def complete_all(connection: Connection, finishes: list[Completion]) -> list[ItemState | LeaseLost]:
    """Commit the ends of several tries; say of each the new state, or LeaseLost."""
    asked = {"b_ids": [finish.lease.id for finish in finishes]}
    held = {row.id: row.lease_token for row in connection.execute(_HELD, asked)}
    is_held = [_redeem(held, finish.lease) for finish in finishes]
    valid = [finish for finish, is_valid in zip(finishes, is_held, strict=True) if is_valid]
    records = [
        (finish.outcome.record, finish.lease.job, finish.at)
        for finish in valid
        if finish.outcome.record is not None
    ]
    changed = iter(store_records(connection, records))
    states = {finish.lease.id: _new_state(finish, changed) for finish in valid}
    _SETTLE.run(connection, [_settled(finish, states[finish.lease.id]) for finish in valid])
    _queue_found(connection, valid)
    append_events(connection, [one for finish in valid for one in _told(finish, states)])
    note_failures(connection, [_tried(finish) for finish in valid])
    add_statistics(connection, [(finish.lease.job, _spent(finish)) for finish in valid])
    return [
        states[finish.lease.id]
        if is_valid
        else LeaseLost(finish.lease.item.key, finish.lease.token)
        for finish, is_valid in zip(finishes, is_held, strict=True)
    ]


def _redeem(held: dict[int, int], lease: Lease) -> bool:
    """Use up a lease; False when it is not the one that counts, or was used before."""
    if held.get(lease.id) != lease.token:
        return False
    del held[lease.id]
    return True


def _new_state(finish: Completion, changed: Any) -> ItemState:
    if finish.outcome.record is not None:
        return ItemState.STORED if next(changed) else ItemState.UNCHANGED
    return _STATE_OF[finish.outcome.action]


def _settled(finish: Completion, state: ItemState) -> dict[str, Any]:
    outcome = finish.outcome
    return {
        "id": finish.lease.id,
        "state": state,
        "kind": outcome.kind,
        "reason": outcome.reason,
        "raw": None if outcome.raw is None or outcome.record else _kept(outcome.raw),
        "due": outcome.due or 0.0,
        "seconds": finish.seconds,
        "finished": None if state is ItemState.QUEUED else finish.at,
        "status": finish.usage.status,
        "requests": finish.usage.requests,
    }


def _tried(finish: Completion) -> tuple[str, str, int, Usage]:
    lease = finish.lease
    return lease.job, lease.item.key, lease.tries, finish.usage


def _told(finish: Completion, states: dict[int, ItemState]) -> list[EventRow]:
    outcome, lease = finish.outcome, finish.lease
    state = states[lease.id]
    details: dict[str, Any] = {"seconds": round(finish.seconds, 4)}
    if outcome.kind:
        details["failure"] = outcome.kind
    if outcome.reason:
        details["reason"] = outcome.reason
    if outcome.due:
        details["due"] = outcome.due
    name = "parked" if state is ItemState.QUEUED else state.value
    ended = event_row(lease.job, finish.at, f"item.{name}", key=lease.item.key, **details)
    return [*usage_events(lease.job, lease.item.key, finish.at, finish.usage), ended]


def spent_on(usage: Usage) -> dict[str, float]:
    """Return what a try has cost, for the statistics of its job."""
    spent = usage.as_counts()
    spent["item_requests"] = usage.requests  # apart from those of discovery
    return spent


def _spent(finish: Completion) -> dict[str, float]:
    spent = spent_on(finish.usage)
    if finish.outcome.action is not OutcomeAction.DEFER:
        spent["item_seconds"] = finish.seconds
    return spent


def unstorable(finish: Completion, error: Exception) -> Completion:
    """Return the try as one that is quarantined because no database can hold what it made."""
    cause = error.orig if isinstance(error, StatementError) else error
    outcome = Outcome(
        OutcomeAction.QUARANTINE,
        kind=FailureKind.INVALID,
        reason=f"it cannot be stored: {cause}",
        raw=pack_raw(finish.outcome.raw),
    )
    return replace(finish, outcome=outcome, found=())


def _kept(raw: Mapping[str, Any]) -> str | None:
    """Return what a try was made of as JSON; what no database holds as it is, is packed."""
    try:
        return as_json(raw)
    except TypeError:
        kept = pack_raw(raw)
        return None if kept is None else as_json(kept)


def _queue_found(connection: Connection, finishes: list[Completion]) -> None:
    for finish in finishes:
        if finish.found:
            new = Discovered(finish.lease.job, finish.found, finish.at, limit=finish.limit)
            add(connection, new)


# ---------------- Sightings: when a site was seen as a record says, where that is not when it was


@dataclass(frozen=True, slots=True)
class Sighting:
    """The moment at which a record was seen at its site."""

    source: str
    key: str
    at: float


_SEE = BulkUpdate(
    update(records)
    .where(records.c.source == bindparam("b_source"), records.c.key == bindparam("b_key"))
    .values(
        seen_at=bindparam("b_seen"),
        first_seen_at=case(
            (records.c.first_seen_at > bindparam("b_seen"), bindparam("b_seen")),
            else_=records.c.first_seen_at,
        ),
    )
)


def date_back(connection: Connection, sightings: Iterable[Sighting]) -> None:
    """Let records say when they were seen.

    `changed_at` stays the moment from which they are here: whoever asks for what is new since
    then must find them.
    """
    _SEE.run(
        connection,
        [{"b_source": one.source, "b_key": one.key, "b_seen": one.at} for one in sightings],
    )
