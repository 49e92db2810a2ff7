"""Small values of a home, which stand in a file of their own or in the table `cells`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from longline.clock import SystemClock
from longline.errors import StoreUnreachable
from longline.resilience.keepers.sqlite import SqliteCells
from longline.resilience.keepers.transactions import transaction
from longline.stores.copying_rows import rows_of
from longline.stores.schema import cells

# What lasts; how fast a site was asked a moment ago, and which breaker is open, does not.
ROOMS = ("bookmarks", "budget", "limits", "robots")
_PATIENCE = 30.0  # seconds to wait for other processes
_READ = "SELECT room, name, state FROM cells WHERE room = ? ORDER BY name"
_WRITE = "INSERT INTO cells VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"


@dataclass(frozen=True, slots=True)
class Kept:
    """One value: what it is for, whose it is, and the value as JSON text."""

    room: str
    name: str
    state: str


class CellFile:
    """The file in which the processes of a home on one machine share what they know of sites."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Kept]:
        """Return all that lasts; nothing when there is no file.

        Raises:
            StoreUnreachable: it is not one of ours.
        """
        if not self._path.exists():
            return []
        with self._open() as connection, transaction(connection, "BEGIN"):
            found = [row for room in ROOMS for row in connection.execute(_READ, (room,))]
        return [Kept(*row) for row in found]

    def write(self, values: Iterable[Kept]) -> None:
        """Put values in place of those of the same name; the others stay.

        Raises:
            StoreUnreachable: it is not one of ours.
        """
        lasting = [one for one in values if one.room in ROOMS]
        if not lasting:
            return
        with self._open() as connection, transaction(connection):
            rows = [(one.room, one.name, one.state) for one in lasting]
            connection.executemany(_WRITE, rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            asyncio.run(self._prepare())
            with closing(
                sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
            ) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreUnreachable(str(self._path), str(error)) from error

    async def _prepare(self) -> None:
        """Have the table made by those whose file it is, who refuse a file of others."""
        owner = SqliteCells(self._path, ROOMS[0], dict, SystemClock())
        try:
            await owner.read("")
        finally:
            await owner.close()


def merged(reading: Connection, file: CellFile | None, *, file_counts: bool) -> list[Kept]:
    """Return the values of the table and of the file; `file_counts` says which of two wins."""
    table = [
        Kept(row["room"], row["name"], row["state"])
        for batch in rows_of(reading, cells, 100)
        for row in batch
    ]
    beside = [] if file is None else file.read()
    both = [*table, *beside] if file_counts else [*beside, *table]
    return list({(one.room, one.name): one for one in both}.values())
