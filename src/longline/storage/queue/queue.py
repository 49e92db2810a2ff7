"""The items of a job: queued once, leased to one worker at a time, finished exactly once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy import exists as exists_row
from sqlalchemy.exc import StatementError

from longline.core.errors import FailureKind, LeaseLost
from longline.core.model import (
    FINAL_STATES,
    ChunkState,
    Failure,
    Item,
    ItemState,
    JobState,
    Lease,
    Usage,
)
from longline.storage.database import Database
from longline.storage.events import append_events, event_row
from longline.storage.queue.completion import Completion, complete_all, unstorable
from longline.storage.queue.enqueue import Discovered, add
from longline.storage.queue.failures import note_failures
from longline.storage.schema import chunks, items, jobs, statistics

# ---------------- Leases: given to one worker at a time, put back, kept, taken over

BY_HAND = "paused by hand"
"""The reason of a job that a person has paused: nobody who is at work on it goes on."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Which items a worker wants to lease: up to `count` of each domain, or of `only` that one.

    Domains in `without` are left out. Of many domains, those after `last` in the alphabet come
    first, and no more than `room` items are leased in all.
    """

    job: str
    owner: str
    count: int
    at: float
    until: float
    only: str | None = None
    without: frozenset[str] = frozenset()
    last: str = ""
    room: int = 10_000


# The domains that have queued items, found by a jump in the index from each to the next: reading
# all rows for it would take longer with every item that waits.
_QUEUED = (items.c.job_id == bindparam("b_job")) & (items.c.state == ItemState.QUEUED)
_least = select(items.c.domain).where(_QUEUED).order_by(items.c.domain).limit(1)
_first = select(_least.scalar_subquery().label("domain")).cte(recursive=True)
_next = _least.where(items.c.domain > _first.c.domain)
_LANES = _first.union_all(select(_next.scalar_subquery()).where(_first.c.domain.is_not(None)))
DOMAINS = select(_LANES.c.domain).where(_LANES.c.domain.is_not(None))

# Statements of the busy path are made once: building one costs more than running it.
DUE = (
    select(items.c.id)
    .where(
        items.c.job_id == bindparam("b_job"),
        items.c.state == ItemState.QUEUED,
        items.c.domain == bindparam("b_domain"),
        items.c.due_at <= bindparam("b_at"),
    )
    .order_by(items.c.priority.desc(), items.c.due_at)  # as the index has it: nothing is sorted
    .limit(bindparam("b_count"))
    .with_for_update(skip_locked=True)  # what another process takes at this moment is not ours
)
_VALUES: dict[Any, Any] = {
    "state": ItemState.LEASED,
    "lease_owner": bindparam("b_owner"),
    "lease_token": items.c.lease_token + 1,
    "lease_until": bindparam("b_until"),
    "tries": items.c.tries + 1,
}
_COLUMNS = (
    items.c.id,
    items.c.domain,
    items.c.key,
    items.c.url,
    items.c.priority,
    items.c.data,
    items.c.lease_token,
    items.c.tries,
)


def _taking(wanted: Select[Any]) -> Any:
    # A CTE is looked up once; a subquery might be run again for each row, and take too many.
    found = wanted.cte()
    return (
        update(items).where(items.c.id.in_(select(found.c.id))).values(_VALUES).returning(*_COLUMNS)
    )


_TAKE = _taking(DUE)
_TAKE_ORDINARY = _taking(DUE.where(items.c.deaths == 0))
_NAMED = items.c.id.in_(bindparam("b_ids", expanding=True))
_TAKE_NAMED = update(items).where(_NAMED).values(_VALUES).returning(*_COLUMNS)


def lease(connection: Connection, claim: Claim) -> list[Lease]:
    """Give items that are due to a worker, of each domain those of the highest priority."""
    if claim.only is not None:
        return _take(connection, claim, claim.only, claim.count)
    domains = connection.scalars(DOMAINS, {"b_job": claim.job}).all()
    leased: list[Lease] = []
    for domain in sorted(domains, key=lambda name: (name <= claim.last, name)):
        count = min(claim.count, claim.room - len(leased))
        if count > 0 and domain not in claim.without:
            leased += _take(connection, claim, domain, count)
    return leased


def lease_ordinary(connection: Connection, claim: Claim, domain: str) -> list[Lease]:
    """Give items of one domain that no worker has died with."""
    wish = _wish(claim, domain, claim.count)
    return _leases(claim.job, claim.owner, connection.execute(_TAKE_ORDINARY, wish))


def _take(connection: Connection, claim: Claim, domain: str, count: int) -> list[Lease]:
    wish = _wish(claim, domain, count)
    return _leases(claim.job, claim.owner, connection.execute(_TAKE, wish))


def _wish(claim: Claim, domain: str, count: int) -> dict[str, Any]:
    return {
        "b_job": claim.job,
        "b_owner": claim.owner,
        "b_count": count,
        "b_at": claim.at,
        "b_until": claim.until,
        "b_domain": domain,
    }


def lease_named(
    connection: Connection, job: str, ids: Sequence[int], owner: str, until: float
) -> list[Lease]:
    """Give these items, which the caller has found queued and locked, to a worker."""
    wish = {"b_ids": ids, "b_owner": owner, "b_until": until}
    return _leases(job, owner, connection.execute(_TAKE_NAMED, wish))


def _leases(job: str, owner: str, rows: Iterable[Row[Any]]) -> list[Lease]:
    return [
        Lease(
            id=row.id,
            job=job,
            item=Item(row.key, row.url, row.priority, row.data),
            token=row.lease_token,
            tries=row.tries,
            domain=row.domain,
            owner=owner,
        )
        for row in sorted(rows, key=lambda row: (-row.priority, row.id))
    ]


def release(connection: Connection, leases: Sequence[Lease]) -> None:
    """Put items back that nobody has begun to work on; stale leases are left alone."""
    for lease in leases:
        connection.execute(
            update(items)
            .where(
                items.c.id == lease.id,
                items.c.lease_token == lease.token,
                items.c.state == ItemState.LEASED,
            )
            .values(
                state=ItemState.QUEUED,
                lease_owner=None,
                lease_until=None,
                tries=items.c.tries - 1,
            )
        )


def renew(connection: Connection, argument: tuple[Sequence[tuple[str, str]], float]) -> None:
    """Keep all leases of owners, and their discoveries, until a later time."""
    held, until = argument
    ids, owners = sorted({job for job, _ in held}), sorted({owner for _, owner in held})
    connection.execute(
        update(items)
        .where(
            items.c.job_id.in_(ids),
            items.c.state == ItemState.LEASED,
            items.c.lease_owner.in_(owners),
        )
        .values(lease_until=until)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id.in_(ids), jobs.c.discovery_owner.in_(owners))
        .values(discovery_until=until)
    )
    # Another process may have paused the job when it was stopped; this one goes on with it. On a
    # cluster only a person or the sweeper pauses a job.
    is_left = (jobs.c.state == JobState.PAUSED) & jobs.c.reason.is_distinct_from(BY_HAND)
    connection.execute(
        update(jobs)
        .where(jobs.c.id.in_(ids), is_left, jobs.c.engine == "local")
        .values(state=JobState.RUNNING, reason=None)
    )


@dataclass(frozen=True, slots=True)
class Holder:
    """An owner of leases of a job; the first of them expires at `until`."""

    job: str
    owner: str
    until: float


def holders(connection: Connection, ids: Sequence[str]) -> list[Holder]:
    """Return who holds leases of items of these jobs."""
    query = (
        select(items.c.job_id, items.c.lease_owner, func.min(items.c.lease_until))
        .where(items.c.job_id.in_(ids), items.c.state == ItemState.LEASED)
        .group_by(items.c.job_id, items.c.lease_owner)
    )
    return [Holder(*row) for row in connection.execute(query)]


def owners(connection: Connection, job: str, at: float | None = None) -> list[str]:
    """Return who holds leases of a job, or its discovery; those who still do so `at` a moment."""
    leased = (
        select(items.c.lease_owner)
        .where(items.c.job_id == job, items.c.state == ItemState.LEASED)
        .distinct()
    )
    discovering = select(jobs.c.discovery_owner).where(jobs.c.id == job)
    if at is not None:
        leased = leased.where(items.c.lease_until > at)
        discovering = discovering.where(jobs.c.discovery_until > at)
    found = connection.scalars(leased.union(discovering))
    return [owner for owner in found if owner is not None]


# ---------------- Taking back what the dead held, and keeping apart what may have killed them

MOST_DEATHS = 3  # workers that may die with an item in hand before it is given to nobody else
_SILENT = 60.0  # seconds after which a chunk without leased items is nobody's any more
_LARGEST = 10_000  # ids in a statement


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Whose leases of a job are taken back: those of `dead` and `killed` owners, and expired ones.

    Items of `killed` owners, each a process that died while the worker it belongs to lives on, may
    have been what killed it: they become suspects, and are quarantined after the third death. Of
    an owner in `in_flight`, only those that it had begun; of others that is not known.
    """

    job: str
    at: float
    dead: Sequence[str] = ()
    killed: Sequence[str] = ()
    in_flight: Mapping[str, Collection[int]] = field(default_factory=dict)

    def is_suspect(self, item: int, owner: str) -> bool:
        """Say whether an item may have killed its owner."""
        return owner in self.killed and item in self.in_flight.get(owner, (item,))


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """How many items can be worked on again, how many never will, how many chunks were lost."""

    items: int = 0
    quarantined: int = 0
    chunks: int = 0


def reclaim(connection: Connection, wanted: Reclaim) -> Reclaimed:
    """Take back what `wanted` names."""
    gone = [*wanted.dead, *wanted.killed]
    held = connection.execute(
        select(
            *(items.c.id, items.c.key, items.c.url, items.c.tries),
            *(items.c.deaths, items.c.lease_owner),
        )
        .where(
            items.c.job_id == wanted.job,
            items.c.state == ItemState.LEASED,
            or_(items.c.lease_until < wanted.at, items.c.lease_owner.in_(gone)),
        )
        .with_for_update(skip_locked=True)  # whose commit is under way is not dead yet
    ).all()
    suspects = [row for row in held if wanted.is_suspect(row.id, row.lease_owner)]
    lethal = [row for row in suspects if row.deaths + 1 >= MOST_DEATHS]
    _put_back(connection, [row.id for row in held])
    _count_deaths(connection, [row.id for row in suspects])
    _quarantine(connection, wanted, lethal)
    lost = _lose_chunks(connection, wanted, [*gone, *{row.lease_owner for row in held}])
    if held:
        told = event_row(wanted.job, wanted.at, "leases.reclaimed", items=len(held) - len(lethal))
        if suspects:
            told["data"]["suspects"] = len(suspects) - len(lethal)
        append_events(connection, [told])
    return Reclaimed(len(held) - len(lethal), len(lethal), lost)


def chunk_owners(connection: Connection, job: str) -> list[str]:
    """Return who holds chunks or leases of a job, or its discovery."""
    query = select(chunks.c.owner).where(chunks.c.job_id == job, chunks.c.state == ChunkState.TAKEN)
    found = {*owners(connection, job), *connection.scalars(query.distinct())}
    return sorted(owner for owner in found if owner is not None)


def _put_back(connection: Connection, ids: Sequence[int]) -> None:
    for named in _parts(ids):
        connection.execute(
            update(items)
            .where(named)
            .values(state=ItemState.QUEUED, lease_owner=None, lease_until=None)
        )


def _count_deaths(connection: Connection, ids: Sequence[int]) -> None:
    for named in _parts(ids):
        connection.execute(update(items).where(named).values(deaths=items.c.deaths + 1))


def _quarantine(connection: Connection, reclaim: Reclaim, rows: Sequence[Any]) -> None:
    for row in rows:
        count = row.deaths + 1
        reason = f"{count} workers died with it in hand, the last of them with nothing else"
        connection.execute(
            update(items)
            .where(items.c.id == row.id)
            .values(
                state=ItemState.QUARANTINED,
                kind=FailureKind.BUG,
                reason=reason,
                finished_at=reclaim.at,
            )
        )
        failure = Failure(reclaim.at, row.url, FailureKind.BUG, reason, "quarantine", 0.0)
        note_failures(connection, [(reclaim.job, row.key, row.tries, Usage(failures=[failure]))])
        told = {"failure": FailureKind.BUG, "reason": reason, "deaths": count}
        append_events(
            connection,
            [event_row(reclaim.job, reclaim.at, "item.quarantined", key=row.key, **told)],
        )


def _lose_chunks(connection: Connection, reclaim: Reclaim, gone: Sequence[str]) -> int:
    is_held = exists_row().where(
        items.c.job_id == reclaim.job,
        items.c.state == ItemState.LEASED,
        items.c.lease_owner == chunks.c.owner,
    )
    is_silent = (chunks.c.taken_at < reclaim.at - _SILENT) & ~is_held
    lost = connection.execute(
        update(chunks)
        .where(
            chunks.c.job_id == reclaim.job,
            chunks.c.state == ChunkState.TAKEN,
            or_(chunks.c.owner.in_(list(gone)), is_silent),
        )
        .values(state=ChunkState.LOST, finished_at=reclaim.at)
    )
    return lost.rowcount


def _parts(ids: Sequence[int]) -> list[ColumnElement[bool]]:
    starts = range(0, len(ids), _LARGEST)
    return [items.c.id.in_(list(ids[start : start + _LARGEST])) for start in starts]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queued items of one domain: how many, when the first is due, what holds them up.

    `block` is the reason of a ban, when each of them is parked because of one.
    """

    count: int
    due: float
    block: str | None = None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How far a job is: its items by state, its statistics, and the key that was finished last."""

    job: str
    source: str
    state: JobState
    is_discovered: bool
    counts: Mapping[ItemState, int]
    statistics: Mapping[str, float]
    last_key: str | None


class Queue:
    """The items of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, discovered: Discovered) -> int | None:
        """Queue what is new of these items, with the cursor; return how many the job has now.

        None, uncounted, when neither a limit nor the end asks for it.
        """
        total: int | None = await self._database.write(add, discovered)
        return total

    async def lease(self, claim: Claim) -> list[Lease]:
        """Give items that are due to a worker, of each domain the highest priority first.

        None is given to two workers.
        """
        leases: list[Lease] = await self._database.write(lease, claim)
        return leases

    async def finish(self, finish: Completion) -> ItemState:
        """Commit the end of one try: item, record, new items, statistics, event.

        Raises:
            LeaseLost: another worker has the item; nothing was committed.
        """
        (end,) = await self.complete_all([finish])
        if isinstance(end, LeaseLost):
            raise end
        return end

    async def complete_all(self, finishes: list[Completion]) -> list[ItemState | LeaseLost]:
        """Commit the ends of several tries together; say of each the new state, or LeaseLost.

        What no database can hold (half a surrogate pair, say) is quarantined with the reason, and
        takes none of the others along.
        """
        try:
            ends: list[ItemState | LeaseLost] = await self._database.write(complete_all, finishes)
        except (StatementError, ValueError, TypeError, OverflowError) as error:
            if len(finishes) > 1:
                return [end for one in finishes for end in await self.complete_all([one])]
            ends = await self._database.write(complete_all, [unstorable(finishes[0], error)])
        return ends

    async def release(self, leases: Sequence[Lease]) -> None:
        """Put back items nobody has begun to work on."""
        await self._database.write(release, leases)

    async def renew(self, owners: Sequence[tuple[str, str]], until: float) -> None:
        """Keep all leases and discoveries of living workers, given as pairs of job and owner."""
        if owners:
            await self._database.write(renew, (owners, until))

    async def reclaim(self, wanted: Reclaim) -> Reclaimed:
        """Reclaim what dead owners held, and what has expired; see `Reclaim`."""
        reclaimed: Reclaimed = await self._database.write(reclaim, wanted)
        return reclaimed

    async def holders(self, jobs: Sequence[str]) -> list[Holder]:
        """Return who holds leases of items of these jobs."""
        return await self._database.read(lambda connection: holders(connection, jobs))

    async def job_states(self, ids: Sequence[str]) -> dict[str, tuple[JobState, str | None]]:
        """Return the state of each of these jobs and its reason; deleted ones are missing."""
        query = select(jobs.c.id, jobs.c.state, jobs.c.reason).where(jobs.c.id.in_(ids))
        return await self._database.read(
            lambda connection: {
                row.id: (JobState(row.state), row.reason) for row in connection.execute(query)
            }
        )

    async def owners(self, job: str, at: float | None = None) -> list[str]:
        """Return who holds leases of this job, or its discovery; those who still do `at` then."""
        return await self._database.read(lambda connection: owners(connection, job, at))

    async def counts(self, job: str) -> dict[ItemState, int]:
        """Return how many items are in each state; the truth that all progress is read from."""
        return await self._database.read(lambda connection: counts(connection, job))

    async def progress(self, ids: Sequence[str]) -> dict[str, JobCounts]:
        """Return how far each of these jobs is, with one query for all; deleted ones are missing.

        Jobs are given by their whole ids.
        """
        return await self._database.read(lambda connection: _progress(connection, ids))

    async def next_due(self, job: str) -> float | None:
        """Return when the next queued item is due; None when none is queued."""
        query = select(func.min(items.c.due_at)).where(
            items.c.job_id == job, items.c.state == ItemState.QUEUED
        )
        due: float | None = await self._database.read(lambda connection: connection.scalar(query))
        return due

    async def is_due(self, job: str, at: float) -> bool:
        """Say whether a queued item can be begun at that moment: found without counting others."""
        query = select(
            exists().where(
                items.c.job_id == job, items.c.state == ItemState.QUEUED, items.c.due_at <= at
            )
        )
        return await self._database.read(lambda connection: bool(connection.scalar(query)))

    async def park(self, job: str, domain: str, until: float, *, kind: str, reason: str) -> int:
        """Defer the queued items of a domain; return how many. Those that wait longer do so."""
        count: int = await self._database.write(_park, (job, domain, until, kind, reason))
        return count

    async def hurry(self, domain: str) -> int:
        """Make the parked items of a domain due now, in every job; return how many."""
        count: int = await self._database.write(_hurry, domain)
        return count

    async def give_up(self, job: str, kind: FailureKind, reason: str, at: float) -> int:
        """Skip all that is queued; return how many."""
        count: int = await self._database.write(_give_up, (job, kind, reason, at))
        return count

    async def waiting(self, job: str) -> dict[str, Waiting]:
        """Return what is queued, by domain."""
        return await self._database.read(lambda connection: _waiting(connection, job))

    async def skip_before(self, job: str, key: str, reason: str) -> int | None:
        """Skip what is unfinished and was found before `key`; None when there is no such item."""
        count: int | None = await self._database.write(_skip_before, (job, key, reason))
        return count

    async def rows(self, job: str) -> list[dict[str, Any]]:
        """Return all items as rows, in the order in which they were found."""
        query = select(items).where(items.c.job_id == job).order_by(items.c.id)
        return await self._database.read(
            lambda connection: [dict(row) for row in connection.execute(query).mappings()]
        )

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


def _progress(connection: Connection, ids: Sequence[str]) -> dict[str, JobCounts]:
    counted: dict[str, dict[ItemState, int]] = {job: dict.fromkeys(ItemState, 0) for job in ids}
    by_state = (
        select(items.c.job_id, items.c.state, func.count())
        .where(items.c.job_id.in_(ids))
        .group_by(items.c.job_id, items.c.state)
    )
    for job, state, count in connection.execute(by_state):
        counted[job][ItemState(state)] = count
    figures: dict[str, dict[str, float]] = {job: {} for job in ids}
    for row in connection.execute(select(statistics).where(statistics.c.job_id.in_(ids))):
        figures[row.job_id][row.name] = row.value
    rows = connection.execute(
        select(jobs.c.id, jobs.c.source, jobs.c.state, jobs.c.is_discovered).where(
            jobs.c.id.in_(ids)
        )
    )
    return {
        row.id: JobCounts(
            row.id,
            row.source,
            JobState(row.state),
            row.is_discovered,
            counted[row.id],
            figures[row.id],
            connection.scalar(_LAST_KEY, {"b_job": row.id}),
        )
        for row in rows.all()
    }


_LAST_KEY = (
    select(items.c.key)
    .where(items.c.job_id == bindparam("b_job"), items.c.finished_at.is_not(None))
    .order_by(items.c.finished_at.desc())
    .limit(1)
)


def counts(connection: Connection, job: str) -> dict[ItemState, int]:
    """Return how many items of a job are in each state, zeros included."""
    query = select(items.c.state, func.count()).where(items.c.job_id == job).group_by(items.c.state)
    found = {ItemState(state): count for state, count in connection.execute(query)}
    return {state: found.get(state, 0) for state in ItemState}


def _give_up(connection: Connection, argument: tuple[str, FailureKind, str, float]) -> int:
    job, kind, reason, at = argument
    given_up = connection.execute(
        update(items)
        .where(items.c.job_id == job, items.c.state == ItemState.QUEUED)
        .values(state=ItemState.SKIPPED, kind=kind, reason=reason, finished_at=at)
    )
    return given_up.rowcount


def _park(connection: Connection, argument: tuple[str, str, float, str, str]) -> int:
    job, domain, until, kind, reason = argument
    parked = connection.execute(
        update(items)
        .where(
            items.c.job_id == job,
            items.c.state == ItemState.QUEUED,
            items.c.domain == domain,
            items.c.due_at < until,
        )
        .values(due_at=until, kind=kind, reason=reason)
    )
    return parked.rowcount


def _hurry(connection: Connection, domain: str) -> int:
    parked = (items.c.state == ItemState.QUEUED) & (items.c.due_at > 0)
    hurried = connection.execute(
        update(items).where(parked, items.c.domain == domain).values(due_at=0.0)
    )
    return hurried.rowcount


def _waiting(connection: Connection, job: str) -> dict[str, Waiting]:
    blocked = func.sum(case((items.c.kind == FailureKind.BLOCKED, 1), else_=0))
    query = (
        select(
            items.c.domain,
            func.count(),
            func.min(items.c.due_at),
            blocked,
            func.max(items.c.reason),
        )
        .where(items.c.job_id == job, items.c.state == ItemState.QUEUED)
        .group_by(items.c.domain)
    )
    return {
        domain: Waiting(count, due, reason if bans == count else None)
        for domain, count, due, bans, reason in connection.execute(query)
    }


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
