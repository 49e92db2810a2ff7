"""Leaders: what only one of many processes may do, until it is not heard of in time."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, or_
from sqlalchemy.dialects import postgresql, sqlite

from longline.stores.database import Database
from longline.stores.schema import leaders

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
