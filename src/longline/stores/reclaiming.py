"""Taking back what the dead held, and keeping apart what may have killed them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, or_, select, update
from sqlalchemy import exists as exists_row

from longline.errors import FailureKind
from longline.model import Account, ChunkState, Failure, ItemState
from longline.stores.journal import append, fact
from longline.stores.leases import owners
from longline.stores.ledger import note_failures
from longline.stores.schema import chunks, items

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


def reclaim_all(connection: Connection, reclaim: Reclaim) -> Reclaimed:
    """Take back what `reclaim` says."""
    gone = [*reclaim.dead, *reclaim.killed]
    held = connection.execute(
        select(
            *(items.c.id, items.c.key, items.c.url, items.c.tries),
            *(items.c.deaths, items.c.lease_owner),
        )
        .where(
            items.c.job_id == reclaim.job,
            items.c.state == ItemState.LEASED,
            or_(items.c.lease_until < reclaim.at, items.c.lease_owner.in_(gone)),
        )
        .with_for_update(skip_locked=True)  # whose commit is under way is not dead yet
    ).all()
    suspects = [row for row in held if reclaim.is_suspect(row.id, row.lease_owner)]
    lethal = [row for row in suspects if row.deaths + 1 >= MOST_DEATHS]
    _put_back(connection, [row.id for row in held])
    _count_deaths(connection, [row.id for row in suspects])
    _quarantine(connection, reclaim, lethal)
    lost = _lose_chunks(connection, reclaim, [*gone, *{row.lease_owner for row in held}])
    if held:
        told = fact(reclaim.job, reclaim.at, "leases.reclaimed", items=len(held) - len(lethal))
        if suspects:
            told["data"]["suspects"] = len(suspects) - len(lethal)
        append(connection, [told])
    return Reclaimed(len(held) - len(lethal), len(lethal), lost)


def holders(connection: Connection, job: str) -> list[str]:
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
        note_failures(connection, [(reclaim.job, row.key, row.tries, Account(failures=[failure]))])
        told = {"failure": FailureKind.BUG, "reason": reason, "deaths": count}
        append(connection, [fact(reclaim.job, reclaim.at, "item.quarantined", key=row.key, **told)])


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
