"""The index of an archive: in which file, and where, the answer to a request is.

The files are authoritative. The index is synchronised with them whenever it is opened, so it may be
deleted at any time. It remembers answers that the files have lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from longline.core.files import make_private_folder
from longline.core.sqlite_files import SqliteFile, transaction
from longline.http.archive.records import (
    RESPONSE,
    SUFFIX,
    Original,
    RecordInfo,
    body_of,
    info_of,
    members,
    parse,
)

T = TypeVar("T")
_TIMEOUT = 60.0  # seconds to wait for other processes
_VERSION = 2
_REMEDY = "Delete it: it is rebuilt from the files of the archive."
_APPLICATION = 0x6C6C6169  # "llai"
_BATCH = 500
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
_ROW = f"({', '.join('?' * 10)})"
_PLACES = "SELECT name, offset, length FROM answers JOIN files ON files.id = answers.file"
_GROWN = """INSERT INTO files (name, size) VALUES (?, ?)
    ON CONFLICT DO UPDATE SET size = max(size, excluded.size) RETURNING id"""
_TOTALS = """SELECT (SELECT count(*) FROM files), (SELECT coalesce(sum(size), 0) FROM files),
    count(status), coalesce(sum(is_whole), 0), count(*) - count(status), count(DISTINCT job)
    FROM answers"""


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
    info: RecordInfo
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
        self._run_on_index(lambda connection: _add_entries(connection, file, size, entries))

    def known(self, digests: Iterable[str]) -> dict[str, Original]:
        """Return which of these bodies the archive has, and their first URL and time."""
        wanted = list(dict.fromkeys(digests))
        marks = ", ".join("?" * len(wanted))
        sql = f"SELECT digest, url, at FROM answers WHERE is_whole AND digest IN ({marks})"  # noqa: S608  # marks only
        return {digest: Original(url, at) for digest, url, at in self._query(sql, wanted)}

    def find(self, job: str, request: str, until: float | None) -> RecordPlace | None:
        """Return the place of the newest answer up to a time, or else of the newest of all."""
        order = "at <= ? DESC, at DESC, answers.file DESC, offset DESC"
        sql = f"{_PLACES} WHERE job = ? AND request = ? ORDER BY {order} LIMIT 1"
        rows = self._query(sql, (job, request, float("inf") if until is None else until))
        return RecordPlace(*rows[0]) if rows else None

    def body(self, digest: str) -> RecordPlace | None:
        """Return the place of a body."""
        rows = self._query(f"{_PLACES} WHERE is_whole AND digest = ? LIMIT 1", (digest,))
        return RecordPlace(*rows[0]) if rows else None

    def count(self, job: str) -> int:
        """Return the number of answers of a job."""
        found: int = self._query("SELECT count(*) FROM answers WHERE job = ?", (job,))[0][0]
        return found

    def totals(self) -> Totals:
        """Return the size of the archive."""
        return Totals(*self._query(_TOTALS)[0])

    def find_lost(self) -> dict[str, int]:
        """Synchronise with the files; return how many answers each has lost, if any."""
        self._run_on_index(self._sync)
        return dict(self._query("SELECT name, count(*) FROM lost GROUP BY name ORDER BY name"))

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._run_on_index(lambda connection: connection.execute(sql, values).fetchall())

    def _run_on_index(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._file.run(lambda: work(self._open_index()))

    def _open_index(self) -> sqlite3.Connection:
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

    def _sync(self, connection: sqlite3.Connection) -> None:
        """Remove what is no longer in the files, and add what is not yet in the index."""
        # In this order: a file that another process appends to meanwhile has grown, not shrunk.
        known = dict(connection.execute("SELECT name, size FROM files").fetchall())
        sizes = {path.name: path.stat().st_size for path in self._folder.glob(f"*{SUFFIX}")}
        for name, size in known.items():
            if size > sizes.get(name, 0):
                _remove_lost(connection, name, sizes.get(name, 0))
        for name, size in sorted(sizes.items()):
            if size > known.get(name, 0):
                found = _read_entries(self._folder / name, known.get(name, 0))
                while chunk := list(islice(found, _BATCH)):
                    end = chunk[-1].offset + chunk[-1].length
                    _add_entries(connection, name, end, chunk)
                    found_again = "DELETE FROM lost WHERE name = ? AND offset BETWEEN ? AND ?"
                    connection.execute(found_again, (name, chunk[0].offset, chunk[-1].offset))


def _read_entries(path: Path, start: int) -> Iterator[IndexEntry]:
    for offset, length, text in members(path, start):
        try:
            record = parse(text)
        except ValueError:
            return
        if (info := info_of(record)) is not None:
            is_whole = record.kind == RESPONSE and bool(body_of(record))
            yield IndexEntry(offset, length, info, is_whole)


def _add_entries(
    connection: sqlite3.Connection, name: str, size: int, entries: list[IndexEntry]
) -> None:
    with transaction(connection):
        (file,) = connection.execute(_GROWN, (name, size)).fetchone()
        if entries:
            # One statement for all rows: after each the thread waits for the interpreter lock.
            rows = ", ".join([_ROW] * len(entries))
            values = [
                value
                for entry in entries
                for value in (file, entry.offset, entry.length, *entry.info, entry.is_whole)
            ]
            connection.execute(f"INSERT OR REPLACE INTO answers VALUES {rows}", values)  # noqa: S608  # marks only


def _remove_lost(connection: sqlite3.Connection, name: str, size: int) -> None:
    """Move answers past the end of a file to `lost`: it was deleted, or cut by a power cut."""
    past_end = "FROM answers WHERE file = :file AND offset + length > :size"
    with transaction(connection):
        row = connection.execute("SELECT id FROM files WHERE name = ?", (name,)).fetchone()
        if row is None:  # another process did it
            return
        values = {"file": row[0], "name": name, "size": size}
        connection.execute(f"INSERT OR IGNORE INTO lost SELECT :name, offset {past_end}", values)
        connection.execute(f"DELETE {past_end}", values)
        connection.execute("UPDATE files SET size = :size WHERE id = :file", values)
        connection.execute("DELETE FROM files WHERE id = :file AND size = 0", values)
