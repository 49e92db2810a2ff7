"""Leases: given to one worker at a time, put back, kept, taken over."""

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
    func,
    or_,
    select,
    update,
)
from sqlalchemy import exists as exists_row

from longline.core.errors import FailureKind
from longline.core.model import ChunkState, Failure, Item, ItemState, JobState, Lease, Usage
from longline.storage.events import append_events, event_row
from longline.storage.queue.failures import note_failures
from longline.storage.schema import chunks, items, jobs

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
