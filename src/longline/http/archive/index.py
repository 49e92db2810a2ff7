"""The index of an archive: in which file, and where, the answer to a request is.

The files are authoritative. The index is synchronised with them whenever it is opened, so it may be
deleted at any time. It remembers answers that the files have lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from longline.core.files import make_private_folder
from longline.core.sqlite_files import SqliteFile, transaction
from longline.http.archive.records import (
    FAILURE,
    JOB,
    KEY,
    RESPONSE,
    REVISIT,
    SUFFIX,
    Original,
    body_of,
    members,
    parse,
    status_of,
)

T = TypeVar("T")
_TIMEOUT = 60.0  # seconds to wait for other processes
_VERSION = 2
_REMEDY = "Delete it: it is rebuilt from the files of the archive."
_APPLICATION = 0x6C6C6169  # "llai"
_BATCH = 500
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
class Totals:
    """The size of an archive; bytes are those on disk."""

    files: int
    size_bytes: int
    answers: int
    bodies: int
    failures: int
    jobs: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One record; `is_whole` when it has a body that other records may refer to."""

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
class RecordPlace:
    """Where a record is."""

    file: str
    offset: int
    length: int


class ArchiveIndex:
    """A small SQLite file that several processes share; used by one thread in each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = SqliteFile(
            folder / "index.sqlite", _APPLICATION, _VERSION, _TABLES, _REMEDY, timeout=_TIMEOUT
        )
        self._connection: sqlite3.Connection | None = None

    def add(self, file: str, size: int, entries: list[IndexEntry]) -> None:
        """Add the records just written to a file, whose size is now `size`."""
        self._run(lambda connection: self._add(connection, file, size, entries))

    def known(self, digests: Iterable[str]) -> dict[str, Original]:
        """Return which of these bodies the archive has, and their first URL and time."""
        wanted = list(dict.fromkeys(digests))
        marks = ", ".join("?" * len(wanted))
        sql = f"SELECT digest, url, at FROM answers WHERE is_whole AND digest IN ({marks})"  # noqa: S608  # marks only
        rows = self._run(lambda connection: connection.execute(sql, wanted).fetchall())
        return {digest: Original(url, at) for digest, url, at in rows}

    def find(self, job: str, request: str, until: float | None) -> RecordPlace | None:
        """Return the place of the newest answer up to a time, or else of the newest of all."""
        order = "at <= ? DESC, at DESC, answers.file DESC, offset DESC"
        sql = f"{_PLACES} WHERE job = ? AND request = ? ORDER BY {order} LIMIT 1"
        return self._find_place(sql, job, request, float("inf") if until is None else until)

    def body(self, digest: str) -> RecordPlace | None:
        """Return the place of a body."""
        return self._find_place(f"{_PLACES} WHERE is_whole AND digest = ? LIMIT 1", digest)

    def count(self, job: str) -> int:
        """Return the number of answers of a job."""
        sql = "SELECT count(*) FROM answers WHERE job = ?"
        found: int = self._run(lambda connection: connection.execute(sql, (job,)).fetchone()[0])
        return found

    def totals(self) -> Totals:
        """Return the size of the archive."""
        return Totals(*self._run(lambda connection: connection.execute(_TOTALS).fetchone()))

    def sync(self) -> None:
        """Synchronise with the files."""
        self._run(self._sync)

    def ends(self) -> dict[str, int]:
        """Return where the last answer of each file ends."""
        return dict(self._run(lambda connection: connection.execute(_ENDS).fetchall()))

    def lost(self) -> dict[str, int]:
        """Return how many answers each file has lost, deleted files included."""
        sql = "SELECT name, count(*) FROM lost GROUP BY name ORDER BY name"
        return dict(self._run(lambda connection: connection.execute(sql).fetchall()))

    def rebuild(self) -> None:
        """Rebuild the index from the files."""
        self._run(_clear)
        self._run(self._sync)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _sync(self, connection: sqlite3.Connection) -> None:
        """Remove what is no longer in the files, and add what is not yet in the index."""
        # In this order: a file that another process appends to meanwhile has grown, not shrunk.
        known = dict(connection.execute("SELECT name, size FROM files").fetchall())
        sizes = {path.name: path.stat().st_size for path in self._folder.glob(f"*{SUFFIX}")}
        for name, size in known.items():
            if size > sizes.get(name, 0):
                _drop_lost(connection, name, sizes.get(name, 0))
        for name, size in sorted(sizes.items()):
            if size > known.get(name, 0):
                self._index_file(connection, name, known.get(name, 0))

    def _index_file(self, connection: sqlite3.Connection, name: str, start: int) -> None:
        found = entries_in(self._folder / name, start)
        while chunk := list(islice(found, _BATCH)):
            self._add(connection, name, chunk[-1].offset + chunk[-1].length, chunk)
            connection.execute(_REGAINED, (name, chunk[0].offset, chunk[-1].offset))

    def _add(
        self, connection: sqlite3.Connection, name: str, size: int, entries: list[IndexEntry]
    ) -> None:
        # One statement for all rows: after each the thread waits for the interpreter lock.
        rows = ", ".join([_ROW] * len(entries))
        with transaction(connection):
            (file,) = connection.execute(_GROWN, (name, size)).fetchone()
            values = [value for entry in entries for value in (file, *_entry_values(entry))]
            if entries:
                connection.execute(f"{_INSERT} {rows}", values)

    def _find_place(self, sql: str, *values: Any) -> RecordPlace | None:
        row = self._run(lambda connection: connection.execute(sql, values).fetchone())
        return None if row is None else RecordPlace(*row)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._file.run(lambda: work(self._open()))

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            make_private_folder(self._folder)
            connection = self._file.open()
            try:
                self._sync(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


_entry_values = attrgetter(*(field.name for field in fields(IndexEntry)))
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


def entries_in(path: Path, start: int = 0) -> Iterator[IndexEntry]:
    """Yield the index entries of the records in a file."""
    for offset, length, text in members(path, start):
        try:
            record = parse(text)
        except ValueError:
            return
        headers = record.headers
        if record.kind in _INDEXED and KEY.lower() in headers:
            yield IndexEntry(
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


def _drop_lost(connection: sqlite3.Connection, name: str, size: int) -> None:
    """Move answers past the end of a file to `lost`: it was deleted, or cut by a power cut."""
    with transaction(connection):
        row = connection.execute("SELECT id FROM files WHERE name = ?", (name,)).fetchone()
        if row is None:  # another process did it
            return
        (file,) = row
        connection.execute(_LOST, (file, name, size))
        lost = "DELETE FROM answers WHERE file = ? AND offset + length > ?"
        connection.execute(lost, (file, size))
        connection.execute("DELETE FROM files WHERE id = ?1 AND ?2 = 0", (file, size))
        connection.execute("UPDATE files SET size = ? WHERE id = ?", (size, file))
