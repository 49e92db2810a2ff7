"""One transaction at a time, run again when another was in its way or the server went away."""

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

# ---------------- What a transaction does last: changes of rows that many processes want

_KEY = "longline.last"


def begin(connection: Connection) -> None:
    """Gather from now on, from nothing: what an undone transaction has gathered is forgotten."""
    connection.info[_KEY] = {}


def do_last(
    connection: Connection, function: Callable[[Connection, list[Any]], None], argument: Any
) -> None:
    """Call `function(connection, arguments)` once, at the end, with those of all who asked."""
    gathered = connection.info.get(_KEY)
    if gathered is None:  # a transaction that nobody ends for us
        function(connection, [argument])
    else:
        gathered.setdefault(function, []).append(argument)


def end(connection: Connection) -> None:
    """Do what was gathered."""
    for function, arguments in connection.info.pop(_KEY).items():
        function(connection, arguments)


# ---------------- What a kind of database must be able to do for `Database`; SQLite and


class Disturbance(Enum):
    """What may be done about an error."""

    STARTING = auto()
    """The server is just starting up: wait for it, from the first."""
    GONE = auto()
    """The server went away: whoever has worked with it before waits for it."""
    COLLISION = auto()
    """Another transaction was in the way: run the same one again at once."""
    OTHER = auto()
    """Nothing: tell the caller."""


ABSENT = (Disturbance.STARTING, Disturbance.GONE)


class Backend(Protocol):
    """One kind of database at one address."""

    address: str
    """As people may see it: without its password."""
    patience: float
    """Seconds to wait for others, and for a server that went away."""

    def writing(self) -> Engine:
        """Return an engine for the one connection that writes."""

    def reading(self, size: int) -> Engine:
        """Return an engine whose transactions see one moment and change nothing."""

    def lock_tables(self, connection: Connection) -> None:
        """Let nobody else change the tables until the transaction ends."""

    def mark(self, connection: Connection) -> str | None:
        """Leave a mark in a transaction that has written; None: its end is never in doubt."""

    def was_committed(self, connection: Connection, mark: str) -> bool:
        """Say whether the transaction with this mark, of a connection that was lost, is there."""

    def change(self, connection: Connection) -> object:
        """Return what differs, asked by the same connection, once anybody else has committed."""

    def trouble(self, error: DBAPIError) -> Disturbance:
        """Say what may be done about an error of the driver."""

    def translated(self, error: DBAPIError) -> LonglineError | DBAPIError:
        """Return our error for one of the driver's; values that fit nowhere stay as they are."""


# ---------------- How long a server that went away is waited for

_FIRST = 0.05
_LONGEST = 2.0
_LOOK = 0.2  # seconds between looks at whether there is still so much time
_HASTE = 5.0  # seconds for a server to come back once this process is to end

IsHasty = Callable[[], bool]
"""Says whether this process is to end; asked from several threads."""


def never() -> bool:
    """Return False: whoever waits has all the time that there is."""
    return False


class ReconnectPolicy:
    """How long all threads of one database wait for its server.

    Each has its own patience, until the process is to end: from then on a server that is away has
    some seconds to come back, once for all that waits for it.
    """

    def __init__(self, backend: Backend, is_hasty: IsHasty = never) -> None:
        self._backend = backend
        self._is_hasty = is_hasty
        self._away_since: float | None = None
        self._hasty_since: float | None = None

    def answered(self) -> None:
        """Note that the server is there."""
        self._away_since = None

    def until(self, begun: float) -> float:
        """Return until when to wait for a server that has been waited for since `begun`."""
        end = begun + self._backend.patience
        away = self._away_since = self._away_since or begun
        if not self._is_hasty():
            return end
        self._hasty_since = self._hasty_since or time.monotonic()
        return min(end, max(away, self._hasty_since) + _HASTE)

    def gone(self, begun: float, problem: str) -> StoreGone:
        """Return the error of one who has waited in vain since `begun`."""
        waited = round(time.monotonic() - (self._away_since or begun))
        return StoreGone(self._backend.address, problem, min(waited, self._backend.patience))


class ReconnectWait:
    """Pauses that grow, from the first failure of one transaction until the patience is over."""

    def __init__(self, patience: ReconnectPolicy) -> None:
        self._patience = patience
        self._pause = _FIRST
        self._begun: float | None = None

    def pause(self, error: Exception, problem: str) -> None:
        """Sleep in this thread.

        Raises:
            StoreGone: the patience is over.
        """
        now = time.monotonic()
        begun = self._begun = self._begun or now
        if now >= self._patience.until(begun):
            raise self._patience.gone(begun, problem) from error
        wake = now + self._pause
        while (left := min(wake, self._patience.until(begun)) - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        self._pause = min(self._pause * 2, _LONGEST)


Work = Callable[[Connection], Any]
_MOST_COLLISIONS = 8


class _AnswerLost(Exception):
    """COMMIT was sent and the connection broke before its answer: who knows what became of it?"""

    def __init__(self, mark: str, result: Any) -> None:
        super().__init__(mark, result)
        self.mark = mark
        self.result = result


class Transactor:
    """The connection that writes, kept: fetching it anew cost more than a small commit."""

    def __init__(self, backend: Backend, engine: Engine, patience: ReconnectPolicy) -> None:
        self._backend = backend
        self._engine = engine
        self._patience = patience
        self._connection: Connection | None = None

    def run(self, work: Work) -> Any:
        """Run `work(connection)` in a transaction and return what it does, once it is committed.

        It may be called several times, each time on a state without its earlier changes.

        Raises:
            StoreError: it could not be committed; nothing of it was.
        """
        waiting = ReconnectWait(self._patience)
        collisions = 0
        while True:
            try:
                return self._once(work)
            except _AnswerLost as lost:
                if self._was_committed(lost, waiting):
                    return lost.result
            except DBAPIError as error:
                trouble = self._backend.trouble(error)
                if trouble in ABSENT:
                    self._wait(error, waiting)
                elif trouble is Disturbance.COLLISION and collisions < _MOST_COLLISIONS:
                    collisions += 1
                    time.sleep(random.uniform(0, 0.005) * 2**collisions)  # noqa: S311  # so that the two do not meet again
                else:
                    raise self._backend.translated(error) from error
            except DamagedValue as error:
                raise error.at(self._backend.address) from error

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()

    def _once(self, work: Work) -> Any:
        mark: str | None = None
        result: Any = None
        try:
            connection = self._connected()
            with connection.begin():
                begin(connection)
                result = work(connection)
                end(connection)
                mark = self._backend.mark(connection)
        except DBAPIError as error:
            if mark is not None and self._backend.trouble(error) in ABSENT:
                raise _AnswerLost(mark, result) from error
            raise
        self._patience.answered()
        return result

    def _was_committed(self, lost: _AnswerLost, waiting: ReconnectWait) -> bool:
        """Ask the server, once it is back, what became of a commit."""
        while True:
            try:
                self._forget()
                connection = self._connected()
                with connection.begin():
                    return self._backend.was_committed(connection, lost.mark)
            except DBAPIError as error:
                if self._backend.trouble(error) not in ABSENT:
                    raise self._backend.translated(error) from error
                self._wait(error, waiting)

    def _wait(self, error: DBAPIError, waiting: ReconnectWait) -> None:
        self._forget()
        told = self._backend.translated(error)
        waiting.pause(error, getattr(told, "problem", str(told)))

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
            with suppress(SQLAlchemyError):
                connection.close()
