"""Orders: what is to be done once for a whole job, by one process at a time, until it is done.

They stand among the small values (`cells`), in a room of their own. Whoever holds one keeps it by
signs of life; of one that is silent or dead, another takes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson
from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from longline.core.model import OPEN_STATES, JobState
from longline.storage.database import Database
from longline.storage.events import EventRow, append_events, event_row
from longline.storage.queue.queue import MOST_DEATHS
from longline.storage.schema import cells, jobs

ROOM = "orders"
_INSERTS = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class TaskKind(StrEnum):
    """What is to be done for a job."""

    EXPORT = "export"
    """Write its records; `what` says where and as what."""
    FINISHED = "finished"
    """Tell its source that it is complete."""


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be done for a job; `is_after_end`: only once that has ended.

    `owner` does so until `until`, unless it gives signs of life; `deaths` counts those who were
    killed over it.
    """

    job: str
    kind: TaskKind
    placed_at: float
    what: Mapping[str, Any] = field(default_factory=dict)
    is_after_end: bool = False
    owner: str | None = None
    until: float = 0.0
    deaths: int = 0

    @property
    def name(self) -> str:
        """What it is known by: the same wish for the same job is the same order."""
        if not self.what:
            return f"{self.job}/{self.kind}"
        said = orjson.dumps([self.is_after_end, self.what], option=orjson.OPT_SORT_KEYS)
        return f"{self.job}/{self.kind}/{hashlib.sha256(said).hexdigest()[:12]}"

    def is_free(self, at: float, dead: Sequence[str]) -> bool:
        """Say whether nobody holds it who may be alive."""
        return self.owner is None or self.until < at or self.owner in dead

    def failed(self, at: float, reason: str) -> EventRow:
        """Return the event that tells why it was given up."""
        return self._told(at, "failed", reason=reason)

    def dropped(self, at: float) -> EventRow:
        """Return the event that tells that it was not wanted any more."""
        return self._told(at, "dropped")

    def _told(self, at: float, end: str, **more: str) -> EventRow:
        kind = "export" if self.kind is TaskKind.EXPORT else "source.finished"
        where = {"output": self.what["output"]} if "output" in self.what else {}
        return event_row(self.job, at, f"{kind}.{end}", **where, **more)


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """A process's wish for an order; `dead` owners are gone, `killed` ones died of it alone."""

    order: Task
    owner: str
    at: float
    until: float
    dead: Sequence[str] = ()
    killed: Sequence[str] = ()


class TaskQueue:
    """The orders of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def place(self, order: Task) -> None:
        """Have something done; one that was placed before is placed anew."""
        await self._database.write(place, order)

    async def ready(self, before: float) -> list[Task]:
        """Return what could have been done since a moment, the oldest first, whoever is at it."""
        return await self._database.read(lambda connection: _ready(connection, before))

    async def of(self, job: str) -> list[Task]:
        """Return what is to be done for a job, the oldest first, whether it is time or not."""
        return await self._database.read(lambda connection: _of(connection, job))

    async def drop(self, order: Task, at: float, dead: Sequence[str]) -> bool:
        """Have an order not carried out, which the job's journal tells.

        False when it is done by now, or somebody is at it who is not among the `dead`.
        """
        is_dropped: bool = await self._database.write(_drop, (order, at, dead))
        return is_dropped

    async def take(self, claim: TaskClaim) -> Task | None:
        """Become the one who does it; None when somebody living is at it, or it is done.

        One that three processes were killed over is given up, which the job's journal tells.
        """
        taken: Task | None = await self._database.write(_take, claim)
        return taken

    async def keep(self, order: Task, until: float) -> bool:
        """Go on holding an order; False when it is another's by now."""
        is_kept: bool = await self._database.write(_keep, (order, until))
        return is_kept

    async def done(self, order: Task, *told: EventRow) -> bool:
        """Drop an order, and tell the journal what came of it; False when it is another's."""
        is_ours: bool = await self._database.write(_done, (order, told))
        return is_ours


def place(connection: Connection, order: Task) -> None:
    """Place an order in the caller's transaction."""
    start: Any = _INSERTS[connection.dialect.name]
    state = asdict(order)
    row = start(cells).values(room=ROOM, name=order.name, state=state)
    connection.execute(
        row.on_conflict_do_update(index_elements=["room", "name"], set_={"state": state})
    )


def _order(state: Mapping[str, Any]) -> Task:
    return Task(**{**state, "kind": TaskKind(state["kind"])})


def _all(connection: Connection) -> list[Task]:
    query = select(cells.c.state).where(cells.c.room == ROOM)
    return [_order(state) for state in connection.scalars(query)]


def _of(connection: Connection, job: str) -> list[Task]:
    found = [order for order in _all(connection) if order.job == job]
    return sorted(found, key=lambda order: (order.placed_at, order.name))


def _ready(connection: Connection, before: float) -> list[Task]:
    found = _all(connection)
    if not found:
        return []
    ended = _ended(connection, {order.job for order in found if order.is_after_end})
    since = [
        (max(order.placed_at, ended[order.job] if order.is_after_end else 0.0), order)
        for order in found
        if not order.is_after_end or order.job in ended
    ]
    due = [(at, order) for at, order in since if at <= before]
    return [order for _, order in sorted(due, key=lambda one: (one[0], one[1].name))]


def _ended(connection: Connection, names: set[str]) -> dict[str, float]:
    """Return when these jobs ended; those that go on are left out."""
    query = select(jobs.c.id, jobs.c.state, jobs.c.finished_at).where(jobs.c.id.in_(names))
    return {
        job: at or 0.0
        for job, state, at in connection.execute(query)
        if JobState(state) not in OPEN_STATES
    }


def _place_of(order: Task) -> Any:
    return (cells.c.room == ROOM) & (cells.c.name == order.name)


def _held(connection: Connection, order: Task, *, is_waited_for: bool = True) -> Task | None:
    """Return an order as it is now, kept from others until the transaction ends."""
    query = select(cells.c.state).where(_place_of(order))
    state = connection.scalar(query.with_for_update(skip_locked=not is_waited_for))
    return None if state is None else _order(state)


def _write(connection: Connection, order: Task) -> None:
    connection.execute(update(cells).where(_place_of(order)).values(state=asdict(order)))


def _take(connection: Connection, claim: TaskClaim) -> Task | None:
    found = _held(connection, claim.order, is_waited_for=False)
    if found is None or not found.is_free(claim.at, claim.dead):
        return None
    deaths = found.deaths + (found.owner in claim.killed)
    if deaths >= MOST_DEATHS:
        connection.execute(delete(cells).where(_place_of(found)))
        reason = f"{deaths} workers were killed over it: look at what it needs, memory for example"
        append_events(connection, [found.failed(claim.at, reason)])
        return None
    taken = replace(found, owner=claim.owner, until=claim.until, deaths=deaths)
    _write(connection, taken)
    return taken


def _drop(connection: Connection, argument: tuple[Task, float, Sequence[str]]) -> bool:
    order, at, dead = argument
    found = _held(connection, order)
    if found is None or not found.is_free(at, dead):
        return False
    connection.execute(delete(cells).where(_place_of(found)))
    append_events(connection, [found.dropped(at)])
    return True


def _keep(connection: Connection, argument: tuple[Task, float]) -> bool:
    order, until = argument
    found = _held(connection, order)
    if found is None or found.owner != order.owner:
        return False
    _write(connection, replace(found, until=until))
    return True


def _done(connection: Connection, argument: tuple[Task, Sequence[EventRow]]) -> bool:
    order, told = argument
    found = _held(connection, order)
    if found is None or found.owner != order.owner:
        return False
    connection.execute(delete(cells).where(_place_of(order)))
    append_events(connection, list(told))
    return True
