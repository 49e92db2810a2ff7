"""Small named values in the database, for what the processes of a cluster must not forget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from longline.clock import Clock
from longline.resilience.keepers.cells import Answer, Cells, State, Step
from longline.stores.columns import decoding
from longline.stores.database import Database
from longline.stores.schema import cells


class DatabaseCells(Cells[State]):
    """Values as JSON in one table; `room` keeps those of one use apart from the others'."""

    def __init__(self, database: Database, room: str, kind: type[State], clock: Clock) -> None:
        self._database = database
        self._room = room
        self._kind = kind
        self._clock = clock

    async def change(self, name: str, step: Step[State, Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        # The time is to be read once the row is held, in the writer's thread, where a clock of the
        # loop (virtual time) cannot be asked. The loop's own time can.
        offset = self._clock.now() - loop.time()
        change = _Change(self._room, name, self._kind, step, lambda: loop.time() + offset)
        answer: Answer = await self._database.write(_change, change)
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
    step: Step[Any, Any]
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
