"""The index of an archive: where in which file the answer to a request stands.

The files are the truth. Whenever the index is opened it is brought in line with them, so it may
be deleted at any time. What it knew and the files have lost it remembers until then.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from longline.core.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnreachable,
)
from longline.core.files import make_private_file, make_private_folder
from longline.core.sqlite_files import is_busy, is_damaged, transaction, undecodable_is_damage
from longline.http.archive.base import Totals
from longline.http.archive.files import SUFFIX, members
from longline.http.archive.records import (
    FAILURE,
    JOB,
    KEY,
    RESPONSE,
    REVISIT,
    Original,
    body_of,
    parse,
    status_of,
)

T = TypeVar("T")
_PATIENCE = 60.0  # seconds to wait for other processes
_VERSION = 2
_REMEDY = "Delete it: it is made again from the files of the archive."
_APPLICATION = 0x6C6C6169  # "llai", in the header of each of our files
_AT_ONCE = 500
_INDEXED = frozenset({RESPONSE, REVISIT, FAILURE})
_COLUMNS = "file, offset, length, job, request, at, url, status, digest, is_whole"
_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    file INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
    job TEXT NOT NULL, request TEXT NOT NULL, at REAL NOT NULL, url TEXT NOT NULL,
    status INTEGER, digest TEXT NOT NULL, is_whole INTEGER NOT NULL,
    PRIMARY KEY (file, offset)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lost (
    name TEXT NOT NULL, offset INTEGER NOT NULL, PRIMARY KEY (name, offset)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_by_request ON answers (job, request, at);
CREATE INDEX IF NOT EXISTS bodies ON answers (digest) WHERE is_whole;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of an archive; `is_whole` when it holds a body that others may refer to."""

    offset: int
    length: int
    job: str
    request: str
    at: float
    url: str
    status: int | None
    digest: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands."""

    file: str
    offset: int
    length: int


class Index:
    """A small SQLite file that several processes share; used by one thread in each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "index.sqlite"
        self._connection: sqlite3.Connection | None = None

    def add(self, file: str, size: int, entries: list[Entry]) -> None:
        """Add what was just written to a file, which is this long now."""
        self._run(lambda connection: self._add(connection, file, size, entries))

    def known(self, digests: Iterable[str]) -> dict[str, Original]:
        """Return which of these bodies the archive has, and where it first saw them."""
        wanted = list(dict.fromkeys(digests))
        marks = ", ".join("?" * len(wanted))
        sql = f"SELECT digest, url, at FROM answers WHERE is_whole AND digest IN ({marks})"  # noqa: S608  # marks only
        rows = self._run(lambda connection: connection.execute(sql, wanted).fetchall())
        return {digest: Original(url, at) for digest, url, at in rows}

    def find(self, job: str, request: str, until: float | None) -> Place | None:
        """Return where the newest answer up to a moment stands, or else the newest of all."""
        order = "at <= ? DESC, at DESC, answers.file DESC, offset DESC"
        sql = f"{_PLACES} WHERE job = ? AND request = ? ORDER BY {order} LIMIT 1"
        return self._place(sql, job, request, float("inf") if until is None else until)

    def body(self, digest: str) -> Place | None:
        """Return where a body stands."""
        return self._place(f"{_PLACES} WHERE is_whole AND digest = ? LIMIT 1", digest)

    def count(self, job: str) -> int:
        """Return how many answers of a job there are."""
        sql = "SELECT count(*) FROM answers WHERE job = ?"
        found: int = self._run(lambda connection: connection.execute(sql, (job,)).fetchone()[0])
        return found

    def totals(self) -> Totals:
        """Return how much there is."""
        return Totals(*self._run(lambda connection: connection.execute(_TOTALS).fetchone()))

    def follow(self) -> None:
        """Come in line with the files as they are now."""
        self._run(self._follow)

    def ends(self) -> dict[str, int]:
        """Return where, in each file, the last answer ends."""
        return dict(self._run(lambda connection: connection.execute(_ENDS).fetchall()))

    def lost(self) -> dict[str, int]:
        """Return how many answers each file has lost, whole files included."""
        sql = "SELECT name, count(*) FROM lost GROUP BY name ORDER BY name"
        return dict(self._run(lambda connection: connection.execute(sql).fetchall()))

    def rebuild(self) -> None:
        """Make the index anew from the files."""
        self._run(_clear)
        self._follow(self._open())

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------ following the files

    def _follow(self, connection: sqlite3.Connection) -> None:
        """Forget what is no longer in the files, and learn what is not yet in the index."""
        # In this order: a file that another process adds to in between has grown, not shrunk.
        known = dict(connection.execute("SELECT name, size FROM files").fetchall())
        sizes = {path.name: path.stat().st_size for path in self._folder.glob(f"*{SUFFIX}")}
        for name, size in known.items():
            if size > sizes.get(name, 0):
                _forget(connection, name, sizes.get(name, 0))
        for name, size in sorted(sizes.items()):
            if size > known.get(name, 0):
                self._learn(connection, name, known.get(name, 0))

    def _learn(self, connection: sqlite3.Connection, name: str, start: int) -> None:
        found = entries_in(self._folder / name, start)
        while chunk := list(islice(found, _AT_ONCE)):
            self._add(connection, name, chunk[-1].offset + chunk[-1].length, chunk)
            connection.execute(_REGAINED, (name, chunk[0].offset, chunk[-1].offset))

    def _add(
        self, connection: sqlite3.Connection, name: str, size: int, entries: list[Entry]
    ) -> None:
        # One statement for all rows: the thread asks for the interpreter after each, and waits.
        rows = ", ".join([_ROW] * len(entries))
        with transaction(connection):
            (file,) = connection.execute(_GROWN, (name, size)).fetchone()
            values = [value for entry in entries for value in (file, *_values(entry))]
            if entries:
                connection.execute(f"{_INSERT} {rows}", values)

    # ------------------------------------------------------------ the file

    def _place(self, sql: str, *values: Any) -> Place | None:
        row = self._run(lambda connection: connection.execute(sql, values).fetchone())
        return None if row is None else Place(*row)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work, again while others are in the way: SQLite itself does not always wait."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with undecodable_is_damage():
                    return work(self._open())
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise self._translated(error) from error
                if time.monotonic() > deadline:
                    raise StoreBusy(str(self._path), _PATIENCE) from error
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311  # who comes first is no secret

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            make_private_folder(self._folder)
            make_private_file(self._path)
            connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
            try:
                self._prepare(connection)
                self._follow(connection)
            except (sqlite3.Error, StoreError, OSError):
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise StoreTooNew(str(self._path), str(version), str(_VERSION))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if version < _VERSION:
            with transaction(connection):
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _translated(self, error: sqlite3.Error) -> StoreError:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return StoreFull(str(self._path))
        if is_damaged(error):
            return StoreDamaged(str(self._path), str(error), _REMEDY)
        return StoreUnreachable(str(self._path), str(error))


_values = attrgetter(*(field.name for field in fields(Entry)))
_ROW = f"({', '.join('?' * len(_COLUMNS.split(', ')))})"
_INSERT = f"INSERT OR REPLACE INTO answers ({_COLUMNS}) VALUES"
_PLACES = "SELECT name, offset, length FROM answers JOIN files ON files.id = answers.file"
_GROWN = """INSERT INTO files (name, size) VALUES (?, ?)
    ON CONFLICT DO UPDATE SET size = max(size, excluded.size) RETURNING id"""
_ENDS = """SELECT name, max(offset + length) FROM answers JOIN files ON files.id = answers.file
    GROUP BY name"""
_LOST = """INSERT OR IGNORE INTO lost SELECT ?2, offset FROM answers
    WHERE file = ?1 AND offset + length > ?3"""
_REGAINED = "DELETE FROM lost WHERE name = ? AND offset BETWEEN ? AND ?"
_TOTALS = """SELECT (SELECT count(*) FROM files), (SELECT coalesce(sum(size), 0) FROM files),
    count(status), coalesce(sum(is_whole), 0), count(*) - count(status), count(DISTINCT job)
    FROM answers"""


def entries_in(path: Path, start: int = 0) -> Iterator[Entry]:
    """Yield what the index says of the records in a file, read from the file itself."""
    for offset, length, text in members(path, start):
        try:
            record = parse(text)
        except ValueError:
            return
        headers = record.headers
        if record.kind in _INDEXED and KEY.lower() in headers:
            yield Entry(
                offset,
                length,
                headers[JOB.lower()],
                headers[KEY.lower()],
                record.at,
                headers["warc-target-uri"],
                status_of(record),
                record.digest,
                record.kind == RESPONSE and bool(body_of(record)),
            )


def _clear(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        connection.execute("DELETE FROM answers")
        connection.execute("DELETE FROM files")
        connection.execute("DELETE FROM lost")


def _forget(connection: sqlite3.Connection, name: str, size: int) -> None:
    """Drop what stood past the end that a file has now: it was deleted, or cut by a power cut."""
    with transaction(connection):
        row = connection.execute("SELECT id FROM files WHERE name = ?", (name,)).fetchone()
        if row is None:  # another process was quicker
            return
        (file,) = row
        connection.execute(_LOST, (file, name, size))
        lost = "DELETE FROM answers WHERE file = ? AND offset + length > ?"
        connection.execute(lost, (file, size))
        connection.execute("DELETE FROM files WHERE id = ?1 AND ?2 = 0", (file, size))
        connection.execute("UPDATE files SET size = ? WHERE id = ?", (size, file))
