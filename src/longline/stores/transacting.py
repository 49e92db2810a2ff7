"""One transaction at a time, run again when another was in its way or the server went away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from longline.stores import last
from longline.stores.backend import ABSENT, Backend, Trouble
from longline.stores.columns import DamagedValue
from longline.stores.waiting import Patience, Waiting

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

    def __init__(self, backend: Backend, engine: Engine, patience: Patience) -> None:
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
        waiting = Waiting(self._patience)
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
                elif trouble is Trouble.COLLISION and collisions < _MOST_COLLISIONS:
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
                last.begin(connection)
                result = work(connection)
                last.end(connection)
                mark = self._backend.mark(connection)
        except DBAPIError as error:
            if mark is not None and self._backend.trouble(error) in ABSENT:
                raise _AnswerLost(mark, result) from error
            raise
        self._patience.answered()
        return result

    def _was_committed(self, lost: _AnswerLost, waiting: Waiting) -> bool:
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

    def _wait(self, error: DBAPIError, waiting: Waiting) -> None:
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
