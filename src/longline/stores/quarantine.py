"""Items whose data did not fit: what they were made of, and their way out without a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, null, or_, select, update
from sqlalchemy.exc import StatementError

from longline.errors import BadOption, FailureKind, LeaseLost
from longline.model import Item, ItemState, JobState, Lease, Outcome, Verdict
from longline.stores.bulk import BulkUpdate
from longline.stores.database import Database
from longline.stores.finishing import Finish, finish_all, unstorable
from longline.stores.journal import append, fact
from longline.stores.schema import items, jobs, records

_ENDED = (JobState.COMPLETE, JobState.PARTIAL, JobState.FAILED)
_EXAMPLES = 3
# A bug that a source met after its last request left what the record was to be made of, too.
_HELD = or_(
    items.c.state == ItemState.QUARANTINED,
    and_(items.c.state == ItemState.FAILED, items.c.raw.is_not(null())),
)


@dataclass(frozen=True, slots=True)
class Held:
    """An item in quarantine; `raw` is what it was made of, `token` that of its last lease."""

    id: int
    job: str
    item: Item
    state: ItemState
    kind: str | None
    reason: str
    raw: Any
    token: int
    tries: int
    finished_at: float


@dataclass(frozen=True, slots=True)
class Group:
    """Items of one job that are held for the same reason; `keys` are the first of them."""

    job: str
    kind: str | None
    reason: str
    count: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mended:
    """An item in quarantine, and what came of it when it was looked at again."""

    held: Held
    outcome: Outcome


class Quarantine:
    """The quarantined items of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def groups(
        self, job: str | None = None, *, kind: FailureKind | None = None, text: str = ""
    ) -> list[Group]:
        """Return the items by reason, the most frequent first.

        Args:
            job: only of this job.
            kind: only of this kind of failure.
            text: only reasons that hold this text, whatever the case of its letters.
        """
        wanted = [_HELD]
        if job is not None:
            wanted.append(items.c.job_id == job)
        if kind is not None:
            wanted.append(items.c.kind == kind)
        found = await self._database.read(lambda connection: _groups(connection, wanted))
        return [group for group in found if text.casefold() in group.reason.casefold()]

    async def get(self, job: str, key: str) -> Held:
        """Return one item.

        Raises:
            BadOption: there is none of this key in quarantine.
        """
        found = await self.held(job, keys=[key])
        if not found:
            raise BadOption("KEY", f"nothing called {key!r} is quarantined in job {job}")
        return found[0]

    async def held(
        self, job: str, *, keys: Sequence[str] = (), after: int = 0, limit: int = 500
    ) -> list[Held]:
        """Return items in the order in which they were found, those after an id."""
        query = (
            select(items)
            .where(items.c.job_id == job, _HELD, items.c.id > after)
            .order_by(items.c.id)
            .limit(limit)
        )
        query = query.where(items.c.key.in_(list(keys))) if keys else query
        return await self._database.read(
            lambda connection: [_held(row) for row in connection.execute(query)]
        )

    async def reopen(self, job: str, at: float, count: int) -> None:
        """Open a job that has ended, so that it ends anew when its items have been looked at."""
        await self._database.write(_reopen, (job, at, count))

    async def settle(self, mended: Sequence[Mended], at: float) -> list[ItemState | LeaseLost]:
        """Commit what came of items: record, state, event and counts together, or nothing.

        Says of each the new state, or LeaseLost when somebody else was at it meanwhile. A record
        that a later job has stored since is not replaced by what is older: the item is skipped.
        """
        finishes = [_finish(one, at) for one in mended]
        return await self._settle(list(zip(mended, finishes, strict=True)))

    async def _settle(self, tries: list[tuple[Mended, Finish]]) -> list[ItemState | LeaseLost]:
        try:
            ends: list[ItemState | LeaseLost] = await self._database.write(_settle, tries)
        except (StatementError, ValueError, TypeError, OverflowError) as error:
            if len(tries) > 1:
                return [end for one in tries for end in await self._settle([one])]
            ((mended, finish),) = tries
            ends = await self._database.write(_settle, [(mended, unstorable(finish, error))])
        return ends


def _held(row: Row[Any]) -> Held:
    return Held(
        id=row.id,
        job=row.job_id,
        item=Item(row.key, row.url, row.priority, row.data),
        state=ItemState(row.state),
        kind=row.kind,
        reason=row.reason or "",
        raw=row.raw,
        token=row.lease_token,
        tries=row.tries,
        finished_at=row.finished_at or 0.0,
    )


def _groups(connection: Connection, wanted: Iterable[ColumnElement[bool]]) -> list[Group]:
    columns = (items.c.job_id, items.c.kind, items.c.reason, items.c.key, items.c.url)
    query = select(*columns).where(*wanted).order_by(items.c.id)
    counts: dict[tuple[str, str | None, str], int] = {}
    keys: dict[tuple[str, str | None, str], list[str]] = {}
    for job, kind, reason, key, url in connection.execute(query.execution_options(yield_per=1000)):
        group = (job, kind, _general(reason or "", key, url))
        counts[group] = counts.get(group, 0) + 1
        if counts[group] <= _EXAMPLES:
            keys.setdefault(group, []).append(key)
    found = [Group(*group, count, tuple(keys[group])) for group, count in counts.items()]
    return sorted(found, key=lambda one: (-one.count, one.job, one.reason))


def _general(reason: str, key: str, url: str) -> str:
    """Return a reason without the item it speaks of, so that others have the same one."""
    for beginning in (f"item {key}: ", f"{url}: "):
        reason = reason.removeprefix(beginning)
    return reason


def _reopen(connection: Connection, argument: tuple[str, float, int]) -> None:
    job, at, count = argument
    told = f"{count} quarantined items are looked at again"
    opened = connection.execute(
        update(jobs)
        .where(jobs.c.id == job, jobs.c.state.in_(_ENDED), jobs.c.is_discovered.is_(True))
        .values(state=JobState.PAUSED, reason=told, finished_at=None)
    )
    if opened.rowcount:
        append(connection, [fact(job, at, "job.reopened", items=count, replayed=True)])


def _finish(mended: Mended, at: float) -> Finish:
    held = mended.held
    lease = Lease(held.id, held.job, held.item, held.token + 1, held.tries)
    return Finish(lease, mended.outcome, at)


_CURRENT = (
    select(items.c.id, items.c.state, items.c.lease_token, items.c.seconds, items.c.status)
    .where(items.c.id.in_(bindparam("b_ids", expanding=True)))
    .with_for_update()
)
_TAKE = BulkUpdate(
    update(items)
    .where(items.c.id == bindparam("b_id"))
    .values(state=bindparam("b_state"), lease_token=bindparam("b_token"))
)
_RESTORE = BulkUpdate(
    update(items)
    .where(items.c.id == bindparam("b_id"))
    .values(seconds=bindparam("b_seconds"), status=bindparam("b_status"))
)


def _settle(
    connection: Connection, tries: list[tuple[Mended, Finish]]
) -> list[ItemState | LeaseLost]:
    asked = {"b_ids": [mended.held.id for mended, _ in tries]}
    current = {row.id: row for row in connection.execute(_CURRENT, asked)}
    ours = [finish for mended, finish in tries if _is_as_it_was(mended.held, current)]
    # Taken and finished in one transaction: a lease that nobody can see cannot be left behind.
    leases = [one.lease for one in ours]
    _TAKE.run(
        connection,
        [{"b_id": one.id, "b_token": one.token, "b_state": ItemState.LEASED} for one in leases],
    )
    later = _superseded(connection, [mended for mended, _ in tries])
    kept = [_skipped(one) if one.lease.id in later else one for one in ours]
    ends = dict(zip((one.lease.id for one in kept), finish_all(connection, kept), strict=True))
    # What the item took and was answered is still true of it.
    rows = [current[one.lease.id] for one in kept]
    _RESTORE.run(
        connection,
        [{"b_id": row.id, "b_seconds": row.seconds, "b_status": row.status} for row in rows],
    )
    return [
        ends.get(finish.lease.id) or LeaseLost(finish.lease.item.key, finish.lease.token)
        for _, finish in tries
    ]


def _is_as_it_was(held: Held, current: Mapping[int, Any]) -> bool:
    row = current.get(held.id)
    return row is not None and (row.state, row.lease_token) == (held.state, held.token)


def _superseded(connection: Connection, mended: Sequence[Mended]) -> set[int]:
    """Return the items whose records a later job has stored meanwhile."""
    found: set[int] = set()
    made = [(one.held, one.outcome.record) for one in mended if one.outcome.record is not None]
    for source in {record.source for _, record in made}:
        keys = [record.key for _, record in made if record.source == source]
        query = select(records.c.key, records.c.job_id, records.c.seen_at).where(
            records.c.source == source, records.c.key.in_(keys)
        )
        seen = {row.key: row for row in connection.execute(query)}
        for held, record in made:
            row = seen.get(record.key) if record.source == source else None
            if row is not None and row.job_id != held.job and row.seen_at > held.finished_at:
                found.add(held.id)
    return found


def _skipped(finish: Finish) -> Finish:
    reason = "a later job has stored this record since"
    return replace(finish, outcome=Outcome(Verdict.SKIP, reason=reason))
