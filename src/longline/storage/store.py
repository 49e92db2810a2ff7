"""Store: the database of a home, with a door for each kind of thing that is kept in it."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, func, select

from longline.core.clock import Clock
from longline.limits.backends.base import State
from longline.storage.database import Database, open_database
from longline.storage.events import EventLog
from longline.storage.jobs import Findings, Jobs, look_into
from longline.storage.queue.chunks import Chunks
from longline.storage.queue.failures import FailureLog
from longline.storage.queue.quarantine import Quarantine
from longline.storage.queue.queue import Queue
from longline.storage.queue.tasks import TaskQueue
from longline.storage.records.enrichment import Questions
from longline.storage.records.marks import ExportCursors
from longline.storage.records.matches import Matches
from longline.storage.records.profiles import Profiles
from longline.storage.records.records import Records
from longline.storage.shared import DatabaseCells, Leaders
from longline.storage.transactions import IsHasty, never


class Store:
    """Jobs, their items, the records they made and what happened; open it with `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.address = database.address
        self.jobs = Jobs(database)
        self.queue = Queue(database)
        self.records = Records(database)
        self.event_log = EventLog(database)
        self.failure_log = FailureLog(database)
        self.quarantine = Quarantine(database)
        self.history = self.records.history
        self.matches = Matches(database)
        self.questions = Questions(database)
        self.profiles = Profiles(database)
        self.marks = ExportCursors(database)
        self.chunks = Chunks(database)
        self.leaders = Leaders(database)
        self.orders = TaskQueue(database)

    def cells(self, room: str, kind: type[State], clock: Clock) -> DatabaseCells[State]:
        """Return values that all processes on this database share."""
        return DatabaseCells(self._database, room, kind, clock)

    async def now(self) -> float:
        """Return the database's time, which counts for all machines that share it."""
        return await self._database.read(_now)

    async def findings(self, job: str, source: str) -> Findings:
        """Return what a report of a job needs to know."""
        return await self._database.read(lambda connection: look_into(connection, job, source))

    def close(self, within: float | None = None) -> bool:
        """Commit what is under way and let go of the files; True when that is done.

        After `within` seconds (None: however long it takes) the rest is left to end with the
        process. To call it again is to ask again.
        """
        return self._database.close(within)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _now(connection: Connection) -> float:
    if connection.dialect.name == "sqlite":  # a file on this machine
        return time.time()
    seconds = connection.scalar(select(func.extract("epoch", func.clock_timestamp())))
    return float(seconds or 0.0)


def open_store(address: str, *, is_hasty: IsHasty = never) -> Store:
    """Open the store at a SQLAlchemy address.

    `is_hasty` says that the process is to end: a server that is away has a few seconds left then.

    Raises:
        StoreUnreachable: there is no such database or no right to use it.
        StoreTooNew: a newer longline has written it.
        StoreBusy: others held the write lock for too long.
    """
    return Store(open_database(address, is_hasty=is_hasty))
