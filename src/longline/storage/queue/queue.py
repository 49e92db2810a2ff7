"""The items of all jobs: enqueued once, leased to one worker at a time, completed exactly once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, case, exists, func, or_, select, update

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
from longline.storage.database import Repository, plain_rows, reads, writes
from longline.storage.events.events import add_statistics, append_events, event_row
from longline.storage.events.projections import read_rows
from longline.storage.queue.completion import LeasedOutcome, complete_all, complete_storable
from longline.storage.queue.enqueue import Discovered, enqueue_items
from longline.storage.queue.failures import note_failures
from longline.storage.schema import chunks, events, items, jobs, statistics

PAUSED_BY_USER = "paused by the user"
WAITS_FOR_EXECUTOR = "waits to be resumed by longline serve"
"""The reason of a paused job while its launch is queued."""
"""The reason of a job that a person has paused: every process stops working on it."""
MOST_DEATHS = 3
"""Workers that may die with an item, a discovery or a task before it is given up."""
_STARTS = ("job.started", "job.resumed", "job.continued")
_ORPHANED = 60.0  # seconds after which a claimed chunk without leased items is lost


@dataclass(frozen=True, slots=True)
class Claim:
    """Which items a worker leases: up to `count` of each domain, or of the domain `only`.

    Domains in `without` are left out. Domains after `last` in the alphabet come first, and no more
    than `room` items are leased in total.
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


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Which leases of a job are reclaimed: those of `dead` and `killed` owners, and expired ones.

    A `killed` owner is a process that died while its parent lives: one of its items may have killed
    it. Such items become suspects, and are quarantined after the third death; for an owner in
    `in_flight`, only the items it had begun.
    """

    job: str
    at: float
    dead: Sequence[str] = ()
    killed: Sequence[str] = ()
    in_flight: Mapping[str, Collection[int]] = field(default_factory=dict)

    def is_suspect(self, item: int, owner: str) -> bool:
        """Return whether an item may have killed its owner."""
        return owner in self.killed and item in self.in_flight.get(owner, (item,))


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """How many items were queued again and quarantined, and how many chunks were lost."""

    items: int = 0
    quarantined: int = 0
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queued items of one domain, and when the first is due.

    `block` is the reason of a ban, when every one of them is deferred because of a ban.
    """

    count: int
    due: float
    block: str | None = None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Progress of a job: its items by state, its statistics, and the key completed last."""

    job: str
    source: str
    state: JobState
    is_discovered: bool
    counts: Mapping[ItemState, int]
    statistics: Mapping[str, float]
    last_key: str | None


# ---------------- Statements of the busy path are built once: building costs more than running

_QUEUED = (items.c.job_id == bindparam("b_job")) & (items.c.state == ItemState.QUEUED)
# The domains with queued items, found by a jump in the index from each to the next: reading all
# rows would take longer with every item that is queued.
_least = select(items.c.domain).where(_QUEUED).order_by(items.c.domain).limit(1)
_first = select(_least.scalar_subquery().label("domain")).cte(recursive=True)
_next = _least.where(items.c.domain > _first.c.domain)
_all = _first.union_all(select(_next.scalar_subquery()).where(_first.c.domain.is_not(None)))
_DOMAINS = select(_all.c.domain).where(_all.c.domain.is_not(None))
_DUE = (
    select(items.c.id)
    .where(
        _QUEUED,
        items.c.domain == bindparam("b_domain"),
        items.c.due_at <= bindparam("b_at"),
    )
    .order_by(items.c.priority.desc(), items.c.due_at)  # the order of the index: nothing is sorted
    .limit(bindparam("b_count"))
    .with_for_update(skip_locked=True)  # another process is leasing a locked item
)


def _lease_statement(*conditions: Any) -> Any:
    # A CTE is evaluated once; a subquery may be run again for each row, and lease too many.
    due = _DUE.where(*conditions).cte()
    return (
        update(items)
        .where(items.c.id.in_(select(due.c.id)))
        .values(
            state=ItemState.LEASED,
            lease_owner=bindparam("b_owner"),
            lease_token=items.c.lease_token + 1,
            lease_until=bindparam("b_until"),
            tries=items.c.tries + 1,
        )
        .returning(
            *(items.c.id, items.c.domain, items.c.key, items.c.url, items.c.priority),
            *(items.c.data, items.c.lease_token, items.c.tries),
        )
    )


_LEASE = {
    None: _lease_statement(),
    False: _lease_statement(items.c.deaths == 0),
    True: _lease_statement(items.c.deaths > 0),
}
_RELEASE = (
    update(items)
    .where(
        items.c.id == bindparam("b_id"),
        items.c.lease_token == bindparam("b_token"),
        items.c.state == ItemState.LEASED,
    )
    .values(state=ItemState.QUEUED, lease_owner=None, lease_until=None, tries=items.c.tries - 1)
)
_LAST_KEY = (
    select(items.c.key)
    .where(items.c.job_id == bindparam("b_job"), items.c.finished_at.is_not(None))
    .order_by(items.c.finished_at.desc())
    .limit(1)
)


# ---------------- Steps that are part of larger transactions, too


def queued_domains(connection: Connection, job: str) -> list[str]:
    """Return the domains of a job that have queued items, due or not."""
    return list(connection.scalars(_DOMAINS, {"b_job": job}))


def lease_domain(
    connection: Connection,
    claim: Claim,
    domain: str,
    count: int,
    *,
    are_suspects: bool | None = None,
) -> list[Lease]:
    """Lease due items of one domain, the highest priority first.

    With `are_suspects`, only items that a worker has died with; with False, only others.
    """
    values = {
        "b_job": claim.job,
        "b_owner": claim.owner,
        "b_count": count,
        "b_at": claim.at,
        "b_until": claim.until,
        "b_domain": domain,
    }
    rows = connection.execute(_LEASE[are_suspects], values).all()
    return [
        Lease(
            id=row.id,
            job=claim.job,
            item=Item(row.key, row.url, row.priority, row.data),
            token=row.lease_token,
            tries=row.tries,
            domain=row.domain,
            owner=claim.owner,
        )
        for row in sorted(rows, key=lambda row: (-row.priority, row.id))
    ]


def lease_owners(connection: Connection, job: str, at: float | None = None) -> list[str]:
    """Return the owners of leases of a job and of its discovery; with `at`, of valid ones only."""
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


def counts(connection: Connection, job: str) -> dict[ItemState, int]:
    """Count the items of a job in each state, zeros included, row by row.

    For decisions within a transaction, whose events are applied to the projections at its end.
    """
    query = select(items.c.state, func.count()).where(items.c.job_id == job).group_by(items.c.state)
    found = {ItemState(state): count for state, count in connection.execute(query)}
    return {state: found.get(state, 0) for state in ItemState}


class Queue(Repository):
    """The items of all jobs in one database."""

    @writes
    def enqueue(self, connection: Connection, discovered: Discovered) -> int | None:
        """Enqueue new items, with the cursor; return how many items the job has now.

        None when there is no limit and discovery continues: then they are not counted.
        """
        return enqueue_items(connection, discovered)

    @writes
    def lease(self, connection: Connection, claim: Claim) -> list[Lease]:
        """Lease due items to a worker, of each domain the highest priority first."""
        if claim.only is not None:
            return lease_domain(connection, claim, claim.only, claim.count)
        leases: list[Lease] = []
        domains = queued_domains(connection, claim.job)
        for domain in sorted(domains, key=lambda name: (name <= claim.last, name)):
            count = min(claim.count, claim.room - len(leases))
            if count > 0 and domain not in claim.without:
                leases += lease_domain(connection, claim, domain, count)
        return leases

    async def complete_all(self, attempts: list[LeasedOutcome]) -> list[ItemState | LeaseLost]:
        """Commit outcomes together; return the new state of each item, or LeaseLost.

        A result that no database can store (a lone surrogate, for example) is quarantined, and does
        not affect the others.
        """
        return await complete_storable(
            lambda some: self._database.write(complete_all, some), attempts
        )

    @writes
    def release(self, connection: Connection, leases: Sequence[Lease]) -> None:
        """Queue leased items again that were not begun; outdated leases are ignored."""
        if leases:
            values = [{"b_id": lease.id, "b_token": lease.token} for lease in leases]
            connection.execute(_RELEASE, values)

    @writes
    def renew(
        self, connection: Connection, held: Sequence[tuple[str, str]], at: float, until: float
    ) -> None:
        """Renew all leases and discoveries of owners, given as pairs of job and owner."""
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
        # Another process may have paused the job when it was stopped, while this one continues. On
        # a cluster only a person or the sweeper pauses a job.
        is_left = (jobs.c.state == JobState.PAUSED) & jobs.c.reason.is_distinct_from(PAUSED_BY_USER)
        continued = connection.scalars(
            update(jobs)
            .where(jobs.c.id.in_(ids), is_left, jobs.c.engine == "local")
            .values(state=JobState.RUNNING, reason=None)
            .returning(jobs.c.id)
        )
        append_events(connection, [event_row(job, at, "job.continued") for job in continued])

    @writes
    def reclaim(self, connection: Connection, wanted: Reclaim) -> Reclaimed:
        """Requeue the items of dead owners, and isolate items that may have killed them."""
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
            .with_for_update(skip_locked=True)  # the owner of a locked item is committing it
        ).all()
        suspects = [row for row in held if wanted.is_suspect(row.id, row.lease_owner)]
        lethal = [row for row in suspects if row.deaths + 1 >= MOST_DEATHS]
        this_item = update(items).where(items.c.id == bindparam("b_id"))
        if held:
            queue_again = this_item.values(
                state=ItemState.QUEUED, lease_owner=None, lease_until=None
            )
            connection.execute(queue_again, [{"b_id": row.id} for row in held])
            event = event_row(
                wanted.job, wanted.at, "leases.reclaimed", items=len(held) - len(lethal)
            )
            if suspects:
                event["data"]["suspects"] = len(suspects) - len(lethal)
                count_death = this_item.values(deaths=items.c.deaths + 1)
                connection.execute(count_death, [{"b_id": row.id} for row in suspects])
            for row in lethal:
                _quarantine_lethal(connection, wanted, row)
            append_events(connection, [event])
        is_leased = exists().where(
            items.c.job_id == wanted.job,
            items.c.state == ItemState.LEASED,
            items.c.lease_owner == chunks.c.owner,
        )
        is_orphaned = (chunks.c.taken_at < wanted.at - _ORPHANED) & ~is_leased
        owners = [*gone, *{row.lease_owner for row in held}]
        lost = connection.execute(
            update(chunks)
            .where(
                chunks.c.job_id == wanted.job,
                chunks.c.state == ChunkState.TAKEN,
                or_(chunks.c.owner.in_(owners), is_orphaned),
            )
            .values(state=ChunkState.LOST, finished_at=wanted.at)
        )
        return Reclaimed(len(held) - len(lethal), len(lethal), lost.rowcount)

    @reads
    def holders(self, connection: Connection, ids: Sequence[str]) -> list[tuple[str, str, float]]:
        """Return job, owner and first expiry of the leases of these jobs."""
        query = (
            select(items.c.job_id, items.c.lease_owner, func.min(items.c.lease_until))
            .where(items.c.job_id.in_(ids), items.c.state == ItemState.LEASED)
            .group_by(items.c.job_id, items.c.lease_owner)
        )
        return [(job, owner, until) for job, owner, until in connection.execute(query)]

    @reads
    def job_states(
        self, connection: Connection, ids: Sequence[str]
    ) -> dict[str, tuple[JobState, str | None]]:
        """Return the state and reason of each of these jobs; deleted ones are missing."""
        query = select(jobs.c.id, jobs.c.state, jobs.c.reason).where(jobs.c.id.in_(ids))
        return {job: (JobState(state), reason) for job, state, reason in connection.execute(query)}

    @reads
    def owners(self, connection: Connection, job: str, at: float | None = None) -> list[str]:
        """Return the owners of leases of a job and of its discovery; with `at`, of valid ones."""
        return lease_owners(connection, job, at)

    @reads
    def owners_of(
        self, connection: Connection, ids: Sequence[str], at: float
    ) -> dict[str, list[str]]:
        """Return the owners of valid leases of several jobs, and of their discovery."""
        leased = (
            select(items.c.job_id, items.c.lease_owner)
            .where(items.c.job_id.in_(ids), items.c.state == ItemState.LEASED)
            .where(items.c.lease_until > at)
            .distinct()
        )
        discovering = select(jobs.c.id, jobs.c.discovery_owner).where(
            jobs.c.id.in_(ids), jobs.c.discovery_until > at
        )
        found: dict[str, list[str]] = {job: [] for job in ids}
        for job, owner in connection.execute(leased.union(discovering)):
            if owner is not None:
                found[job].append(owner)
        return found

    @reads
    def counts(self, connection: Connection, job: str) -> dict[ItemState, int]:
        """Return how many items are in each state."""
        return _read_counts(connection, [job])[job]

    @reads
    def counts_of(
        self, connection: Connection, ids: Sequence[str]
    ) -> dict[str, dict[ItemState, int]]:
        """Return how many items of each of these jobs are in each state."""
        return _read_counts(connection, ids)

    @reads
    def progress(self, connection: Connection, ids: Sequence[str]) -> dict[str, JobCounts]:
        """Return the progress of each of these jobs, given by whole ids; deleted ones are missing.

        Its duration does not depend on the number of items.
        """
        states = _read_counts(connection, ids)
        counters: dict[str, dict[str, float]] = {job: {} for job in ids}
        for row in connection.execute(select(statistics).where(statistics.c.job_id.in_(ids))):
            counters[row.job_id][row.name] = row.value
        columns = (jobs.c.id, jobs.c.source, jobs.c.state, jobs.c.is_discovered)
        rows = connection.execute(select(*columns).where(jobs.c.id.in_(ids))).all()
        return {
            job: JobCounts(
                job=job,
                source=source,
                state=JobState(state),
                is_discovered=is_discovered,
                counts=states[job],
                statistics=counters[job],
                last_key=connection.scalar(_LAST_KEY, {"b_job": job}),
            )
            for job, source, state, is_discovered in rows
        }

    @reads
    def next_due(self, connection: Connection, job: str) -> float | None:
        """Return when the next queued item is due; None when none is queued."""
        query = select(func.min(items.c.due_at)).where(_QUEUED)
        due: float | None = connection.scalar(query, {"b_job": job})
        return due

    @reads
    def is_due(self, connection: Connection, job: str, at: float) -> bool:
        """Return whether a queued item is due; unlike `next_due`, it reads one row."""
        query = select(exists().where(_QUEUED, items.c.due_at <= at))
        return bool(connection.scalar(query, {"b_job": job}))

    @reads
    def deferred_among(self, connection: Connection, ids: Sequence[str], at: float) -> set[str]:
        """Return those of these jobs that have queued items of which none is due."""
        queued = exists().where(items.c.job_id == jobs.c.id, items.c.state == ItemState.QUEUED)
        due = queued.where(items.c.due_at <= at)
        query = select(jobs.c.id).where(jobs.c.id.in_(ids), queued, ~due)
        return set(connection.scalars(query))

    @reads
    def active_among(self, connection: Connection, ids: Sequence[str], since: float) -> set[str]:
        """Return those of these jobs that have started, or finished an item, after a time."""
        has_finished = exists().where(items.c.job_id == jobs.c.id, items.c.finished_at > since)
        has_started = exists().where(
            events.c.job_id == jobs.c.id, events.c.type.in_(_STARTS), events.c.at > since
        )
        query = select(jobs.c.id).where(jobs.c.id.in_(ids), or_(has_finished, has_started))
        return set(connection.scalars(query))

    @reads
    def waiting(self, connection: Connection, job: str) -> dict[str, Waiting]:
        """Return the queued items by domain."""
        blocked = func.sum(case((items.c.kind == FailureKind.BLOCKED, 1), else_=0))
        due, reason = func.min(items.c.due_at), func.max(items.c.reason)
        query = (
            select(items.c.domain, func.count(), due, blocked, reason)
            .where(_QUEUED)
            .group_by(items.c.domain)
        )
        return {
            domain: Waiting(count, due, reason if bans == count else None)
            for domain, count, due, bans, reason in connection.execute(query, {"b_job": job})
        }

    @writes
    def defer_domain(
        self, connection: Connection, job: str, domain: str, until: float, *, kind: str, reason: str
    ) -> int:
        """Defer the queued items of a domain that are due earlier; return how many."""
        deferred = connection.execute(
            update(items)
            .where(
                items.c.job_id == job,
                items.c.state == ItemState.QUEUED,
                items.c.domain == domain,
                items.c.due_at < until,
            )
            .values(due_at=until, kind=kind, reason=reason)
        )
        return deferred.rowcount

    @writes
    def make_due(self, connection: Connection, domain: str) -> int:
        """Make the deferred items of a domain due now, in every job; return how many."""
        is_deferred = (items.c.state == ItemState.QUEUED) & (items.c.due_at > 0)
        changed = connection.execute(
            update(items).where(is_deferred, items.c.domain == domain).values(due_at=0.0)
        )
        return changed.rowcount

    @writes
    def skip_queued(
        self, connection: Connection, job: str, kind: FailureKind, reason: str, at: float
    ) -> int:
        """Skip all queued items, for a failure of this kind; return how many."""
        skipped = connection.execute(
            update(items)
            .where(items.c.job_id == job, items.c.state == ItemState.QUEUED)
            .values(state=ItemState.SKIPPED, kind=kind, reason=reason, finished_at=at)
        )
        if count := skipped.rowcount:
            event = event_row(job, at, "items.skipped", items=count, reason=reason, failure=kind)
            append_events(connection, [event])
            add_statistics(connection, [(job, {"items/skipped": count})])
        return count

    @writes
    def skip_before(
        self, connection: Connection, job: str, key: str, reason: str, at: float
    ) -> int | None:
        """Skip unfinished items discovered before `key`; None when there is no such item.

        No attempt at them has ended, so `finished_at` stays empty: they are not extracted again.
        """
        place = connection.scalar(
            select(items.c.id).where(items.c.job_id == job, items.c.key == key)
        )
        if place is None:
            return None
        skipped = connection.execute(
            update(items)
            .where(
                items.c.job_id == job,
                items.c.state.not_in(FINAL_STATES),  # leased ones, too: of a killed worker
                items.c.id < place,
            )
            .values(state=ItemState.SKIPPED, reason=reason, lease_owner=None, lease_until=None)
        )
        if count := skipped.rowcount:
            event = event_row(job, at, "items.skipped", items=count, reason=reason)
            append_events(connection, [event])
            add_statistics(connection, [(job, {"items/skipped": count})])
        return count

    @reads
    def rows(self, connection: Connection, job: str) -> list[dict[str, Any]]:
        """Return all items as rows, in the order of discovery."""
        query = select(items).where(items.c.job_id == job).order_by(items.c.id)
        return plain_rows(connection.execute(query).mappings())

    @reads
    def finished(self, connection: Connection, job: str) -> list[dict[str, Any]]:
        """Return the finished items as rows, in the order of discovery."""
        is_finished = (items.c.job_id == job) & items.c.state.in_(FINAL_STATES)
        query = select(items).where(is_finished).order_by(items.c.id)
        return plain_rows(connection.execute(query).mappings())


def _read_counts(connection: Connection, ids: Sequence[str]) -> dict[str, dict[ItemState, int]]:
    """Return the items of jobs by state, from the projection of runs.

    It has one count for unfinished items; those that are leased are few, and are counted.
    """
    is_leased = (items.c.job_id.in_(ids)) & (items.c.state == ItemState.LEASED)
    query = select(items.c.job_id, func.count()).where(is_leased).group_by(items.c.job_id)
    states = {job: dict.fromkeys(ItemState, 0) for job in ids}
    for job, count in connection.execute(query):
        states[job][ItemState.LEASED] = count
    for row in read_rows(connection, "runs", keys=ids):
        mine = states[row["job"]]
        for state, count in row["items"].items():
            if state == "open":
                mine[ItemState.QUEUED] = count - mine[ItemState.LEASED]
            else:
                mine[ItemState(state)] = count
    return states


def _quarantine_lethal(connection: Connection, reclaim: Reclaim, row: Any) -> None:
    deaths = row.deaths + 1
    last = "the last one was processing only this item"
    reason = f"{deaths} workers died while processing this item; {last}"
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
    data = {"failure": FailureKind.BUG, "reason": reason, "deaths": deaths}
    event = event_row(reclaim.job, reclaim.at, "item.quarantined", key=row.key, **data)
    append_events(connection, [event])
