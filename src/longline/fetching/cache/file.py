"""The SQLite file of the cache: its table, how it is opened, and what is written to it."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
from multidict import CIMultiDict, CIMultiDictProxy

from longline.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnreachable,
)
from longline.fetching.cache.base import Entry
from longline.fetching.cache.vary import Variant, digest
from longline.fetching.messages import origin_of
from longline.private import make_private_file
from longline.resilience.keepers.transactions import (
    is_busy,
    is_damaged,
    transaction,
    undecodable_is_damage,
)

PATIENCE = 30.0  # seconds to wait for other processes that write
_APPLICATION = 0x6C6C6863  # "llhc", in the header of each of our files
_VERSION = 1
_REMEDY = "Delete it: answers are then asked for again."
_EVICTED_TO = 0.9  # of the limit, so that not every write evicts
# The body stands last: whoever reads the rest does not turn its pages.
_CREATE = (
    """CREATE TABLE IF NOT EXISTS answers (
        url TEXT NOT NULL, owner TEXT NOT NULL, variant TEXT NOT NULL, domain TEXT NOT NULL,
        status INTEGER NOT NULL, headers BLOB NOT NULL, requested_at REAL NOT NULL,
        responded_at REAL NOT NULL, saved_at REAL NOT NULL, used_at REAL NOT NULL,
        size INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (url, owner, variant))""",
    "CREATE INDEX IF NOT EXISTS answers_by_use ON answers (used_at, size)",
)
_FIND = """SELECT url, owner, status, headers, requested_at, responded_at, saved_at, used_at
    FROM answers WHERE url = ?"""
_PLACE = "url = ? AND owner = ? AND variant = ?"
_BODY = f"SELECT body FROM answers WHERE {_PLACE} AND saved_at = ?"  # noqa: S608  # our own words
_STORE = "INSERT OR REPLACE INTO answers VALUES "
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_AT_ONCE = 64  # answers stored by one statement
_REFRESH = f"""UPDATE answers SET headers = ?, requested_at = ?, responded_at = ?, used_at = ?
    WHERE {_PLACE} AND saved_at = ?"""  # noqa: S608  # our own words
_TOUCH = f"UPDATE answers SET used_at = max(used_at, ?) WHERE {_PLACE}"  # noqa: S608  # ours, too
_DROP = "DELETE FROM answers WHERE url = ?"
_DROP_ONE = f"DELETE FROM answers WHERE {_PLACE}"  # noqa: S608  # ours, too


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Put an answer in its place; without a body, refresh the one that is there."""

    entry: Entry
    body: bytes | None
    size_bytes: int = 0

    def apply(self, connection: sqlite3.Connection) -> None:
        """Write."""
        entry = self.entry
        if self.body is not None:
            connection.execute(_STORE + _ROW, self.row())
            return
        times = (entry.requested_at, entry.responded_at, entry.used_at)
        values = (self._headers(), *times, *_place(entry), entry.saved_at)
        connection.execute(_REFRESH, values)

    def row(self) -> tuple[Any, ...]:
        """Return the values of an answer with its body."""
        entry = self.entry
        about = (origin_of(entry.url)[1], entry.status, self._headers())
        times = (entry.requested_at, entry.responded_at, entry.saved_at, entry.used_at)
        return (*_place(entry), *about, *times, self.size_bytes, self.body)

    def _headers(self) -> bytes:
        return orjson.dumps([self.entry.vary, list(self.entry.headers.items())])


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """Note when an answer was used."""

    entry: Entry
    at: float
    size_bytes: int = 0

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute(_TOUCH, (self.at, *_place(self.entry)))


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Forget one answer of an address, or all."""

    url: str
    entry: Entry | None
    size_bytes: int = 0

    def apply(self, connection: sqlite3.Connection) -> None:
        if self.entry is None:
            connection.execute(_DROP, (self.url,))
        else:
            connection.execute(_DROP_ONE, _place(self.entry))


Change = Store | Touch | Drop


def apply_all(connection: sqlite3.Connection, changes: Sequence[Change]) -> int:
    """Write changes in their order; return how many bytes were added.

    Answers that follow each other go in by one statement: after each the thread has to win the
    interpreter back from the event loop, which is busy.
    """
    for is_new, group in groupby(changes, lambda one: isinstance(one, Store) and bool(one.body)):
        some = list(group)
        if not is_new:
            for change in some:
                change.apply(connection)
            continue
        for start in range(0, len(some), _AT_ONCE):
            rows = [one.row() for one in some[start : start + _AT_ONCE] if isinstance(one, Store)]
            values = [value for row in rows for value in row]
            connection.execute(_STORE + ", ".join([_ROW] * len(rows)), values)
    return sum(change.size_bytes for change in changes)


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file, and make it when it is not there, whoever of several processes is first.

    Raises:
        StoreUnreachable: it cannot be opened, or belongs to another program.
        StoreTooNew: a newer longline wrote it.
    """
    deadline = time.monotonic() + PATIENCE
    with translated(path):
        while True:
            try:
                return _opened(path)
            except sqlite3.OperationalError as error:  # SQLite itself does not always wait here
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - who comes first is no secret


def known(connection: sqlite3.Connection, limit: int) -> set[int]:
    """Return the hashes of the addresses that are stored, of so many at most."""
    rows = connection.execute("SELECT url FROM answers LIMIT ?", (limit,))
    return {hash(url) for (url,) in rows}


def find(connection: sqlite3.Connection, url: str) -> list[Entry]:
    """Return all that is stored of an address."""
    return [_entry(row) for row in connection.execute(_FIND, (url,))]


def read_body(connection: sqlite3.Connection, entry: Entry) -> bytes | None:
    """Return the body of exactly this version of an answer; None when it has gone."""
    row = connection.execute(_BODY, (*_place(entry), entry.saved_at)).fetchone()
    return None if row is None else row[0]


def evict(connection: sqlite3.Connection, limit: int) -> None:
    """Give up what was not used for the longest time, if there is more than the limit."""
    (size,) = connection.execute("SELECT coalesce(sum(size), 0) FROM answers").fetchone()
    if size <= limit:
        return
    gone = []
    oldest_first = "SELECT rowid, size FROM answers ORDER BY used_at"
    for number, its_size in connection.execute(oldest_first):
        if size <= limit * _EVICTED_TO:
            break
        gone.append((number,))
        size -= its_size
    connection.executemany("DELETE FROM answers WHERE rowid = ?", gone)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite into ours."""
    try:
        with undecodable_is_damage():
            yield
    except sqlite3.Error as error:
        raise translation(error, path) from error
    except OSError as error:
        raise StoreUnreachable(str(path), error.strerror or str(error)) from error


def translation(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error of ours that an error of SQLite is."""
    if is_busy(error):
        return StoreBusy(str(path), PATIENCE)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return StoreFull(str(path))
    if is_damaged(error):
        return StoreDamaged(str(path), str(error), _REMEDY)
    return StoreUnreachable(str(path), str(error))


def _opened(path: Path) -> sqlite3.Connection:
    make_private_file(path)  # pages behind a login are in it
    # It is closed by whoever closes the cache, which may be another thread.
    connection = sqlite3.connect(
        path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if _is_ready(connection, path):
        _hurry_slowly(connection)
        return
    connection.execute("PRAGMA page_size = 16384")  # the usual answer fits into one
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    _hurry_slowly(connection)
    with transaction(connection):
        for statement in _CREATE:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")


def _hurry_slowly(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
    # Checkpoints are the writing thread's work, done while others go on; what is left over when the
    # file is closed has to be waited for. 16 MB are few enough for that, and not too many waits.
    connection.execute("PRAGMA wal_autocheckpoint = 1000")


def _is_ready(connection: sqlite3.Connection, path: Path) -> bool:
    """Say whether the file is ours and complete; an empty one is to be made."""
    # In one transaction, or another process could make the table between the questions.
    with transaction(connection, "BEGIN"):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != _APPLICATION and (application or tables):
        raise StoreUnreachable(str(path), "it belongs to another program")
    if version > _VERSION:
        raise StoreTooNew(str(path), str(version), str(_VERSION))
    return bool(tables)


def _place(entry: Entry) -> tuple[str, str, str]:
    return entry.url, entry.owner, _variant(entry.vary)


def _variant(vary: Variant) -> str:
    return digest(*(f"{name}:{value}" for name, value in vary)) if vary else ""


def _entry(row: tuple[str, str, int, bytes, float, float, float, float]) -> Entry:
    url, owner, status, text, *times = row
    vary, pairs = orjson.loads(text)
    headers = CIMultiDictProxy(CIMultiDict((name, value) for name, value in pairs))
    return Entry(url, owner, tuple((name, value) for name, value in vary), status, headers, *times)
