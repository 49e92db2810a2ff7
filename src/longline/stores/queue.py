"""The items of a job: queued once, leased to one worker at a time, finished exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, bindparam, func, null, select, update
from sqlalchemy.exc import StatementError

from longline.errors import FailureKind, LeaseLost
from longline.model import FINAL_STATES, Account, Item, ItemState, Lease, Outcome, Verdict
from longline.stores.bulk import BulkInsert, BulkUpdate, as_json
from longline.stores.database import Database
from longline.stores.journal import Fact, add_up, append, fact
from longline.stores.leases import owners, reclaim, release, renew
from longline.stores.records import store_records
from longline.stores.schema import items, jobs

_STATE_OF = {
    Verdict.SKIP: ItemState.SKIPPED,
    Verdict.FAIL: ItemState.FAILED,
    Verdict.QUARANTINE: ItemState.QUARANTINED,
    Verdict.LATER: ItemState.QUEUED,
}
_LARGEST_LOOKUP = 10_000  # keys; a stock SQLite takes 32,766 variables in a statement


@dataclass(frozen=True, slots=True)
class Finish:
    """All that one try at an item changes; committed whole or not at all.

    `limit` is that of the job, which `found` items count towards too.
    """

    lease: Lease
    outcome: Outcome
    at: float
    seconds: float = 0.0
    account: Account = field(default_factory=Account)
    found: Sequence[Item] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Discovered:
    """Items found by discovery, and how far it has come with them."""

    job: str
    items: Sequence[Item]
    at: float
    cursor: Mapping[str, Any] | None = None
    is_last: bool = False
    limit: int | None = None
    account: Account = field(default_factory=Account)


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's wish for items."""

    job: str
    owner: str
    count: int
    at: float
    until: float


class Queue:
    """The items of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, discovered: Discovered) -> int:
        """Queue what is new of these items, with the cursor; return how many the job has now."""
        total: int = await self._database.write(_add, discovered)
        return total

    async def lease(self, claim: Claim) -> list[Lease]:
        """Give items that are due to a worker, highest priority first; none to two workers."""
        leases: list[Lease] = await self._database.write(_lease, claim)
        return leases

    async def finish(self, finish: Finish) -> ItemState:
        """Commit the end of one try: item, record, new items, statistics, event.

        Raises:
            LeaseLost: another worker has the item; nothing was committed.
        """
        (end,) = await self.finish_all([finish])
        if isinstance(end, LeaseLost):
            raise end
        return end

    async def finish_all(self, finishes: list[Finish]) -> list[ItemState | LeaseLost]:
        """Commit the ends of several tries together; say of each the new state, or LeaseLost.

        What no database can hold (half a surrogate pair, say) is quarantined with the reason, and
        takes none of the others along.
        """
        try:
            ends: list[ItemState | LeaseLost] = await self._database.write(_finish, finishes)
        except (StatementError, ValueError, TypeError, OverflowError) as error:
            if len(finishes) > 1:
                return [end for one in finishes for end in await self.finish_all([one])]
            ends = await self._database.write(_finish, [_unstorable(finishes[0], error)])
        return ends

    async def release(self, leases: Sequence[Lease]) -> None:
        """Put back items nobody has begun to work on."""
        await self._database.write(release, leases)

    async def renew(self, job: str, owner: str, until: float) -> None:
        """Keep all leases of a living worker."""
        await self._database.write(renew, (job, owner, until))

    async def reclaim(self, job: str, at: float, dead: Sequence[str] = ()) -> int:
        """Take back expired leases, and at once those of owners known to be dead."""
        count: int = await self._database.write(reclaim, (job, at, dead))
        return count

    async def owners(self, job: str) -> list[str]:
        """Return who holds leases of this job, or its discovery."""
        return await self._database.read(lambda connection: owners(connection, job))

    async def counts(self, job: str) -> dict[ItemState, int]:
        """Return how many items are in each state; the truth that all progress is read from."""
        return await self._database.read(lambda connection: counts(connection, job))

    async def next_due(self, job: str) -> float | None:
        """Return when the next queued item is due; None when none is queued."""
        query = select(func.min(items.c.due_at)).where(
            items.c.job_id == job, items.c.state == ItemState.QUEUED
        )
        due: float | None = await self._database.read(lambda connection: connection.scalar(query))
        return due

    async def skip_before(self, job: str, key: str, reason: str) -> int | None:
        """Skip what is unfinished and was found before `key`; None when there is no such item."""
        count: int | None = await self._database.write(_skip_before, (job, key, reason))
        return count

    async def finished(self, job: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the finished items as rows, in the order in which they were found."""
        query = (
            select(items)
            .where(items.c.job_id == job, items.c.state.in_(FINAL_STATES))
            .order_by(items.c.id)
            .limit(limit)
        )
        return await self._database.read(
            lambda connection: [dict(row) for row in connection.execute(query).mappings()]
        )


def counts(connection: Connection, job: str) -> dict[ItemState, int]:
    """Return how many items of a job are in each state, zeros included."""
    query = select(items.c.state, func.count()).where(items.c.job_id == job).group_by(items.c.state)
    found = {ItemState(state): count for state, count in connection.execute(query)}
    return {state: found.get(state, 0) for state in ItemState}


def _add(connection: Connection, discovered: Discovered) -> int:
    job = discovered.job
    fresh = _fresh(connection, job, discovered.items)
    total = connection.scalar(select(func.count()).where(items.c.job_id == job)) or 0
    room = len(fresh) if discovered.limit is None else max(0, discovered.limit - total)
    rows = [_queued(job, item) for item in fresh[:room]]
    if rows:
        _QUEUE_UP.run(connection, rows)
    changes: dict[str, Any] = {"is_discovered": True} if discovered.is_last else {}
    if discovered.cursor is not None:
        changes["cursor"] = dict(discovered.cursor)
    if changes:
        connection.execute(update(jobs).where(jobs.c.id == job).values(**changes))
    add_up(connection, [(job, discovered.account.as_counts())])
    if discovered.is_last:
        append(connection, [fact(job, discovered.at, "job.discovered", items=total + len(rows))])
    return total + len(rows)


def _fresh(connection: Connection, job: str, found: Sequence[Item]) -> list[Item]:
    """Return the items whose keys the job does not have, each key once."""
    fresh = {item.key: item for item in found}
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
        "key": item.key,
        "url": item.url,
        "data": as_json(item.data),
        "priority": item.priority,
        "state": ItemState.QUEUED,
        "due_at": 0.0,
        "tries": 0,
        "lease_token": 0,
    }


_QUEUE_UP = BulkInsert(
    items,
    ("job_id", "key", "url", "data", "priority", "state", "due_at", "tries", "lease_token"),
)


# Statements of the busy path are made once: building one costs more than running it.
_FOLLOWING = (
    select(items.c.id)
    .where(
        items.c.job_id == bindparam("b_job"),
        items.c.state == ItemState.QUEUED,
        items.c.due_at <= bindparam("b_at"),
    )
    .order_by(items.c.priority.desc(), items.c.due_at)
    .limit(bindparam("b_count"))
)
_TAKE = (
    update(items)
    .where(items.c.id.in_(_FOLLOWING))
    .values(
        state=ItemState.LEASED,
        lease_owner=bindparam("b_owner"),
        lease_token=items.c.lease_token + 1,
        lease_until=bindparam("b_until"),
        tries=items.c.tries + 1,
    )
    .returning(
        items.c.id,
        items.c.key,
        items.c.url,
        items.c.priority,
        items.c.data,
        items.c.lease_token,
        items.c.tries,
    )
)


def _lease(connection: Connection, claim: Claim) -> list[Lease]:
    wish = {
        "b_job": claim.job,
        "b_owner": claim.owner,
        "b_count": claim.count,
        "b_at": claim.at,
        "b_until": claim.until,
    }
    rows = sorted(connection.execute(_TAKE, wish), key=lambda row: (-row.priority, row.id))
    return [
        Lease(
            id=row.id,
            job=claim.job,
            item=Item(row.key, row.url, row.priority, row.data),
            token=row.lease_token,
            tries=row.tries,
        )
        for row in rows
    ]


_HELD = (
    select(items.c.id, items.c.lease_token)
    .where(
        items.c.id.in_(bindparam("b_ids", expanding=True)),
        items.c.state == ItemState.LEASED,
    )
    .with_for_update()  # ignored by SQLite, whose one writer holds the lock already
)
_SETTLE = BulkUpdate(
    update(items)
    .where(items.c.id == bindparam("b_id"))
    .values(
        state=bindparam("b_state"),
        kind=bindparam("b_kind"),
        reason=bindparam("b_reason"),
        raw=bindparam("b_raw", type_=items.c.raw.type),
        due_at=bindparam("b_due"),
        seconds=bindparam("b_seconds"),
        finished_at=bindparam("b_finished"),
        lease_owner=null(),
        lease_until=null(),
    )
)


def _finish(connection: Connection, finishes: list[Finish]) -> list[ItemState | LeaseLost]:
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
    append(connection, [_told(finish, states[finish.lease.id]) for finish in valid])
    add_up(connection, [(finish.lease.job, _spent(finish)) for finish in valid])
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


def _new_state(finish: Finish, changed: Any) -> ItemState:
    if finish.outcome.record is not None:
        return ItemState.STORED if next(changed) else ItemState.UNCHANGED
    return _STATE_OF[finish.outcome.verdict]


def _settled(finish: Finish, state: ItemState) -> dict[str, Any]:
    outcome = finish.outcome
    return {
        "b_id": finish.lease.id,
        "b_state": state,
        "b_kind": outcome.kind,
        "b_reason": outcome.reason,
        "b_raw": None if outcome.raw is None else as_json(outcome.raw),
        "b_due": outcome.due or 0.0,
        "b_seconds": finish.seconds,
        "b_finished": None if state is ItemState.QUEUED else finish.at,
    }


def _told(finish: Finish, state: ItemState) -> Fact:
    outcome = finish.outcome
    details: dict[str, Any] = {"seconds": round(finish.seconds, 4)}
    if outcome.kind:
        details["failure"] = outcome.kind
    if outcome.reason:
        details["reason"] = outcome.reason
    if outcome.due:
        details["due"] = outcome.due
    name = "parked" if state is ItemState.QUEUED else state.value
    return fact(finish.lease.job, finish.at, f"item.{name}", key=finish.lease.item.key, **details)


def _spent(finish: Finish) -> dict[str, float]:
    spent = finish.account.as_counts()
    spent["item_requests"] = finish.account.requests  # apart from those of discovery
    if finish.outcome.verdict is not Verdict.LATER:
        spent["item_seconds"] = finish.seconds
    return spent


def _unstorable(finish: Finish, error: Exception) -> Finish:
    cause = error.orig if isinstance(error, StatementError) else error
    outcome = Outcome(
        Verdict.QUARANTINE, kind=FailureKind.INVALID, reason=f"it cannot be stored: {cause}"
    )
    return replace(finish, outcome=outcome, found=())


def _queue_found(connection: Connection, finishes: list[Finish]) -> None:
    for finish in finishes:
        if finish.found:
            new = Discovered(finish.lease.job, finish.found, finish.at, limit=finish.limit)
            _add(connection, new)


def _skip_before(connection: Connection, argument: tuple[str, str, str]) -> int | None:
    job, key, reason = argument
    place = connection.scalar(select(items.c.id).where(items.c.job_id == job, items.c.key == key))
    if place is None:
        return None
    skipped = connection.execute(
        update(items)
        .where(
            items.c.job_id == job,
            items.c.state.not_in(FINAL_STATES),  # leased too: a killed worker leaves such behind
            items.c.id < place,
        )
        .values(state=ItemState.SKIPPED, reason=reason, lease_owner=None, lease_until=None)
    )
    return skipped.rowcount
