"""Events and statistics: facts appended and figures added up, inside somebody's transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from longline.core.model import Event, Usage
from longline.storage.bulk import BulkInsert, as_kept_json
from longline.storage.database import Database
from longline.storage.schema import events, statistics
from longline.storage.transactions import do_last

EventRow = dict[str, Any]


def event_row(job: str, at: float, kind: str, *, key: str | None = None, **data: Any) -> EventRow:
    """Return an event as a row, to be appended by `append`."""
    return {"job_id": job, "at": at, "kind": kind, "key": key, "data": data}


def happened(job: str, key: str | None, at: float, usage: Usage) -> list[EventRow]:
    """Return what the request chain wants to be remembered of one try, as rows."""
    return [event_row(job, at, one.kind, key=key, **one.data) for one in usage.events]


_APPEND = BulkInsert(events, ("job_id", "at", "kind", "key", "data"))


def append(connection: Connection, facts: list[EventRow]) -> None:
    """Append events."""
    if facts:
        _APPEND.run(connection, [{**one, "data": as_kept_json(one["data"])} for one in facts])


def add_statistics(
    connection: Connection, amounts: Iterable[tuple[str, Mapping[str, float]]]
) -> None:
    """Add amounts to the statistics of jobs, at the end of the transaction."""
    for amount in amounts:
        do_last(connection, _add_all, amount)


def _add_all(connection: Connection, amounts: list[tuple[str, Mapping[str, float]]]) -> None:
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for job, counts in amounts:
        for name, value in counts.items():
            sums[job, name] += value
    # In the same order everywhere: two that add to the same rows must not wait for each other.
    rows = [{"job_id": job, "name": name, "value": sums[job, name]} for job, name in sorted(sums)]
    _ADD[connection.dialect.name].run(connection, rows)


def _addition(module: Any) -> BulkInsert:
    def add(row: Any) -> Any:
        return row.on_conflict_do_update(
            index_elements=["job_id", "name"],
            set_={"value": statistics.c.value + row.excluded.value},
        )

    names = ("job_id", "name", "value")
    return BulkInsert(statistics, names, start=module.insert, finish=add)


_ADD = {"sqlite": _addition(sqlite), "postgresql": _addition(postgresql)}


class EventLog:
    """What happened in a job, for those who look."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, *facts: EventRow) -> None:
        """Append events in a transaction of their own."""
        await self._database.write(append, list(facts))

    async def add_statistics(self, job: str, counts: Mapping[str, float]) -> None:
        """Add to the statistics of a job in a transaction of its own."""
        await self._database.write(add_statistics, [(job, counts)])

    async def statistics(self, job: str) -> dict[str, float]:
        """Return the figures of a job by name; what never happened is absent."""
        query = select(statistics.c.name, statistics.c.value).where(statistics.c.job_id == job)
        return await self._database.read(
            lambda connection: {row.name: row.value for row in connection.execute(query)}
        )

    async def events(
        self, job: str, *, kind: str | None = None, limit: int = 1000, with_items: bool = True
    ) -> list[Event]:
        """Return the events of a job, oldest first; those that are about an item `with_items`."""
        query = select(events).where(events.c.job_id == job).order_by(events.c.id).limit(limit)
        if kind:
            query = query.where(events.c.kind == kind)
        if not with_items:
            query = query.where(events.c.key.is_(None))
        return await self._database.read(
            lambda connection: [Event(*row) for row in connection.execute(query)]
        )
