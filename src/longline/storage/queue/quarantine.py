"""Items whose data did not fit: what they were made of, and their way out without a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.exc import StatementError

from longline.core.errors import BadOption, FailureKind, LeaseLost
from longline.core.model import Item, ItemState, JobState, Lease, Outcome, OutcomeAction, Record
from longline.storage.bulk import BulkUpdate, as_sanitized_json, sanitize_key, sanitize_text
from longline.storage.database import Database
from longline.storage.events import EventRow, append_events, event_row
from longline.storage.jobs import finish_job
from longline.storage.profiles import DriftResult
from longline.storage.queue.completion import (
    Completion,
    Sighting,
    complete_all,
    date_back,
    unstorable,
)
from longline.storage.schema import items, jobs, records

REPLAY_UNFINISHED = (
    "a replay of its quarantined items has not ended; if it was cut off, run it again"
)
"""The reason of a job while its items are replayed, and after a replay was killed."""
_ENDED = (JobState.COMPLETE, JobState.PARTIAL, JobState.FAILED)
_BAD = (ItemState.QUARANTINED, ItemState.FAILED)
_GOOD = (ItemState.STORED, ItemState.UNCHANGED, ItemState.SKIPPED)
_STATE_OF = {
    OutcomeAction.STORE: ItemState.STORED,
    OutcomeAction.SKIP: ItemState.SKIPPED,
    OutcomeAction.QUARANTINE: ItemState.QUARANTINED,
}
_RECORDED = (ItemState.STORED, ItemState.UNCHANGED)
_UNFINISHED = (ItemState.QUEUED, ItemState.LEASED)
_EXAMPLES = 3
# A bug that a source met after its last request left what the record was to be made of, too.
_HELD = or_(
    items.c.state == ItemState.QUARANTINED,
    and_(items.c.state == ItemState.FAILED, items.c.raw.is_not(null())),
)


@dataclass(frozen=True, slots=True)
class QuarantinedItem:
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
class ReprocessedItem:
    """An item in quarantine, and what came of it when it was looked at again."""

    held: QuarantinedItem
    outcome: Outcome


_Meeting = tuple[
    QuarantinedItem, Record, Any
]  # the record that an item makes, and the one there is


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

    async def get(self, job: str, key: str) -> QuarantinedItem:
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
    ) -> list[QuarantinedItem]:
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

    async def states(self, reprocessed: Sequence[ReprocessedItem]) -> list[ItemState]:
        """Return where items stand now, whoever has brought them there."""
        asked = {"b_ids": [one.held.id for one in reprocessed]}
        rows = await self._database.read(
            lambda connection: {row.id: row for row in connection.execute(_CURRENT, asked)}
        )
        return [ItemState(rows[one.held.id].state) for one in reprocessed]

    async def foresee(self, reprocessed: Sequence[ReprocessedItem]) -> list[ItemState]:
        """Return what `settle` would make of items, and change nothing."""
        return await self._database.read(lambda connection: _foresee(connection, reprocessed))

    async def end(
        self, job: str, at: float, ending: DriftResult, told: Sequence[EventRow] = ()
    ) -> None:
        """End a job anew by what its items are now; one that is at work ends by itself.

        `told` is written down before the end. A job with items to collect stays what it is.
        """
        await self._database.write(_end, (job, at, ending, told))

    async def settle(
        self, reprocessed: Sequence[ReprocessedItem], at: float
    ) -> list[ItemState | LeaseLost]:
        """Commit what came of items: record, state, event and counts together, or nothing.

        Says of each the new state, or LeaseLost when somebody else was at it meanwhile. A record
        that a later job has stored since is not replaced by what is older: the item is skipped.
        A job that has ended stays so, and its reason says that it is to `end` anew: if it were
        opened, the next run would take it for one of its own that was cut off.
        """
        finishes = [_finish(one, at) for one in reprocessed]
        return await self._settle(list(zip(reprocessed, finishes, strict=True)))

    async def _settle(
        self, tries: list[tuple[ReprocessedItem, Completion]]
    ) -> list[ItemState | LeaseLost]:
        try:
            ends: list[ItemState | LeaseLost] = await self._database.write(_settle, tries)
        except (StatementError, ValueError, TypeError, OverflowError) as error:
            if len(tries) > 1:
                return [end for one in tries for end in await self._settle([one])]
            ((reprocessed, finish),) = tries
            ends = await self._database.write(_settle, [(reprocessed, unstorable(finish, error))])
        return ends


def _held(row: Row[Any]) -> QuarantinedItem:
    return QuarantinedItem(
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


def _has(connection: Connection, job: str, states: Sequence[ItemState]) -> bool:
    query = select(items.c.id).where(items.c.job_id == job, items.c.state.in_(states)).limit(1)
    return connection.scalar(query) is not None


def _begin(connection: Connection, job: str, at: float, count: int) -> bool:
    """Say whether a job has ended and is to end anew; the first to ask leaves an event."""
    query = select(jobs.c.state, jobs.c.reason, jobs.c.is_discovered).where(jobs.c.id == job)
    state, reason, is_discovered = connection.execute(query).one()
    if state not in _ENDED or not is_discovered or _has(connection, job, _UNFINISHED):
        return False
    if reason != REPLAY_UNFINISHED:
        append_events(connection, [event_row(job, at, "job.reopened", items=count, replayed=True)])
    return True


def _leave_unended(connection: Connection, job: str) -> None:
    # Nothing is called complete before its records were judged as a whole.
    state = JobState.PARTIAL if _has(connection, job, _GOOD) else JobState.FAILED
    connection.execute(
        update(jobs).where(jobs.c.id == job).values(state=state, reason=REPLAY_UNFINISHED)
    )


def _end(
    connection: Connection, argument: tuple[str, float, DriftResult, Sequence[EventRow]]
) -> None:
    job, at, ending, told = argument
    append_events(connection, list(told))
    state = connection.scalar(select(jobs.c.state).where(jobs.c.id == job).with_for_update())
    if state == JobState.RUNNING or _has(connection, job, _UNFINISHED):
        return
    # Opened and ended in one transaction: nobody can see it open, or leave it so.
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job, jobs.c.state.in_(_ENDED), jobs.c.is_discovered.is_(True))
        .values(state=JobState.PAUSED)
    )
    finish_job(connection, job, at, ending)


def _finish(reprocessed: ReprocessedItem, at: float) -> Completion:
    held = reprocessed.held
    lease = Lease(held.id, held.job, held.item, held.token + 1, held.tries)
    return Completion(lease, reprocessed.outcome, at)


_CURRENT = (
    select(
        *(items.c.id, items.c.state, items.c.lease_token),
        *(items.c.seconds, items.c.status, items.c.finished_at),
    )
    .where(items.c.id.in_(bindparam("b_ids", expanding=True)))
    .order_by(items.c.id)
)
_LOCKED = _CURRENT.with_for_update()  # not for those who only look: they may lock nothing
_TAKE = BulkUpdate(
    update(items)
    .where(items.c.id == bindparam("b_id"))
    .values(
        state=bindparam("b_state"),
        lease_token=bindparam("b_token"),
        # Discovery may have been repeated: its element may have other values and another key now.
        key=bindparam("b_key"),
        url=bindparam("b_url"),
        data=bindparam("b_data"),
    )
)
_RESTORE = BulkUpdate(
    update(items)
    .where(items.c.id == bindparam("b_id"))
    .values(
        seconds=bindparam("b_seconds"),
        status=bindparam("b_status"),
        finished_at=bindparam("b_finished"),
    )
)


def _settle(
    connection: Connection, tries: list[tuple[ReprocessedItem, Completion]]
) -> list[ItemState | LeaseLost]:
    asked = {"b_ids": [reprocessed.held.id for reprocessed, _ in tries]}
    current = {row.id: row for row in connection.execute(_LOCKED, asked)}
    ours = [finish for reprocessed, finish in tries if _is_as_it_was(reprocessed.held, current)]
    leases = [one.lease for one in ours]
    sizes = Counter(lease.job for lease in leases)
    anew = [job for job, count in sizes.items() if _begin(connection, job, ours[0].at, count)]
    # Taken and finished in one transaction: a lease that nobody can see cannot be left behind.
    _TAKE.run(
        connection,
        [
            {
                "b_id": one.id,
                "b_token": one.token,
                "b_state": ItemState.LEASED,
                "b_key": sanitize_key(one.item.key),
                "b_url": sanitize_text(one.item.url),
                "b_data": as_sanitized_json(one.item.data),
            }
            for one in leases
        ],
    )
    met = list(_met(connection, [reprocessed for reprocessed, _ in tries]))
    later = _superseded(met)
    kept = [_skipped(one) if one.lease.id in later else one for one in ours]
    ends = dict(zip((one.lease.id for one in kept), complete_all(connection, kept), strict=True))
    _RESTORE.run(
        connection,
        [
            _restored(
                current[one.lease.id],
                one.at,
                is_as_old=one.lease.id in later or ends[one.lease.id] in _BAD,
            )
            for one in kept
        ],
    )
    made = [reprocessed for reprocessed, _ in tries if ends.get(reprocessed.held.id) in _RECORDED]
    date_back(connection, _sightings(made, met))
    for job in anew:
        _leave_unended(connection, job)
    return [
        ends.get(finish.lease.id) or LeaseLost(finish.lease.item.key, finish.lease.token)
        for _, finish in tries
    ]


def _sightings(made: Iterable[ReprocessedItem], met: Sequence[_Meeting]) -> Iterator[Sighting]:
    """Yield when the site was seen as these records say: never earlier than is known already."""
    before = {held.id: row.seen_at for held, _, row in met}
    for one in made:
        record, held = one.outcome.record, one.held
        if record is not None and held.finished_at:
            at = max(held.finished_at, before.get(held.id, 0.0))
            yield Sighting(record.source, record.key, at)


def _restored(row: Any, at: float, *, is_as_old: bool) -> dict[str, Any]:
    """Return what is still true of an item: what it took, was answered, and how old its data is.

    What stays in quarantine, or was stored by a later job, is as old as before: its job has seen
    nothing since, and later jobs are known by that.
    """
    return {
        "b_id": row.id,
        "b_seconds": row.seconds,
        "b_status": row.status,
        "b_finished": row.finished_at if is_as_old else at,
    }


def _is_as_it_was(held: QuarantinedItem, current: Mapping[int, Any]) -> bool:
    row = current.get(held.id)
    return row is not None and (row.state, row.lease_token) == (held.state, held.token)


def _foresee(connection: Connection, reprocessed: Sequence[ReprocessedItem]) -> list[ItemState]:
    met = list(_met(connection, reprocessed))
    later = _superseded(met)
    same = {held.id for held, record, row in met if row.fingerprint == record.fingerprint}
    return [
        ItemState.SKIPPED
        if one.held.id in later
        else ItemState.UNCHANGED
        if one.held.id in same
        else _STATE_OF.get(one.outcome.action, ItemState.FAILED)
        for one in reprocessed
    ]


def _superseded(met: Sequence[_Meeting]) -> set[int]:
    """Return the items whose records a later job has stored meanwhile."""
    return {
        held.id for held, _, row in met if row.job_id != held.job and row.seen_at > held.finished_at
    }


def _met(connection: Connection, reprocessed: Sequence[ReprocessedItem]) -> Iterator[_Meeting]:
    """Yield the items whose records are known already, with these as they are stored."""
    made = [(one.held, one.outcome.record) for one in reprocessed if one.outcome.record is not None]
    columns = (records.c.key, records.c.job_id, records.c.seen_at, records.c.fingerprint)
    for source in {record.source for _, record in made}:
        keys = [record.key for _, record in made if record.source == source]
        query = select(*columns).where(records.c.source == source, records.c.key.in_(keys))
        known = {row.key: row for row in connection.execute(query)}
        for held, record in made:
            if record.source == source and record.key in known:
                yield held, record, known[record.key]


def _skipped(finish: Completion) -> Completion:
    reason = "a later job has stored this record since"
    return replace(finish, outcome=Outcome(OutcomeAction.SKIP, reason=reason))
