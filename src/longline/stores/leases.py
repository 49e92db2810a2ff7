"""Leases after they were given: put back, kept, taken over."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, or_, select, update

from longline.model import ItemState, Lease
from longline.stores.journal import append, fact
from longline.stores.schema import items, jobs


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


def renew(connection: Connection, argument: tuple[str, str, float]) -> None:
    """Keep all leases of an owner, and its discovery, until a later moment."""
    job, owner, until = argument
    connection.execute(
        update(items)
        .where(
            items.c.job_id == job,
            items.c.state == ItemState.LEASED,
            items.c.lease_owner == owner,
        )
        .values(lease_until=until)
    )
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job, jobs.c.discovery_owner == owner)
        .values(discovery_until=until)
    )


def reclaim(connection: Connection, argument: tuple[str, float, Sequence[str]]) -> int:
    """Take back leases that are expired or whose owners are dead; return how many."""
    job, at, dead = argument
    freed = connection.execute(
        update(items)
        .where(
            items.c.job_id == job,
            items.c.state == ItemState.LEASED,
            or_(items.c.lease_until < at, items.c.lease_owner.in_(list(dead))),
        )
        .values(state=ItemState.QUEUED, lease_owner=None, lease_until=None)
    )
    if freed.rowcount:
        append(connection, [fact(job, at, "leases.reclaimed", items=freed.rowcount)])
    return freed.rowcount


def owners(connection: Connection, job: str) -> list[str]:
    """Return who holds leases of a job, or its discovery."""
    holders = (
        select(items.c.lease_owner)
        .where(items.c.job_id == job, items.c.state == ItemState.LEASED)
        .distinct()
    )
    finders = select(jobs.c.discovery_owner).where(jobs.c.id == job)
    found = connection.scalars(holders.union(finders))
    return [owner for owner in found if owner is not None]
