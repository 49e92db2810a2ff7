"""Run one write transaction at a time; retry conflicts and wait for a server that went away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from longline.core.errors import LonglineError
from longline.storage.columns import DamagedValue
from longline.storage.errors import StoreGone

# ---------------- Deferred writes: rows that many processes update are locked last and briefly

_DEFERRED = "longline.deferred"


def defer_write(
    connection: Connection, function: Callable[[Connection, list[Any]], None], argument: Any
) -> None:
    """Call `function(connection, arguments)` once, with all arguments, before the commit."""
    deferred = connection.info.get(_DEFERRED)
    if deferred is None:  # not a transaction of the writer
        function(connection, [argument])
    else:
        deferred.setdefault(function, []).append(argument)


# ---------------- What a database backend provides; implemented for SQLite and PostgreSQL


class Fault(Enum):
    """What a driver error allows the caller to do."""

    STARTING = auto()
    """The server is starting up: wait, even for the first connection."""
    GONE = auto()
    """The server went away: wait if it answered before."""
    CONFLICT = auto()
    """Another transaction interfered: run the same one again."""
    OTHER = auto()
    """Raise it."""


UNAVAILABLE = (Fault.STARTING, Fault.GONE)


class Backend(Protocol):
    """One kind of database at one address."""

    address: str
    """For messages: without the password."""
    timeout: float
    """Seconds to wait for locks, and for a server that went away."""

    def writer_engine(self) -> Engine:
        """Return an engine for the one connection that writes."""

    def reader_engine(self, size: int) -> Engine:
        """Return an engine for read-only transactions, each on one snapshot."""

    def lock_tables(self, connection: Connection) -> None:
        """Keep other processes from changing the schema until the transaction ends."""

    def mark_commit(self, connection: Connection) -> str | None:
        """Mark a transaction that has written; None if a lost answer cannot hide its result."""

    def was_committed(self, connection: Connection, mark: str) -> bool:
        """Return whether the transaction with this mark was committed."""

    def change_token(self, connection: Connection) -> object:
        """Return a value that changes when another connection commits."""

    def classify(self, error: DBAPIError) -> Fault:
        """Return what a driver error allows."""

    def translate(self, error: DBAPIError) -> LonglineError | DBAPIError:
        """Return our error for the driver's; values that fit no column keep the driver's."""


# ---------------- Waiting for a server that went away

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_CHECK_INTERVAL = 0.2  # seconds between checks of the deadline while pausing
_STOPPING_TIMEOUT = 5.0  # seconds for the server to come back once this process is stopping


class ReconnectPolicy:
    """How long all threads of one database wait for its server.

    Each waits up to the backend's timeout. Once the process is stopping, the server has a few
    seconds left, counted once for all threads.

    Args:
        backend: the database.
        is_stopping: returns whether this process is shutting down; called from several threads.
    """

    def __init__(self, backend: Backend, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self._backend = backend
        self._is_stopping = is_stopping
        self._away_since: float | None = None
        self._stopping_since: float | None = None

    def answered(self) -> None:
        """Note that the server is available."""
        self._away_since = None

    def deadline(self, begun: float) -> float:
        """Return when a wait that began at `begun` ends, in monotonic seconds."""
        end = begun + self._backend.timeout
        away = self._away_since = self._away_since or begun
        if not self._is_stopping():
            return end
        self._stopping_since = self._stopping_since or time.monotonic()
        return min(end, max(away, self._stopping_since) + _STOPPING_TIMEOUT)

    def gone(self, begun: float, problem: str) -> StoreGone:
        """Return the error for a wait that began at `begun`."""
        waited = round(time.monotonic() - (self._away_since or begun))
        return StoreGone(self._backend.address, problem, min(waited, self._backend.timeout))


class ReconnectWait:
    """Growing pauses of one transaction, from its first failure until the deadline."""

    def __init__(self, policy: ReconnectPolicy) -> None:
        self._policy = policy
        self._pause = _FIRST_PAUSE
        self._begun: float | None = None

    def pause(self, error: Exception, problem: str) -> None:
        """Sleep in this thread.

        Raises:
            StoreGone: the deadline has passed.
        """
        now = time.monotonic()
        begun = self._begun = self._begun or now
        if now >= self._policy.deadline(begun):
            raise self._policy.gone(begun, problem) from error
        wake = now + self._pause
        while (left := min(wake, self._policy.deadline(begun)) - time.monotonic()) > 0:
            time.sleep(min(left, _CHECK_INTERVAL))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


# ---------------- The write connection

Work = Callable[[Connection], Any]
_MAX_CONFLICTS = 8


class _CommitUnknown(Exception):
    """The connection broke after COMMIT was sent and before its answer arrived."""

    def __init__(self, mark: str, result: Any) -> None:
        super().__init__(mark, result)
        self.mark = mark
        self.result = result


class Transactor:
    """The connection that writes; it stays open, since a new one costs more than a small commit."""

    def __init__(self, backend: Backend, engine: Engine, policy: ReconnectPolicy) -> None:
        self._backend = backend
        self._engine = engine
        self._policy = policy
        self._connection: Connection | None = None

    def run(self, work: Work) -> Any:
        """Run `work(connection)` in a transaction; return its result once it is committed.

        `work` may be called several times, each time after its earlier changes were rolled back.

        Raises:
            StoreError: it could not be committed; nothing of it was.
        """
        waiting = ReconnectWait(self._policy)
        conflicts = 0
        while True:
            try:
                return self._run_once(work)
            except _CommitUnknown as unknown:
                if self._was_committed(unknown, waiting):
                    return unknown.result
            except DBAPIError as error:
                fault = self._backend.classify(error)
                if fault in UNAVAILABLE:
                    self._wait(error, waiting)
                elif fault is Fault.CONFLICT and conflicts < _MAX_CONFLICTS:
                    conflicts += 1
                    time.sleep(random.uniform(0, 0.005) * 2**conflicts)  # noqa: S311  # jitter, not a secret
                else:
                    raise self._backend.translate(error) from error
            except DamagedValue as error:
                raise error.at(self._backend.address) from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()

    def _run_once(self, work: Work) -> Any:
        mark: str | None = None
        result: Any = None
        try:
            connection = self._connected()
            with connection.begin():
                connection.info[_DEFERRED] = {}
                result = work(connection)
                for function, arguments in connection.info.pop(_DEFERRED).items():
                    function(connection, arguments)
                mark = self._backend.mark_commit(connection)
        except DBAPIError as error:
            if mark is not None and self._backend.classify(error) in UNAVAILABLE:
                raise _CommitUnknown(mark, result) from error
            raise
        self._policy.answered()
        return result

    def _was_committed(self, unknown: _CommitUnknown, waiting: ReconnectWait) -> bool:
        """Ask the server, once it is back, for the result of a commit."""
        while True:
            try:
                self._disconnect()
                connection = self._connected()
                with connection.begin():
                    return self._backend.was_committed(connection, unknown.mark)
            except DBAPIError as error:
                if self._backend.classify(error) not in UNAVAILABLE:
                    raise self._backend.translate(error) from error
                self._wait(error, waiting)

    def _wait(self, error: DBAPIError, waiting: ReconnectWait) -> None:
        self._disconnect()
        ours = self._backend.translate(error)
        waiting.pause(error, getattr(ours, "problem", str(ours)))

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
            with suppress(SQLAlchemyError):
                connection.close()
