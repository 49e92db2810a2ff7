"""What a kind of database must be able to do for `Database`; SQLite and PostgreSQL can."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from longline.errors import LonglineError


class Trouble(Enum):
    """What may be done about an error."""

    STARTING = auto()
    """The server is just starting up: wait for it, from the first."""
    GONE = auto()
    """The server went away: whoever has worked with it before waits for it."""
    COLLISION = auto()
    """Another transaction was in the way: run the same one again at once."""
    OTHER = auto()
    """Nothing: tell the caller."""


ABSENT = (Trouble.STARTING, Trouble.GONE)


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

    def trouble(self, error: DBAPIError) -> Trouble:
        """Say what may be done about an error of the driver."""

    def translated(self, error: DBAPIError) -> LonglineError | DBAPIError:
        """Return our error for one of the driver's; values that fit nowhere stay as they are."""
