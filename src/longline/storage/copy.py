"""Moving everything from one database to another: all tables, all rows, or nothing."""

from __future__ import annotations

import asyncio
import re
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
    BigInteger,
    BindParameter,
    Connection,
    Integer,
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
from longline.core.errors import StoreUnreachable
from longline.core.sqlite_files import transaction
from longline.limits.backends.sqlite import SqliteStateFile
from longline.storage.columns import Json
from longline.storage.database import Database
from longline.storage.errors import NotCopied
from longline.storage.schema import cells, items, jobs, leaders, metadata, questions
from longline.storage.store import Store

# ---------------- Rows as they stand in a database, JSON as the text that it is, and whether two

_CIRCLE = 2**64
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # after an even number of backslashes: an escape
_BITS = {Integer: 31, BigInteger: 63}  # of a number in PostgreSQL, without its sign


def rows_of(connection: Connection, table: Table, batch: int) -> Iterator[list[dict[str, Any]]]:
    """Yield all rows, some at a time; JSON is text, so that reading it changes nothing in it."""
    columns = [
        cast(one, Text).label(one.name) if isinstance(one.type, Json) else one
        for one in table.columns
    ]
    options = {"yield_per": batch, "stream_results": True}
    found = connection.execute(select(*columns), execution_options=options)
    for part in found.mappings().partitions():
        yield [dict(row) for row in part]


class Insertion:
    """Inserts rows whose JSON is text already, a batch at a time.

    One statement a row, sent together: of one for many rows the driver of PostgreSQL reads every
    word each time, which cost as much as all the rest.
    """

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        values: dict[str, BindParameter[Any]] = {
            column.name: bindparam(column.name) for column in table.columns
        }
        compiled: Any = insert(table).values(values).compile(dialect=connection.dialect)
        self._sql = str(compiled)
        self._order: tuple[str, ...] = tuple(compiled.positiontup)

    def run(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows."""
        given = [tuple([row[name] for name in self._order]) for row in rows]
        if given:
            self._connection.exec_driver_sql(self._sql, given)


class Tally:
    """How many rows there are and a sum of their hashes, whatever their order."""

    def __init__(self, table: Table) -> None:
        self.rows = 0
        self._sum = 0
        self._columns = [(one.name, isinstance(one.type, Json)) for one in table.columns]

    @property
    def checksum(self) -> str:
        """The sum, as it is shown."""
        return f"{self._sum:016x}"

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count rows."""
        for row in rows:
            content = orjson.dumps(
                [_plainly(row[name]) if is_json else row[name] for name, is_json in self._columns]
            )
            self._sum += int.from_bytes(blake2b(content, digest_size=8).digest())
            self._sum %= _CIRCLE
            self.rows += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and (self.rows, self._sum) == (other.rows, other._sum)

    __hash__ = None  # type: ignore[assignment]  # it changes


class Misfits:
    """Finds what of a table's rows PostgreSQL cannot keep."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._kinds = {column.name: isinstance(column.type, Json) for column in table.columns}
        self._bits = {column.name: _bits(column.type) for column in table.columns}

    def find(self, row: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a row, in words; None when it can be kept."""
        for name, value in row.items():
            if isinstance(value, str):
                if value == self._mended(name, value):
                    continue
                problem = "holds a NUL character, which PostgreSQL cannot keep; use --replace-nul"
            elif isinstance(value, int):
                if -(2 ** self._bits[name]) <= value < 2 ** self._bits[name]:
                    continue
                problem = f"is {value}, which is too large for PostgreSQL"
            else:
                continue
            return f"{name} of the row {_called(self._table, row)} in {self._table.name} {problem}"
        return None

    def mend(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with U+FFFD for each NUL, as the store writes it itself."""
        return {
            name: self._mended(name, value) if isinstance(value, str) else value
            for name, value in row.items()
        }

    def _mended(self, name: str, value: str) -> str:
        if not self._kinds[name]:
            return value.replace("\x00", "\ufffd")
        return _NUL.sub(r"\1\\ufffd", value) if "\\u0000" in value else value


def _bits(kind: object) -> int:
    return next((_BITS[one] for one in (BigInteger, Integer) if isinstance(kind, one)), 1)


def _called(table: Table, row: Mapping[str, Any]) -> str:
    """Return the name of a row: its primary key, and its key if it has one besides."""
    names = [column.name for column in table.primary_key]
    if "key" in table.columns and "key" not in names:
        names.append("key")
    return ", ".join(f"{name}={row[name]!r}" for name in names)


def _plainly(written: str | None) -> str | float | None:
    """Return JSON as it is compared: SQLite keeps the text 1.0 of a bare number as 1."""
    if written is None or written[:1] not in "-0123456789":
        return written
    return float(written)


# ---------------- Small values of a home, which stand in a file of their own or in the table

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
        file = SqliteStateFile(self._path, SystemClock())
        try:
            await file.backend(ROOMS[0], dict).read("")
        finally:
            await file.close()


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


_BATCH = 100  # rows that are in memory at once; some have pages in them
STOP = (
    "workers would go on with the old database. Stop them first: `longline down` those of this "
    "home (`longline up --workers 0` starts its servers again), SIGTERM any other. Or say --force"
)
"""What to do about workers, in words."""

Batches = Iterator[list[dict[str, Any]]]
DeadAmong = Callable[[Iterable[str]], Sequence[str]]
"""Told names of processes, it returns those that are surely gone."""


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """One end of a copy: a database, and the file of small values that its home has beside it."""

    database: Database
    file: CellFile | None = None
    file_counts: bool = False
    """Whether the file, and not the table, is what the home works with now."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table that is the same on both sides; the checksum does not depend on the order."""

    name: str
    rows: int
    checksum: str


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What a copy has moved."""

    source: str
    target: str
    tables: tuple[CopiedTable, ...]


@dataclass(frozen=True, slots=True)
class _Guard:
    """What is held against the source, so that nothing stays behind."""

    now: float
    is_untouched: Callable[[], bool]


class DatabaseCopy:
    """Copies one database to another, which must be empty.

    Args:
        source: read as it is at one moment.
        target: written in one transaction; whatever goes wrong, it stays empty.
        dead_among: tells which owners of leases do not live any more.
        mend: write what PostgreSQL cannot keep as the store itself does, and refuse nothing for it.
        on_step: told after every batch which table is at how many rows.
    """

    def __init__(
        self,
        source: CopyEnd,
        target: CopyEnd,
        *,
        dead_among: DeadAmong,
        mend: bool = False,
        on_step: Callable[[str, int], object] = lambda _table, _rows: None,
    ) -> None:
        self._source = source
        self._target = target
        self._dead_among = dead_among
        self._mend = mend
        self._on_step = on_step
        self._stopped = threading.Event()

    async def run(self, *, force: bool = False) -> CopyResult:
        """Copy everything; `force` does so although somebody works on the source.

        Raises:
            NotCopied: it cannot be done, and why; nothing was.
            StoreError: one of the two databases does not work.
        """
        if self._source.database.address == self._target.database.address:
            raise NotCopied(self._target.database.address, "it is the same database")
        now = await Store(self._source.database).now()
        with self._source.database.watch_commits() as is_untouched:
            guard = None if force else _Guard(now, is_untouched)
            try:
                copied: CopyResult = await self._target.database.write(self._copy, guard)
            except asyncio.CancelledError:
                self._stopped.set()  # the writing thread notices after its batch and undoes it all
                raise
        return copied

    def _copy(self, writing: Connection, guard: _Guard | None) -> CopyResult:
        with self._source.database.snapshot() as reading:
            if guard is not None:
                self._refuse_running(reading, guard.now)
                self._refuse_workers(reading, guard.now)
            self._refuse_filled(writing)
            writing.execute(delete(leaders))  # of workers that wait there already
            small = merged(reading, self._source.file, file_counts=self._source.file_counts)
            told = [
                self._copy_table(reading, writing, table, small) for table in metadata.sorted_tables
            ]
        for table in metadata.sorted_tables:
            _go_on_counting(writing, table)
        if guard is not None and not guard.is_untouched():
            address = self._source.database.address
            problem = f"somebody has written to {address} meanwhile, which would stay behind"
            raise self._refused(f"{problem}. See who does, and copy again, or say --force")
        if self._target.file is not None:
            self._target.file.write(small)
        return CopyResult(self._source.database.address, self._target.database.address, tuple(told))

    def _copy_table(
        self, reading: Connection, writing: Connection, table: Table, small: Sequence[Kept]
    ) -> CopiedTable:
        insertion = Insertion(writing, table)
        given = Tally(table)
        for batch in self._fitting(writing, table, _batches(reading, table, small)):
            if self._stopped.is_set():
                raise self._refused("it was interrupted")
            insertion.run(batch)
            given.add(batch)
            self._on_step(table.name, given.rows)
        kept = Tally(table)
        for batch in rows_of(writing, table, _BATCH):
            kept.add(batch)
        if kept != given:
            problem = f"{given.rows} rows of {table.name} came out as {kept.rows} others"
            raise self._refused(f"{problem}; please report this")
        return CopiedTable(table.name, given.rows, given.checksum)

    def _refuse_workers(self, reading: Connection, now: float) -> None:
        """Refuse while workers are there: they have the old address, and idle ones hold nothing."""
        found = reading.scalars(select(leaders.c.owner).where(leaders.c.until > now))
        owners = [str(one) for one in found]
        dead = self._dead_among(owners)
        living = [one for one in owners if one not in dead]
        if living:
            raise self._refused(f"{living[0]} works on {self._source.database.address}; {STOP}")

    def _refuse_running(self, reading: Connection, now: float) -> None:
        holders = select(items.c.lease_owner).where(items.c.lease_until > now)
        finders = select(jobs.c.discovery_owner).where(jobs.c.discovery_until > now)
        askers = select(questions.c.lease_owner).where(questions.c.lease_until > now)
        found: Any = reading.scalars(holders.union(finders, askers))
        owners = [str(one) for one in found if one is not None]
        dead = self._dead_among(owners)
        living = [one for one in owners if one not in dead]
        if living:
            raise self._refused(
                f"{len(living)} processes work on jobs of {self._source.database.address}, such as "
                f"{living[0]}; what they do next would stay behind. Pause the jobs first, or say "
                "--force"
            )

    def _refuse_filled(self, writing: Connection) -> None:
        for table in metadata.sorted_tables:
            first: Select[Any] = select(literal_column("1")).select_from(table).limit(1)
            if table is not leaders and writing.scalar(first) is not None:
                remedy = _how_to_empty(writing)
                raise self._refused(
                    f"it is not empty, there are rows in {table.name} already; {remedy}"
                )

    def _fitting(self, writing: Connection, table: Table, batches: Batches) -> Batches:
        """Yield rows that the target can keep."""
        if writing.dialect.name == "sqlite":
            yield from batches
            return
        misfits = Misfits(table)
        for batch in batches:
            rows = [misfits.mend(row) for row in batch] if self._mend else batch
            problem = next(filter(None, map(misfits.find, rows)), None)
            if problem is not None:
                raise self._refused(problem)
            yield rows

    def _refused(self, problem: str) -> NotCopied:
        return NotCopied(self._target.database.address, problem)


def _how_to_empty(writing: Connection) -> str:
    if writing.dialect.name == "sqlite":
        return f"move the file {writing.engine.url.database} away, and copy again"
    return "name one that is"


def _batches(reading: Connection, table: Table, small: Sequence[Kept]) -> Batches:
    if table is cells:  # few, and partly from a file
        yield [{"room": one.room, "name": one.name, "state": one.state} for one in small]
        return
    yield from rows_of(reading, table, _BATCH)


def _go_on_counting(writing: Connection, table: Table) -> None:
    """Let new rows get numbers after those that were copied, which SQLite does by itself."""
    column = table.autoincrement_column
    if column is None or writing.dialect.name == "sqlite":
        return
    most = writing.scalar(select(func.max(column)))
    if most is not None:
        writing.execute(
            text("SELECT setval(pg_get_serial_sequence(:table, :column), :most)"),
            {"table": table.name, "column": column.name, "most": most},
        )
