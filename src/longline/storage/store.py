"""The database of a home: one attribute per kind of data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update

from longline.core.clock import Clock
from longline.core.lazy_imports import import_now
from longline.limits.backends.state import Result, State, StateBackend, Update
from longline.storage.backends import upsert
from longline.storage.database import TIMEOUT, Database, Repository, open_database, reads, writes
from longline.storage.enrichment import Questions
from longline.storage.events.events import EventLog, Projections, update_projections
from longline.storage.jobs import Jobs
from longline.storage.monitoring.logs import Logs
from longline.storage.profiles import Profiles
from longline.storage.queue.chunks import Chunks
from longline.storage.queue.failures import FailureLog
from longline.storage.queue.quarantine import Quarantine
from longline.storage.queue.queue import Queue
from longline.storage.queue.tasks import TaskQueue
from longline.storage.records import ExportCursors, History, Records
from longline.storage.schema import cells, leaders

if TYPE_CHECKING:
    from longline.storage.access import Credentials, IdempotencyKeys
    from longline.storage.events.subscribers import Subscribers
    from longline.storage.events.webhooks import Webhooks
    from longline.storage.matches import Matches
    from longline.storage.monitoring.alert_inputs import AlertInputReader
    from longline.storage.monitoring.alerts import Alerts
    from longline.storage.monitoring.attention import Attention
    from longline.storage.monitoring.job_items import JobItems
    from longline.storage.monitoring.reports import Reports
    from longline.storage.monitoring.run_history import RunHistory
    from longline.storage.monitoring.totals import Totals
    from longline.storage.proxy_refresh import ProxyRefreshes
    from longline.storage.scheduling.flows import Flows
    from longline.storage.scheduling.launches import Launches
    from longline.storage.scheduling.schedules import Schedules
    from longline.storage.workers import Workers

_LATER = {  # what a plain run does not use is imported when it is first used
    "alert_inputs": "monitoring.alert_inputs.AlertInputReader",
    "alerts": "monitoring.alerts.Alerts",
    "attention": "monitoring.attention.Attention",
    "credentials": "access.Credentials",
    "flows": "scheduling.flows.Flows",
    "idempotency_keys": "access.IdempotencyKeys",
    "job_items": "monitoring.job_items.JobItems",
    "launches": "scheduling.launches.Launches",
    "matches": "matches.Matches",
    "proxy_refreshes": "proxy_refresh.ProxyRefreshes",
    "reports": "monitoring.reports.Reports",
    "run_history": "monitoring.run_history.RunHistory",
    "schedules": "scheduling.schedules.Schedules",
    "subscribers": "events.subscribers.Subscribers",
    "totals": "monitoring.totals.Totals",
    "webhooks": "events.webhooks.Webhooks",
    "workers": "workers.Workers",
}
_EPOCH_NOW = func.extract("epoch", func.clock_timestamp())


class Store:
    """All data of a home; open it with `open_store`."""

    alert_inputs: AlertInputReader
    alerts: Alerts
    attention: Attention
    credentials: Credentials
    flows: Flows
    idempotency_keys: IdempotencyKeys
    job_items: JobItems
    launches: Launches
    matches: Matches
    proxy_refreshes: ProxyRefreshes
    reports: Reports
    run_history: RunHistory
    schedules: Schedules
    subscribers: Subscribers
    totals: Totals
    webhooks: Webhooks
    workers: Workers

    def __init__(self, database: Database) -> None:
        self._database = database
        self.address = database.address
        self.jobs = Jobs(database)
        self.queue = Queue(database)
        self.records = Records(database)
        self.history = History(database)
        self.events = EventLog(database)
        self.projections = Projections(database)
        self.logs = Logs(database)
        self.failures = FailureLog(database)
        self.quarantine = Quarantine(database)
        self.questions = Questions(database)
        self.profiles = Profiles(database)
        self.export_cursors = ExportCursors(database)
        self.chunks = Chunks(database)
        self.leaders = Leaders(database)
        self.tasks = TaskQueue(database)

    def __getattr__(self, name: str) -> Any:
        if name not in _LATER:
            message = f"the store has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        module, _, kind = _LATER[name].rpartition(".")
        repository = getattr(import_now(f"longline.storage.{module}"), kind)(self._database)
        setattr(self, name, repository)
        return repository

    def state_backend(
        self, room: str, kind: type[State], clock: Clock
    ) -> DatabaseStateBackend[State]:
        """Return small values that all processes on this database share."""
        return DatabaseStateBackend(self._database, room, kind, clock)

    async def now(self) -> float:
        """Return the database's time, which all machines that share it use."""

        def read(connection: Connection) -> float:
            if connection.dialect.name == "sqlite":  # a file on this machine
                return time.time()
            return float(connection.scalar(select(_EPOCH_NOW)) or 0.0)

        return await self._database.read(read)

    def close(self, within: float | None = None) -> bool:
        """Close it as `Database.close` does."""
        return self._database.close(within)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(
    address: str, *, timeout: float = TIMEOUT, is_stopping: Callable[[], bool] = lambda: False
) -> Store:
    """Open the store at a SQLAlchemy URL, with the arguments and errors of `open_database`."""
    return Store(
        open_database(address, timeout=timeout, is_stopping=is_stopping, prepare=update_projections)
    )


# ---------------- State that processes share


class Leaders(Repository):
    """Leader leases: only one process may hold a name, until it fails to renew it in time."""

    @writes
    def acquire(
        self, connection: Connection, name: str, owner: str, at: float, until: float
    ) -> bool:
        """Acquire or renew the leader lease until a time; False when another process holds it."""
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

    @reads
    def holder(self, connection: Connection, name: str, at: float) -> str | None:
        """Return which process holds a name; None: none does."""
        held = (leaders.c.name == name) & (leaders.c.until >= at)
        return connection.scalar(select(leaders.c.owner).where(held))

    @writes
    def release(self, connection: Connection, name: str, owner: str) -> None:
        """Release the name if `owner` holds it."""
        connection.execute(delete(leaders).where(leaders.c.name == name, leaders.c.owner == owner))


class DatabaseStateBackend(StateBackend[State]):
    """Small values of one kind, as JSON in one table; `room` separates the kinds."""

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
            value = self._read_state(connection, name, is_locked=True)
            changed, result = step(value, loop.time() + offset)
            if changed is None or changed == value:
                return result
            state = asdict(changed)  # type: ignore[call-overload]  # a dataclass, which the type variable cannot say
            if value is None:
                row = {"room": self._room, "name": name, "state": state}
                connection.execute(insert(cells), row)
            else:
                connection.execute(update(cells).where(self._is(name)).values(state=state))
            return result

        return await self._database.write(apply)

    async def read(self, name: str) -> tuple[State | None, float]:
        found = await self._database.read(lambda connection: self._read_state(connection, name))
        return found, self._clock.now()

    async def all(self) -> dict[str, State]:
        query = select(cells.c.name, cells.c.state).where(cells.c.room == self._room)
        ordered = query.order_by(cells.c.name)
        return await self._database.read(
            lambda connection: {
                name: self._kind(**state) for name, state in connection.execute(ordered)
            }
        )

    async def forget(self, name: str) -> bool:
        statement = delete(cells).where(self._is(name))
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )

    def _is(self, name: str) -> ColumnElement[bool]:
        return and_(cells.c.room == self._room, cells.c.name == name)

    def _read_state(
        self, connection: Connection, name: str, *, is_locked: bool = False
    ) -> State | None:
        query = select(cells.c.state).where(self._is(name))
        state = connection.scalar(query.with_for_update() if is_locked else query)
        return None if state is None else self._kind(**state)
