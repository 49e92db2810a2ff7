"""Copy everything from one database to another: all tables and rows, or nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import (
    JSON,
    BindParameter,
    Connection,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    text,
)

from longline.core.clock import SystemClock
from longline.core.errors import NotCopied, StoreUnreachable
from longline.core.sqlite_files import transaction
from longline.limits.backends.sqlite import SqliteStateFile
from longline.storage.backends import BulkUpdate, replace_nul_escapes
from longline.storage.database import Database, Row
from longline.storage.schema import (
    cells,
    events,
    items,
    jobs,
    leaders,
    metadata,
    projections,
    questions,
)
from longline.storage.store import Store

_BATCH = 100  # rows in memory at a time; some hold pages
STOP = (
    "workers would continue with the old database. Stop them first: `longline down` for those of "
    "this home (`longline up --workers 0` starts its servers again), SIGTERM for others. Or use "
    "--force"
)
"""What to do about workers, for messages."""


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """One end of a copy: a database, and the file of small values next to it."""

    database: Database
    file: SharedValuesFile | None = None
    file_counts: bool = False
    """Whether the file, and not the table, is what the home uses now."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table that is equal on both sides; the checksum does not depend on the order."""

    name: str
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The tables that were copied."""

    source: str
    target: str
    tables: tuple[CopiedTable, ...]


class DatabaseCopy:
    """Copies one database to another, which must be empty.

    Args:
        source: read from one snapshot.
        target: written in one transaction; after any failure it is still empty.
        dead_among: returns those of the given lease owners that are surely dead.
        on_step: called after every batch with the table and its rows so far.
    """

    def __init__(
        self,
        source: CopyEnd,
        target: CopyEnd,
        *,
        dead_among: Callable[[Iterable[str]], Sequence[str]],
        on_step: Callable[[str, int], object] = lambda _table, _rows: None,
    ) -> None:
        self._source = source
        self._target = target
        self._dead_among = dead_among
        self._on_step = on_step
        self._stopped = threading.Event()

    async def run(self, *, force: bool = False) -> CopyResult:
        """Copy everything; `force` does so even while processes work on the source.

        Raises:
            NotCopied: it cannot be copied; the target is unchanged.
            StoreError: one of the two databases does not work.
        """
        if self._source.database.address == self._target.database.address:
            raise NotCopied(self._target.database.address, "it is the same database")
        now = await Store(self._source.database).now()
        with self._source.database.watch_commits() as is_untouched:
            is_safe = None if force else is_untouched
            try:
                return await self._target.database.write(self._copy, now, is_safe)
            except asyncio.CancelledError:
                self._stopped.set()  # the writer thread rolls back after its batch
                raise

    def _copy(
        self, writing: Connection, now: float, is_untouched: Callable[[], bool] | None
    ) -> CopyResult:
        source = self._source
        with source.database.snapshot() as reading:
            if is_untouched is not None:
                self._refuse_running(reading, now)
            # Of workers that wait there already; they register again.
            writing.execute(delete(leaders))
            writing.execute(delete(projections))  # written by the first start, before any data
            writing.execute(delete(events).where(events.c.subject.startswith("worker/")))
            self._refuse_filled(writing)
            in_table = [row for batch in _table_rows(reading, cells) for row in batch]
            in_file = [] if source.file is None else source.file.read()
            both = [*in_table, *in_file] if source.file_counts else [*in_file, *in_table]
            values = list({(one["room"], one["name"]): one for one in both}.values())
            tables = [
                self._copy_table(reading, writing, table, values)
                for table in metadata.sorted_tables
            ]
        if writing.dialect.name != "sqlite":  # which numbers new rows after the copied ones itself
            _advance_sequences(writing)
        if is_untouched is not None and not is_untouched():
            raise self._refused(
                f"another process wrote to {source.database.address} during the copy, and its "
                "changes would be missing. Stop it and copy again, or use --force"
            )
        if self._target.file is not None:
            self._target.file.write(values)
        return CopyResult(source.database.address, self._target.database.address, tuple(tables))

    def _copy_table(
        self, reading: Connection, writing: Connection, table: Table, values: Sequence[Row]
    ) -> CopiedTable:
        # One statement for each row, sent together: the driver of PostgreSQL parses one statement
        # for many rows every time, which doubled the time.
        values_of: dict[str, BindParameter[Any]] = {
            column.name: bindparam(column.name) for column in table.columns
        }
        insertion = BulkUpdate(insert(table).values(values_of))
        read, written = _TableChecksum(table), _TableChecksum(table)
        # Small values are few, and partly from a file.
        batches = iter([list(values)]) if table is cells else _table_rows(reading, table)
        for batch in batches:
            if self._stopped.is_set():
                raise self._refused("it was interrupted")
            if writing.dialect.name != "sqlite":
                _replace_nul_in(table, batch)
            insertion.run(writing, batch)
            read.add(batch)
            self._on_step(table.name, read.rows)
        for batch in _table_rows(writing, table):
            written.add(batch)
        if (read.rows, read.checksum) != (written.rows, written.checksum):
            counts = f"rows read: {read.rows}, rows written: {written.rows}"
            problem = f"the content of {table.name} differs after copying ({counts})"
            raise self._refused(f"{problem}; please report this")
        return CopiedTable(table.name, read.rows, read.checksum)

    def _refuse_running(self, reading: Connection, now: float) -> None:
        """Refuse while processes hold leases, or while workers use the old database."""
        address = self._source.database.address
        leases = select(items.c.lease_owner).where(items.c.lease_until > now)
        discoveries = select(jobs.c.discovery_owner).where(jobs.c.discovery_until > now)
        asking = select(questions.c.lease_owner).where(questions.c.lease_until > now)
        if living := self._living(reading, leases.union(discoveries, asking)):
            raise self._refused(
                f"{len(living)} processes work on jobs of {address}, such as {living[0]}; their "
                "next changes would be missing. Pause the jobs first, or use --force"
            )
        if living := self._living(reading, select(leaders.c.owner).where(leaders.c.until > now)):
            raise self._refused(f"{living[0]} is working on {address}; {STOP}")

    def _living(self, reading: Connection, query: Any) -> list[str]:
        owners = [str(one) for one in reading.scalars(query) if one is not None]
        dead = self._dead_among(owners)
        return [one for one in owners if one not in dead]

    def _refuse_filled(self, writing: Connection) -> None:
        for table in metadata.sorted_tables:
            first: Select[Any] = select(literal_column("1")).select_from(table).limit(1)
            if writing.scalar(first) is None:
                continue
            file = writing.engine.url.database
            is_file = writing.dialect.name == "sqlite"
            remedy = f"move the file {file} away" if is_file else "use an empty database"
            raise self._refused(f"it is not empty: {table.name} has rows; {remedy}")

    def _refused(self, problem: str) -> NotCopied:
        return NotCopied(self._target.database.address, problem)


# ---------------- Tables row by row; JSON stays text, so that copying does not change it


def _table_rows(connection: Connection, table: Table) -> Iterator[list[Row]]:
    columns = [
        cast(one, Text).label(one.name) if isinstance(one.type, JSON) else one
        for one in table.columns
    ]
    options = {"yield_per": _BATCH, "stream_results": True}
    with connection.execute(select(*columns), execution_options=options) as result:
        for part in result.mappings().partitions():
            yield [dict(row) for row in part]


class _TableChecksum:
    """The number of rows and the sum of their hashes, independent of their order."""

    def __init__(self, table: Table) -> None:
        self.rows = 0
        self._sum = 0
        self._columns = [(one.name, isinstance(one.type, JSON)) for one in table.columns]

    @property
    def checksum(self) -> str:
        return f"{self._sum:016x}"

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            values = []
            for name, is_json in self._columns:
                value = row[name]
                is_number = is_json and value is not None and value[:1] in "-0123456789"
                # SQLite stores the bare JSON number 1.0 as 1.
                values.append(float(value) if is_number else value)
            digest = blake2b(orjson.dumps(values), digest_size=8).digest()
            self._sum = (self._sum + int.from_bytes(digest)) % 2**64
            self.rows += 1


def _replace_nul_in(table: Table, rows: Iterable[Row]) -> None:
    """Replace NUL characters, which PostgreSQL cannot store, by U+FFFD, as the store does."""
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str):
                is_json = isinstance(table.columns[name].type, JSON)
                text = replace_nul_escapes(value) if is_json else value.replace("\x00", "\ufffd")
                row[name] = text


def _advance_sequences(writing: Connection) -> None:
    """Number new rows after the copied ones."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        most = None if column is None else writing.scalar(select(func.max(column)))
        if column is not None and most is not None:
            writing.execute(
                text("SELECT setval(pg_get_serial_sequence(:table, :column), :most)"),
                {"table": table.name, "column": column.name, "most": most},
            )


# ---------------- Small values of a home, in a file of their own or in the table

# Lasting kinds; current rates and open breakers are not copied.
ROOMS = ("bookmarks", "budget", "limits", "robots")
_TIMEOUT = 30.0  # seconds to wait for other processes
_READ = "SELECT room, name, state FROM cells WHERE room = ? ORDER BY name"
_WRITE = "INSERT INTO cells VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"


class SharedValuesFile:
    """The file in which the processes of a home on one machine share small values."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Row]:
        """Return the lasting values as rows of `cells`; none when there is no file.

        Raises:
            StoreUnreachable: it is not a file of longline.
        """
        if not self._path.exists():
            return []
        with self._open_file() as connection, transaction(connection, "BEGIN"):
            found = [row for room in ROOMS for row in connection.execute(_READ, (room,))]
        return [{"room": room, "name": name, "state": state} for room, name, state in found]

    def write(self, rows: Iterable[Row]) -> None:
        """Write the lasting values among these rows; others in the file stay.

        Raises:
            StoreUnreachable: it is not a file of longline.
        """
        lasting = [(one["room"], one["name"], one["state"]) for one in rows if one["room"] in ROOMS]
        if lasting:
            with self._open_file() as connection, transaction(connection):
                connection.executemany(_WRITE, lasting)

    @contextmanager
    def _open_file(self) -> Iterator[sqlite3.Connection]:
        async def prepare() -> None:
            """Let the owner of the file create its table, or refuse a file that is not its own."""
            file = SqliteStateFile(self._path, SystemClock())
            try:
                await file.backend(ROOMS[0], dict).read("")
            finally:
                await file.close()

        try:
            asyncio.run(prepare())
            with closing(
                sqlite3.connect(self._path, timeout=_TIMEOUT, isolation_level=None)
            ) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreUnreachable(str(self._path), str(error)) from error
