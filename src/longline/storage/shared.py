"""State that processes share through the database: leaders, locks and small named values."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, text, update

from longline.core.clock import Clock
from longline.limits.backends.state import Result, State, StateBackend, Update
from longline.storage.bulk import upsert
from longline.storage.columns import decoding
from longline.storage.database import Database, Repository, writes
from longline.storage.schema import cells, jobs, leaders


class Leaders(Repository):
    """Leader leases: only one process may hold a name, until it fails to renew it in time."""

    @writes
    def take(self, connection: Connection, name: str, owner: str, at: float, until: float) -> bool:
        """Become the leader, or stay it, until a time; False when another process is."""
        statement = (
            upsert(connection, leaders)
            .values(name=name, owner=owner, until=until)
            .on_conflict_do_update(
                index_elements=["name"],
                set_={"owner": owner, "until": until},
                where=or_(leaders.c.owner == owner, leaders.c.until < at),
            )
            .returning(leaders.c.name)
        )
        return connection.scalar(statement) is not None

    @writes
    def give_up(self, connection: Connection, name: str, owner: str) -> None:
        """Release the name if `owner` holds it."""
        connection.execute(delete(leaders).where(leaders.c.name == name, leaders.c.owner == owner))


# ---------------- Locks until the end of the transaction; SQLite's single writer needs none

# "Key share" lets other transactions insert rows that refer to the job.
_LOCK_JOB = select(jobs.c.id).where(jobs.c.id == bindparam("b_job")).with_for_update(key_share=True)
_LOCK_NAME = text("SELECT pg_advisory_xact_lock(:key)")


def lock_job(connection: Connection, job: str) -> None:
    """Wait until no other transaction adds to this job or ends it, and keep others out."""
    if connection.dialect.name != "sqlite":
        connection.execute(_LOCK_JOB, {"b_job": job})


def lock_name(connection: Connection, name: str) -> None:
    """Wait for a lock on a name that is not a row yet."""
    if connection.dialect.name != "sqlite":
        digest = hashlib.sha256(name.encode()).digest()
        connection.execute(_LOCK_NAME, {"key": int.from_bytes(digest[:8], signed=True)})


# ---------------- Small named values as JSON in one table


class DatabaseStateBackend(StateBackend[State]):
    """Values of one kind; `room` separates them from those of other kinds."""

    def __init__(self, database: Database, room: str, kind: type[State], clock: Clock) -> None:
        self._database = database
        self._room = room
        self._kind = kind
        self._clock = clock

    async def change(self, name: str, step: Update[State, Result]) -> Result:
        loop = asyncio.get_running_loop()
        # The time is read after the row is locked, in the writer's thread, where a clock that
        # belongs to the loop (virtual time) cannot be read. The loop's own time can.
        offset = self._clock.now() - loop.time()

        def apply(connection: Connection) -> Result:
            state = connection.scalar(self._select(name).with_for_update())
            value = self._decode(state)
            changed, answer = step(value, loop.time() + offset)
            if changed is None or changed == value:
                return answer
            values = asdict(changed)  # type: ignore[call-overload]  # a dataclass, which the type variable cannot say
            if state is None:
                row = {"room": self._room, "name": name, "state": values}
                connection.execute(insert(cells), row)
            else:
                connection.execute(update(cells).where(self._at(name)).values(state=values))
            return answer

        return await self._database.write(apply)

    async def read(self, name: str) -> tuple[State | None, float]:
        found = await self._database.read(
            lambda connection: self._decode(connection.scalar(self._select(name)))
        )
        return found, self._clock.now()

    async def all(self) -> dict[str, State]:
        query = select(cells.c.name, cells.c.state).where(cells.c.room == self._room)
        query = query.order_by(cells.c.name)

        def read(connection: Connection) -> dict[str, State]:
            with decoding(cells.c.state):
                return {name: self._kind(**state) for name, state in connection.execute(query)}

        return await self._database.read(read)

    async def forget(self, name: str) -> bool:
        statement = delete(cells).where(self._at(name))
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )

    def _at(self, name: str) -> Any:
        return (cells.c.room == self._room) & (cells.c.name == name)

    def _select(self, name: str) -> Any:
        return select(cells.c.state).where(self._at(name))

    def _decode(self, state: Mapping[str, Any] | None) -> State | None:
        with decoding(cells.c.state):
            return None if state is None else self._kind(**state)
