"""Leaders: what only one of many processes may do, until it is not heard of in time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from longline.core.clock import Clock
from longline.limits.backends.base import Result, State, StateBackend, Update
from longline.storage.columns import decoding
from longline.storage.database import Database
from longline.storage.schema import cells, jobs, leaders

_INSERTS = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


class Leaders:
    """Who leads in what, in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, name: str, owner: str, at: float, until: float) -> bool:
        """Become the leader, or stay it, until a moment; False when another is."""
        is_leader: bool = await self._database.write(_take, (name, owner, at, until))
        return is_leader

    async def give_up(self, name: str, owner: str) -> None:
        """Let the next one lead at once; nothing happens when another leads."""
        await self._database.write(_give_up, (name, owner))


def _take(connection: Connection, argument: tuple[str, str, float, float]) -> bool:
    name, owner, at, until = argument
    start: Any = _INSERTS[connection.dialect.name]
    taken = connection.scalar(
        start(leaders)
        .values(name=name, owner=owner, until=until)
        .on_conflict_do_update(
            index_elements=["name"],
            set_={"owner": owner, "until": until},
            where=or_(leaders.c.owner == owner, leaders.c.until < at),
        )
        .returning(leaders.c.name)
    )
    return taken is not None


def _give_up(connection: Connection, argument: tuple[str, str]) -> None:
    name, owner = argument
    connection.execute(delete(leaders).where(leaders.c.name == name, leaders.c.owner == owner))


# ---------------- Locks that last until the transaction ends; SQLite's one writer has them all

# "Key share" lets others add rows that refer to the job meanwhile, which a full lock would not.
_JOB = select(jobs.c.id).where(jobs.c.id == bindparam("b_job")).with_for_update(key_share=True)
_NAME = text("SELECT pg_advisory_xact_lock(:key)")


def lock_job(connection: Connection, job: str) -> None:
    """Wait until no other transaction adds to this job or ends it, and keep it so."""
    if connection.dialect.name != "sqlite":
        connection.execute(_JOB, {"b_job": job})


def lock_name(connection: Connection, name: str) -> None:
    """Wait until no other transaction has locked this name, of something that is no row yet."""
    if connection.dialect.name != "sqlite":
        digest = hashlib.sha256(name.encode()).digest()
        connection.execute(_NAME, {"key": int.from_bytes(digest[:8], signed=True)})


# ---------------- Small named values in the database, for what the processes of a cluster must


class DatabaseCells(StateBackend[State]):
    """Values as JSON in one table; `room` keeps those of one use apart from the others'."""

    def __init__(self, database: Database, room: str, kind: type[State], clock: Clock) -> None:
        self._database = database
        self._room = room
        self._kind = kind
        self._clock = clock

    async def change(self, name: str, step: Update[State, Result]) -> Result:
        loop = asyncio.get_running_loop()
        # The time is to be read once the row is held, in the writer's thread, where a clock of the
        # loop (virtual time) cannot be asked. The loop's own time can.
        offset = self._clock.now() - loop.time()
        change = _Change(self._room, name, self._kind, step, lambda: loop.time() + offset)
        answer: Result = await self._database.write(_change, change)
        return answer

    async def read(self, name: str) -> tuple[State | None, float]:
        found = await self._database.read(
            lambda connection: _value(self._kind, connection.scalar(_one(self._room, name)))
        )
        return found, self._clock.now()

    async def all(self) -> dict[str, State]:
        query = select(cells.c.name, cells.c.state).where(cells.c.room == self._room)
        query = query.order_by(cells.c.name)
        return await self._database.read(
            lambda connection: {
                name: _made(self._kind, state) for name, state in connection.execute(query)
            }
        )

    async def forget(self, name: str) -> bool:
        is_gone: bool = await self._database.write(_forget, (self._room, name))
        return is_gone


@dataclass(frozen=True, slots=True)
class _Change:
    room: str
    name: str
    kind: type[Any]
    step: Update[Any, Any]
    now: Callable[[], float]


def _one(room: str, name: str) -> Any:
    return select(cells.c.state).where(cells.c.room == room, cells.c.name == name)


def _value(kind: type[State], found: Mapping[str, Any] | None) -> State | None:
    return None if found is None else _made(kind, found)


def _made(kind: type[State], state: Mapping[str, Any]) -> State:
    with decoding(cells.c.state):
        return kind(**state)


def _change(connection: Connection, change: _Change) -> Any:
    found = connection.scalar(_one(change.room, change.name).with_for_update())
    value = _value(change.kind, found)
    changed, answer = change.step(value, change.now())
    if changed is None or changed == value:
        return answer
    state = asdict(changed)
    if found is None:
        row = {"room": change.room, "name": change.name, "state": state}
        connection.execute(insert(cells), row)
    else:
        place = (cells.c.room == change.room) & (cells.c.name == change.name)
        connection.execute(update(cells).where(place).values(state=state))
    return answer


def _forget(connection: Connection, argument: tuple[str, str]) -> bool:
    room, name = argument
    gone = connection.execute(delete(cells).where(cells.c.room == room, cells.c.name == name))
    return gone.rowcount == 1
