"""Moving everything from one database to another: all tables, all rows, or nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, func, literal_column, select, text

from longline.errors import NotCopied
from longline.stores.copying_cells import CellFile, Kept, merged
from longline.stores.copying_rows import Insertion, Misfits, Tally, rows_of
from longline.stores.database import Database
from longline.stores.schema import cells, items, jobs, leaders, metadata, questions
from longline.stores.store import Store

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
class Side:
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
class Copied:
    """What a copy has moved."""

    source: str
    target: str
    tables: tuple[CopiedTable, ...]


@dataclass(frozen=True, slots=True)
class _Guard:
    """What is held against the source, so that nothing stays behind."""

    now: float
    is_untouched: Callable[[], bool]


class Copying:
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
        source: Side,
        target: Side,
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

    async def run(self, *, force: bool = False) -> Copied:
        """Copy everything; `force` does so although somebody works on the source.

        Raises:
            NotCopied: it cannot be done, and why; nothing was.
            StoreError: one of the two databases does not work.
        """
        if self._source.database.address == self._target.database.address:
            raise NotCopied(self._target.database.address, "it is the same database")
        now = await Store(self._source.database).now()
        with self._source.database.watching() as is_untouched:
            guard = None if force else _Guard(now, is_untouched)
            try:
                copied: Copied = await self._target.database.write(self._copy, guard)
            except asyncio.CancelledError:
                self._stopped.set()  # the writing thread notices after its batch and undoes it all
                raise
        return copied

    def _copy(self, writing: Connection, guard: _Guard | None) -> Copied:
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
        return Copied(self._source.database.address, self._target.database.address, tuple(told))

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
