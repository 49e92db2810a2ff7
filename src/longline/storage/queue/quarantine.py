"""Quarantined items: what they were made of, and how they are completed without a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    and_,
    bindparam,
    case,
    func,
    null,
    or_,
    select,
    tuple_,
    update,
)

from longline.core.errors import BadOption, FailureKind, LeaseLost
from longline.core.model import Item, ItemState, JobState, Lease, Outcome, OutcomeAction, Usage
from longline.storage.backends import BulkUpdate, as_sanitized_json, sanitize_key, sanitize_text
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import EventRow, append_events, event_row
from longline.storage.events.projections import Stage
from longline.storage.jobs import caveats_of, finish_job
from longline.storage.profiles import DriftResult
from longline.storage.queue.completion import LeasedOutcome, complete_all, complete_storable
from longline.storage.schema import items, jobs, projection_rows, records

REPLAY_UNFINISHED = (
    "a replay of its quarantined items has not ended; if it was interrupted, run it again"
)
"""The reason of a job while its items are replayed, and after a replay was killed."""
_ENDED = (JobState.COMPLETE, JobState.PARTIAL, JobState.FAILED)
_BAD = (ItemState.QUARANTINED, ItemState.FAILED)
_GOOD = (ItemState.STORED, ItemState.UNCHANGED, ItemState.SKIPPED)
_RECORDED = (ItemState.STORED, ItemState.UNCHANGED)
_UNFINISHED = (ItemState.QUEUED, ItemState.LEASED)
_STATE_OF = {
    OutcomeAction.STORE: ItemState.STORED,
    OutcomeAction.SKIP: ItemState.SKIPPED,
    OutcomeAction.QUARANTINE: ItemState.QUARANTINED,
}
_EXAMPLES = 3
# An item that failed by a bug after its last request has its material, too.
_IS_HELD = or_(
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
class HoldingJob:
    """A job that may have items in quarantine; `quarantined` are those in this state."""

    id: str
    source: str
    created_at: float
    quarantined: int


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
    """An item in quarantine, and the outcome of another attempt at it."""

    held: QuarantinedItem
    outcome: Outcome


_CURRENT = (
    select(
        *(items.c.id, items.c.state, items.c.lease_token),
        *(items.c.seconds, items.c.status, items.c.finished_at),
    )
    .where(items.c.id.in_(bindparam("b_ids", expanding=True)))
    .order_by(items.c.id)
)
_LEASE = BulkUpdate(
    update(items)
    .where(items.c.id == bindparam("b_id"))
    .values(
        state=bindparam("b_state"),
        lease_token=bindparam("b_token"),
        # After a repeated discovery the item may have other values and another key.
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
_DATE_BACK = BulkUpdate(
    update(records)
    .where(records.c.source == bindparam("b_source"), records.c.key == bindparam("b_key"))
    .values(
        seen_at=bindparam("b_seen"),
        # `changed_at` stays now: a query for changes since then must find the record.
        first_seen_at=case(
            (records.c.first_seen_at > bindparam("b_seen"), bindparam("b_seen")),
            else_=records.c.first_seen_at,
        ),
    )
)


class Quarantine(Repository):
    """The quarantined items of all jobs in one database."""

    @reads
    def groups(
        self,
        connection: Connection,
        job: str | None = None,
        *,
        kind: FailureKind | None = None,
        text: str = "",
    ) -> list[Group]:
        """Return the items by reason, the most frequent first.

        `text` selects reasons that contain it in any case.
        """
        query = select(*_GROUPED).where(_IS_HELD).order_by(items.c.id)
        if job is not None:
            query = query.where(items.c.job_id == job)
        if kind is not None:
            query = query.where(items.c.kind == kind)
        return _grouped(connection.execute(query.execution_options(yield_per=1000)), text)

    @reads
    def jobs(
        self,
        connection: Connection,
        *,
        source: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 20,
    ) -> list[HoldingJob]:
        """Return the newest jobs that may have items in quarantine; `before` is the last known."""
        rows = projection_rows.c
        held, failed = (
            rows.data["items"][state.value].as_integer()
            for state in (ItemState.QUARANTINED, ItemState.FAILED)
        )
        query = select(rows.key, rows.sort, rows.data).where(
            rows.stage == Stage.LIVE, rows.projection == "runs", or_(held > 0, failed > 0)
        )
        if source is not None:
            query = query.where(rows.data["source"].as_string() == source)
        if before is not None:
            query = query.where(rows.sort <= before[0], tuple_(rows.sort, rows.key) < before)
        found = connection.execute(query.order_by(rows.sort.desc(), rows.key.desc()).limit(limit))
        return [
            HoldingJob(key, data["source"], at, data["items"]["quarantined"])
            for key, at, data in found
        ]

    @reads
    def reasons(
        self, connection: Connection, job: str, *, text: str = "", most: int = 2000
    ) -> list[Group]:
        """Return the first `most` items of a job by reason, as `groups` does."""
        held = select(*_GROUPED).where(items.c.job_id == job, _IS_HELD)
        # Two statements: each uses the index on the state, and OR would scan the job.
        rows = [
            row
            for state in _BAD
            for row in connection.execute(held.where(items.c.state == state).limit(most))
        ]
        return _grouped(rows, text)

    async def get(self, job: str, key: str) -> QuarantinedItem:
        """Return one item.

        Raises:
            BadOption: no item with this key is in quarantine.
        """
        found = await self.held(job, keys=[key])
        if not found:
            raise BadOption("KEY", f"job {job} has no quarantined item {key!r}")
        return found[0]

    @reads
    def held(
        self,
        connection: Connection,
        job: str,
        *,
        keys: Sequence[str] = (),
        text: str = "",
        after: int = 0,
        limit: int = 500,
    ) -> list[QuarantinedItem]:
        """Return items in the order of discovery, after an id.

        `text` selects reasons that contain it in any case.
        """
        query = (
            select(items)
            .where(items.c.job_id == job, _IS_HELD, items.c.id > after)
            .order_by(items.c.id)
            .limit(limit)
        )
        query = query.where(items.c.key.in_(list(keys))) if keys else query
        if text:
            query = query.where(func.lower(items.c.reason).contains(text.lower(), autoescape=True))
        return [
            QuarantinedItem(
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
            for row in connection.execute(query)
        ]

    @reads
    def states(
        self, connection: Connection, reprocessed: Sequence[ReprocessedItem]
    ) -> list[ItemState]:
        """Return the present states of items."""
        ids = {"b_ids": [one.held.id for one in reprocessed]}
        rows = {row.id: row for row in connection.execute(_CURRENT, ids)}
        return [ItemState(rows[one.held.id].state) for one in reprocessed]

    @reads
    def preview(
        self, connection: Connection, reprocessed: Sequence[ReprocessedItem]
    ) -> list[ItemState]:
        """Return the states that `complete` would set, and change nothing."""
        known = _stored_records(connection, reprocessed)
        states = []
        for one in reprocessed:
            row, record = known.get(one.held.id), one.outcome.record
            if _is_superseded(one.held, row):
                states.append(ItemState.SKIPPED)
            elif row is not None and record is not None and row.fingerprint == record.fingerprint:
                states.append(ItemState.UNCHANGED)
            else:
                states.append(_STATE_OF.get(one.outcome.action, ItemState.FAILED))
        return states

    @writes
    def finish(
        self,
        connection: Connection,
        job: str,
        at: float,
        drift: DriftResult,
        happened: Sequence[EventRow] = (),
    ) -> None:
        """Append events, and finish a job again by the present states of its items.

        A running job, or one with unfinished items, stays as it is.
        """
        append_events(connection, happened)
        state = connection.scalar(select(jobs.c.state).where(jobs.c.id == job).with_for_update())
        if state == JobState.RUNNING or _has_items(connection, job, _UNFINISHED):
            return
        # Reopened and finished in one transaction: no other process sees it open.
        connection.execute(
            update(jobs)
            .where(jobs.c.id == job, jobs.c.state.in_(_ENDED), jobs.c.is_discovered.is_(True))
            .values(state=JobState.PAUSED)
        )
        finish_job(connection, job, at, drift)

    async def complete(
        self, reprocessed: Sequence[ReprocessedItem], at: float
    ) -> list[ItemState | LeaseLost]:
        """Commit outcomes: record, state, event and counts together, or nothing.

        Returns the new state of each item, or LeaseLost when another process changed it since. An
        item whose record a later job has stored is skipped. A finished job stays so, with the
        reason that it has to be finished again: if it were opened, the next run would resume it.
        """
        # What the attempt cost is not part of the job, which made no request.
        attempts = [
            (one.held, replace(one.outcome, at=at, seconds=0.0, usage=Usage(), found=()))
            for one in reprocessed
        ]
        return await complete_storable(
            lambda some: self._database.write(
                _complete_reprocessed, [ReprocessedItem(*one) for one in some], at
            ),
            attempts,
        )


_GROUPED = (items.c.job_id, items.c.kind, items.c.reason, items.c.key, items.c.url)


def _grouped(rows: Iterable[Any], text: str) -> list[Group]:
    """Return rows by job, kind and reason; only reasons that contain a text."""
    counts: Counter[tuple[str, str | None, str]] = Counter()
    keys: dict[tuple[str, str | None, str], list[str]] = {}
    for name, failure, reason, key, url in rows:
        # Without the item that it names, the reason is the same for other items.
        general = (reason or "").removeprefix(f"item {key}: ").removeprefix(f"{url}: ")
        if text.casefold() in general.casefold():
            group = (name, failure, general)
            counts[group] += 1
            if counts[group] <= _EXAMPLES:
                keys.setdefault(group, []).append(key)
    found = [Group(*group, count, tuple(keys[group])) for group, count in counts.items()]
    return sorted(found, key=lambda one: (-one.count, one.job, one.reason))


def _complete_reprocessed(
    connection: Connection, reprocessed: Sequence[ReprocessedItem], at: float
) -> list[ItemState | LeaseLost]:
    ids = {"b_ids": [one.held.id for one in reprocessed]}
    current = {row.id: row for row in connection.execute(_CURRENT.with_for_update(), ids)}
    valid = []
    for one in reprocessed:
        row = current.get(one.held.id)
        if row is not None and (row.state, row.lease_token) == (one.held.state, one.held.token):
            valid.append(one)
    reopened = [
        job
        for job, count in Counter(one.held.job for one in valid).items()
        if _is_reopened(connection, job, at, count)
    ]
    known = _stored_records(connection, reprocessed)
    superseded = {one.held.id for one in valid if _is_superseded(one.held, known.get(one.held.id))}
    skip = Outcome(OutcomeAction.SKIP, reason="a later job has stored this record since", at=at)
    attempts: list[LeasedOutcome] = []
    for one in valid:
        held = one.held
        lease = Lease(held.id, held.job, held.item, held.token + 1, held.tries)
        attempts.append((lease, skip if held.id in superseded else one.outcome))
    # Leased and completed in one transaction: the lease cannot be left behind.
    _LEASE.run(
        connection,
        [
            {
                "b_id": lease.id,
                "b_token": lease.token,
                "b_state": ItemState.LEASED,
                "b_key": sanitize_key(lease.item.key),
                "b_url": sanitize_text(lease.item.url),
                "b_data": as_sanitized_json(lease.item.data),
            }
            for lease, _ in attempts
        ],
    )
    before = {one.held.id: one.held.state for one in valid}
    results = complete_all(connection, attempts, before)
    states = {lease.id: state for (lease, _), state in zip(attempts, results, strict=True)}
    # Duration and status are still those of the requests. What stays in quarantine, or was stored
    # by a later job, also keeps its age: the job has seen nothing since.
    keeps_age = {item for item, state in states.items() if item in superseded or state in _BAD}
    _RESTORE.run(
        connection,
        [
            {
                "b_id": item,
                "b_seconds": current[item].seconds,
                "b_status": current[item].status,
                "b_finished": current[item].finished_at if item in keeps_age else at,
            }
            for item in states
        ],
    )
    _date_back(connection, [one for one in valid if states[one.held.id] in _RECORDED], known)
    for job in reopened:
        _set_unfinished(connection, job, at)
    return [
        states.get(one.held.id) or LeaseLost(one.held.item.key, one.held.token + 1)
        for one in reprocessed
    ]


def _date_back(
    connection: Connection, made: Sequence[ReprocessedItem], known: Mapping[int, Row[Any]]
) -> None:
    """Set when records were seen at their site: when their responses were fetched, or later."""
    rows = []
    for one in made:
        record, held = one.outcome.record, one.held
        if record is not None and held.finished_at:
            seen = known[held.id].seen_at if held.id in known else 0.0
            at = max(held.finished_at, seen)
            rows.append({"b_source": record.source, "b_key": record.key, "b_seen": at})
    _DATE_BACK.run(connection, rows)


def _has_items(connection: Connection, job: str, states: Sequence[ItemState]) -> bool:
    query = select(items.c.id).where(items.c.job_id == job, items.c.state.in_(states)).limit(1)
    return connection.scalar(query) is not None


def _is_reopened(connection: Connection, job: str, at: float, count: int) -> bool:
    """Return whether a finished job has to be finished again; the first replay adds an event."""
    query = select(jobs.c.state, jobs.c.reason, jobs.c.is_discovered).where(jobs.c.id == job)
    state, reason, is_discovered = connection.execute(query).one()
    if state not in _ENDED or not is_discovered or _has_items(connection, job, _UNFINISHED):
        return False
    if reason != REPLAY_UNFINISHED:
        append_events(connection, [event_row(job, at, "job.reopened", items=count, replayed=True)])
    return True


def _set_unfinished(connection: Connection, job: str, at: float) -> None:
    """Note that a job has to be finished again."""
    # A job is not complete before drift has checked all its records.
    state = JobState.PARTIAL if _has_items(connection, job, _GOOD) else JobState.FAILED
    query = select(jobs.c.state, jobs.c.reason).where(jobs.c.id == job)
    found = connection.execute(query.with_for_update(key_share=True)).one()
    if (found.state, found.reason) == (state, REPLAY_UNFINISHED):
        return
    data = {"reason": REPLAY_UNFINISHED, **caveats_of(connection, job).as_dict()}
    append_events(connection, [event_row(job, at, f"job.{state.value}", **data)])
    connection.execute(
        update(jobs).where(jobs.c.id == job).values(state=state, reason=REPLAY_UNFINISHED)
    )


def _stored_records(
    connection: Connection, reprocessed: Sequence[ReprocessedItem]
) -> dict[int, Row[Any]]:
    """Return the stored records of the keys of the new ones, by item."""
    made = {one.held.id: one.outcome.record for one in reprocessed if one.outcome.record}
    columns = (records.c.key, records.c.job_id, records.c.seen_at, records.c.fingerprint)
    query = select(records.c.source, *columns).where(
        records.c.source.in_({record.source for record in made.values()}),
        records.c.key.in_({record.key for record in made.values()}),
    )
    rows: dict[tuple[str, str], Any] = {
        (row.source, row.key): row for row in connection.execute(query)
    }
    return {
        item: rows[record.source, record.key]
        for item, record in made.items()
        if (record.source, record.key) in rows
    }


def _is_superseded(held: QuarantinedItem, row: Row[Any] | None) -> bool:
    """Return whether a later job has stored the record since."""
    return row is not None and row.job_id != held.job and row.seen_at > held.finished_at
