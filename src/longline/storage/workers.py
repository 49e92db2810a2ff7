"""Registered workers of a cluster: started, stopped or lost, each once and with its event.

A worker holds a lease of its own and renews it. The process that deletes the lease of a worker that
no longer renews it reports the worker as lost, so it is reported once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, or_, select, update

from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.schema import leaders

_PREFIX = "worker/"
IS_WORKER = leaders.c.name.startswith(_PREFIX, autoescape=True)
"""The condition of leases of workers."""


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """A worker; `owner` is its process, `until` the time at which its lease ends."""

    name: str
    owner: str
    until: float


OwnerList = list[str]
WorkerList = list[RegisteredWorker]  # spelled out here: `Workers.list` hides the builtin below it


class Workers(Repository):
    """The registered workers; `owner` is the process of one, such as `HOST:PID:…`."""

    @writes
    def renew(
        self, connection: Connection, worker: str, owner: str, at: float, until: float
    ) -> None:
        """Register a worker until a time, or renew that."""
        name = _lease_name(worker, owner)
        renewed = connection.execute(
            update(leaders).where(leaders.c.name == name).values(until=until)
        )
        if not renewed.rowcount:  # also when it was presumed lost
            connection.execute(insert(leaders), {"name": name, "owner": owner, "until": until})
            _append(connection, at, "worker.started", worker, owner)

    @writes
    def stop(self, connection: Connection, worker: str, owner: str, at: float) -> None:
        """Remove a worker that has shut down cleanly."""
        is_own = leaders.c.name == _lease_name(worker, owner)
        if connection.execute(delete(leaders).where(is_own)).rowcount:
            _append(connection, at, "worker.stopped", worker, owner)

    @reads
    def owners(self, connection: Connection) -> OwnerList:
        """Return the processes of the registered workers."""
        return [*connection.scalars(select(leaders.c.owner).where(IS_WORKER))]

    @reads
    def list(self, connection: Connection) -> WorkerList:
        """Return the registered workers, by name."""
        query = select(leaders).where(IS_WORKER).order_by(leaders.c.name)
        return [
            RegisteredWorker(
                row.name.removeprefix(_PREFIX).removesuffix(f"/{row.owner}"), row.owner, row.until
            )
            for row in connection.execute(query)
        ]

    @writes
    def remove_lost(
        self, connection: Connection, at: float, dead: Sequence[str], *, with_expired: bool
    ) -> OwnerList:
        """Remove the workers of dead processes, and those that were not renewed; return them."""
        latest = at if with_expired else 0.0
        removed = (
            delete(leaders)
            .where(IS_WORKER, or_(leaders.c.owner.in_(dead), leaders.c.until < latest))
            .returning(leaders.c.name, leaders.c.owner)
        )
        workers = []
        for name, owner in sorted(connection.execute(removed).all()):
            worker = name.removeprefix(_PREFIX).removesuffix(f"/{owner}")
            reason = "its process has ended" if owner in dead else "it sends no heartbeat"
            _append(connection, at, "worker.lost", worker, owner, reason=reason)
            workers.append(worker)
        return workers


def _lease_name(worker: str, owner: str) -> str:
    # Workers may have the same name by mistake; their processes differ.
    return f"{_PREFIX}{worker}/{owner}"


def _append(
    connection: Connection, at: float, name: str, worker: str, owner: str, **data: str
) -> None:
    host, pid, *_ = owner.split(":")
    event = event_row(None, at, name, worker=worker, host=host, pid=int(pid), **data)
    append_events(connection, [event])
