"""The database of a home: one attribute per kind of data."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sqlalchemy import Connection, func, select

from longline.core.clock import Clock
from longline.limits.backends.state import State
from longline.storage.database import Database, open_database
from longline.storage.events import EventLog
from longline.storage.jobs import Jobs
from longline.storage.queue.chunks import Chunks
from longline.storage.queue.failures import FailureLog
from longline.storage.queue.quarantine import Quarantine
from longline.storage.queue.queue import Queue
from longline.storage.queue.tasks import TaskQueue
from longline.storage.records.enrichment import Questions
from longline.storage.records.export_cursors import ExportCursors
from longline.storage.records.history import History
from longline.storage.records.matches import Matches
from longline.storage.records.profiles import Profiles
from longline.storage.records.records import Records
from longline.storage.shared import DatabaseStateBackend, Leaders


class Store:
    """All data of a home; open it with `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.address = database.address
        self.jobs = Jobs(database)
        self.queue = Queue(database)
        self.records = Records(database)
        self.history = History(database)
        self.events = EventLog(database)
        self.failures = FailureLog(database)
        self.quarantine = Quarantine(database)
        self.matches = Matches(database)
        self.questions = Questions(database)
        self.profiles = Profiles(database)
        self.export_cursors = ExportCursors(database)
        self.chunks = Chunks(database)
        self.leaders = Leaders(database)
        self.tasks = TaskQueue(database)

    def state_backend(
        self, room: str, kind: type[State], clock: Clock
    ) -> DatabaseStateBackend[State]:
        """Return small values that all processes on this database share."""
        return DatabaseStateBackend(self._database, room, kind, clock)

    async def now(self) -> float:
        """Return the database's time, which all machines that share it use."""
        return await self._database.read(_database_time)

    def close(self, within: float | None = None) -> bool:
        """Commit what is queued and close the files; return whether that is done.

        After `within` seconds (None waits without limit) the rest ends with the process. It may
        be called again.
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


def _database_time(connection: Connection) -> float:
    if connection.dialect.name == "sqlite":  # a file on this machine
        return time.time()
    seconds = connection.scalar(select(func.extract("epoch", func.clock_timestamp())))
    return float(seconds or 0.0)


def open_store(address: str, *, is_stopping: Callable[[], bool] = lambda: False) -> Store:
    """Open the store at a SQLAlchemy URL.

    `is_stopping` returns whether the process is shutting down; an unavailable server then has a
    few seconds left.

    Raises:
        StoreUnreachable: there is no such database or no permission to use it.
        StoreTooNew: a newer longline has written it.
        StoreBusy: other processes held the write lock for too long.
    """
    return Store(open_database(address, is_stopping=is_stopping))
