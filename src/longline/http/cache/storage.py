"""HttpCache: responses in a SQLite file that all processes of a home share.

In WAL mode readers wait for nobody, so a look-up is done in place. One thread writes, many changes
to a transaction, and no request waits for it: changes that are not written yet are found in memory.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.errors import StoreError
from longline.core.sqlite_files import SqliteFile, is_busy, transaction
from longline.http.cache.policy import CacheEntry, Variant, digest
from longline.http.messages import origin_of

LIMIT_BYTES = 1_000_000_000
_LARGEST_SHARE = 10  # one response takes at most a tenth of the cache
_OVERHEAD_BYTES = 200  # of a row, besides its texts


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The size of a cache; `oldest` and `newest` are when responses were stored."""

    entries: int
    size_bytes: int
    limit_bytes: int
    oldest: float | None = None
    newest: float | None = None


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was removed from a cache."""

    entries: int
    size_bytes: int


# ---------------- The file

_APPLICATION = 0x6C6C6863  # "llhc"
_VERSION = 1
_REMEDY = "Delete it: responses are then fetched again."
_EVICTION_TARGET = 0.9  # of the limit, so that not every write evicts
# The body is last: a query for the other columns does not read its pages.
_SCHEMA = """CREATE TABLE IF NOT EXISTS answers (
        url TEXT NOT NULL, owner TEXT NOT NULL, variant TEXT NOT NULL, domain TEXT NOT NULL,
        status INTEGER NOT NULL, headers BLOB NOT NULL, requested_at REAL NOT NULL,
        responded_at REAL NOT NULL, saved_at REAL NOT NULL, used_at REAL NOT NULL,
        size INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (url, owner, variant));
    CREATE INDEX IF NOT EXISTS answers_by_use ON answers (used_at, size)"""
_CREATION_PRAGMAS = (
    "page_size = 16384",  # a usual response fits into one page
    "auto_vacuum = INCREMENTAL",
)
_PRAGMAS = (
    "synchronous = NORMAL",
    "wal_autocheckpoint = 1000",  # closing waits for the last checkpoint: less than 16 MB
)
_FIND = """SELECT url, owner, status, headers, requested_at, responded_at, saved_at, used_at
    FROM answers WHERE url = ?"""
_PLACE = "url = ? AND owner = ? AND variant = ?"
_BODY = f"SELECT body FROM answers WHERE {_PLACE} AND saved_at = ?"  # noqa: S608  # constants
_STORE = "INSERT OR REPLACE INTO answers VALUES "
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROWS_PER_STATEMENT = 64
_REFRESH = f"""UPDATE answers SET headers = ?, requested_at = ?, responded_at = ?, used_at = ?
    WHERE {_PLACE} AND saved_at = ?"""  # noqa: S608  # constants
_TOUCH = f"UPDATE answers SET used_at = max(used_at, ?) WHERE {_PLACE}"  # noqa: S608  # constants
_DROP = "DELETE FROM answers WHERE url = ?"
_DROP_ONE = f"DELETE FROM answers WHERE {_PLACE}"  # noqa: S608  # constants


@dataclass(frozen=True, slots=True, eq=False)
class _Put:
    """Store a response; without a body, refresh the stored one."""

    entry: CacheEntry
    body: bytes | None
    size_bytes: int = 0

    def apply(self, connection: sqlite3.Connection) -> None:
        entry = self.entry
        if self.body is not None:
            connection.execute(_STORE + _ROW, self.row())
            return
        times = (entry.requested_at, entry.responded_at, entry.used_at)
        values = (self._headers(), *times, *_row_key(entry), entry.saved_at)
        connection.execute(_REFRESH, values)

    def row(self) -> tuple[Any, ...]:
        entry = self.entry
        about = (origin_of(entry.url)[1], entry.status, self._headers())
        times = (entry.requested_at, entry.responded_at, entry.saved_at, entry.used_at)
        return (*_row_key(entry), *about, *times, self.size_bytes, self.body)

    def _headers(self) -> bytes:
        return orjson.dumps([self.entry.vary, list(self.entry.headers.items())])


@dataclass(frozen=True, slots=True, eq=False)
class _Touch:
    """Record when a response was used."""

    entry: CacheEntry
    at: float
    size_bytes: int = 0

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute(_TOUCH, (self.at, *_row_key(self.entry)))


@dataclass(frozen=True, slots=True, eq=False)
class _Drop:
    """Remove one response of a URL, or all."""

    url: str
    entry: CacheEntry | None
    size_bytes: int = 0

    def apply(self, connection: sqlite3.Connection) -> None:
        if self.entry is None:
            connection.execute(_DROP, (self.url,))
        else:
            connection.execute(_DROP_ONE, _row_key(self.entry))


_Change = _Put | _Touch | _Drop


def _apply_changes(connection: sqlite3.Connection, changes: Sequence[_Change]) -> int:
    """Write changes in order; return how many bytes were added.

    Consecutive responses are stored by one statement: after each statement the thread has to get
    the interpreter lock back from the busy event loop.
    """
    for is_new, group in groupby(changes, lambda one: isinstance(one, _Put) and bool(one.body)):
        some = list(group)
        if not is_new:
            for change in some:
                change.apply(connection)
            continue
        for start in range(0, len(some), _ROWS_PER_STATEMENT):
            rows = [
                one.row()
                for one in some[start : start + _ROWS_PER_STATEMENT]
                if isinstance(one, _Put)
            ]
            values = [value for row in rows for value in row]
            connection.execute(_STORE + ", ".join([_ROW] * len(rows)), values)
    return sum(change.size_bytes for change in changes)


def _known_urls(connection: sqlite3.Connection, limit: int) -> set[int]:
    """Return the hashes of at most `limit` stored URLs."""
    rows = connection.execute("SELECT url FROM answers LIMIT ?", (limit,))
    return {hash(url) for (url,) in rows}


def _find_entries(connection: sqlite3.Connection, url: str) -> list[CacheEntry]:
    return [_decode_entry(row) for row in connection.execute(_FIND, (url,))]


def _read_body(connection: sqlite3.Connection, entry: CacheEntry) -> bytes | None:
    """Return the body of exactly this version of a response; None when it was removed."""
    row = connection.execute(_BODY, (*_row_key(entry), entry.saved_at)).fetchone()
    return None if row is None else row[0]


def _evict(connection: sqlite3.Connection, limit: int) -> None:
    """Remove the least recently used responses if there are more bytes than the limit."""
    (size,) = connection.execute("SELECT coalesce(sum(size), 0) FROM answers").fetchone()
    if size <= limit:
        return
    gone = []
    oldest_first = "SELECT rowid, size FROM answers ORDER BY used_at"
    for number, its_size in connection.execute(oldest_first):
        if size <= limit * _EVICTION_TARGET:
            break
        gone.append((number,))
        size -= its_size
    connection.executemany("DELETE FROM answers WHERE rowid = ?", gone)


def _row_key(entry: CacheEntry) -> tuple[str, str, str]:
    return entry.url, entry.owner, _variant_digest(entry.vary)


def _variant_digest(vary: Variant) -> str:
    return digest(*(f"{name}:{value}" for name, value in vary)) if vary else ""


def _decode_entry(row: tuple[str, str, int, bytes, float, float, float, float]) -> CacheEntry:
    url, owner, status, text, *times = row
    vary, pairs = orjson.loads(text)
    headers = CIMultiDictProxy(CIMultiDict((name, value) for name, value in pairs))
    return CacheEntry(
        url, owner, tuple((name, value) for name, value in vary), status, headers, *times
    )


# ---------------- The writer thread

_LARGEST_GROUP = 512
_GATHERING = 0.1  # seconds that a write waits for others
_EVICTION_EVERY = 50  # the cache exceeds its limit by at most one part in this many

_Queued = tuple[str, _Change] | threading.Event | None


class _Writer:
    """Applies changes in order; `settle` is called with changes that are written or lost."""

    def __init__(
        self,
        file: SqliteFile,
        limit: int,
        settle: Callable[[list[tuple[str, _Change]]], None],
        fail: Callable[[StoreError], None],
    ) -> None:
        """Start the thread; `fail` is called when changes cannot be written."""
        self._file = file
        self._limit = limit
        self._settle = settle
        self._fail = fail
        self._added_bytes = limit  # evict first what others left
        self._queue: queue.SimpleQueue[_Queued] = queue.SimpleQueue()
        self._is_hurried = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._serve, name="longline-cache", daemon=True)
        self._thread.start()

    def submit(self, url: str, change: _Change) -> None:
        """Queue a change."""
        self._queue.put((url, change))

    def flush(self) -> None:
        """Wait until all queued changes are written."""
        done = threading.Event()
        self._is_hurried.set()
        self._queue.put(done)
        done.wait()
        self._is_hurried.clear()

    def close(self) -> None:
        """Write all queued changes, then end the thread."""
        self._is_hurried.set()
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        is_open = True
        while is_open:
            group = [self._queue.get()]
            self._is_hurried.wait(_GATHERING)
            with suppress(queue.Empty):
                while len(group) < _LARGEST_GROUP:
                    group.append(self._queue.get_nowait())
            is_open = None not in group
            self._write([one for one in group if isinstance(one, tuple)])
            for one in group:
                if isinstance(one, threading.Event):
                    one.set()
        if self._connection is not None:
            self._connection.close()

    def _write(self, changes: list[tuple[str, _Change]]) -> None:
        try:
            self._file.run(lambda: self._commit([change for _, change in changes]))
        except StoreError as error:
            self._fail(error)
        self._settle(changes)

    def _commit(self, changes: list[_Change]) -> None:
        if not changes:
            return
        if self._connection is None:
            self._connection = self._file.open()
        with transaction(self._connection) as connection:
            self._added_bytes += _apply_changes(connection, changes)
            if self._added_bytes * _EVICTION_EVERY > self._limit:
                _evict(connection, self._limit)
                self._added_bytes = 0


_TOUCH_AFTER = 60.0  # seconds; exact enough for eviction
_MOST_PENDING_BYTES = 64_000_000  # a slow disk costs responses, not memory
_STATS = "SELECT count(*), coalesce(sum(size), 0), min(saved_at), max(saved_at) FROM answers"
_MOST_KNOWN = 200_000  # URLs, about 16 MB
_OF_DOMAIN = " WHERE domain = ? OR rtrim(rtrim(domain, '0123456789'), ':') = ?"


class HttpCache:
    """Stores responses up to a size and evicts the least recently used.

    No method waits for a write: what is stored is found at once. The file is opened on first use,
    so an object that was made before a fork can be used after it. A StoreError from any method
    means that the cache cannot be used any more.
    """

    def __init__(self, path: Path, limit: int = LIMIT_BYTES) -> None:
        self._file = SqliteFile(
            path,
            _APPLICATION,
            _VERSION,
            _SCHEMA,
            _REMEDY,
            pragmas=_PRAGMAS,
            creation_pragmas=_CREATION_PRAGMAS,
        )
        self._limit = limit
        self._reading: sqlite3.Connection | None = None
        self._writer: _Writer | None = None
        self._lock = threading.Lock()  # of what the writer removes below
        self._pending: dict[str, list[_Change]] = {}
        self._pending_bytes = 0
        self._known: set[int] | None = None
        self._failure: StoreError | None = None

    def find(self, url: str) -> list[CacheEntry]:
        """Return all stored responses of a URL."""
        # First pending changes, then the file: a change committed in between is in both.
        if not self._may_hold(url):
            return []
        pending = tuple(self._pending.get(url, ()))
        try:
            found = _find_entries(self._open(), url)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise self._file.translate(error) from error
            found = []  # another process recovers the file after a crash: do not wait
        return _apply_pending(found, pending) if pending else found

    def read(self, entry: CacheEntry, now: float) -> bytes | None:
        """Return the body, and record its use; None when it was removed or replaced."""
        last = self._last_change(entry)
        if last is None:
            body = self._file.run(lambda: _read_body(self._open(), entry))
        elif isinstance(last, _Put) and last.entry.saved_at == entry.saved_at:
            body = last.body
        else:
            body = None
        if body is not None and now - entry.used_at > _TOUCH_AFTER:
            self._write(entry.url, _Touch(entry, now))
        return body

    def put(self, entry: CacheEntry, body: bytes | None) -> None:
        """Store a response; without a body, only refresh the stored entry."""
        size = 0 if body is None else _size_of(entry, body)
        if size > self._limit // _LARGEST_SHARE:
            self.drop(entry.url, entry)
        elif self._pending_bytes + size <= _MOST_PENDING_BYTES:
            self._write(entry.url, _Put(entry, body, size))

    def drop(self, url: str, entry: CacheEntry | None = None) -> None:
        """Remove one response of a URL, or all."""
        self._write(url, _Drop(url, entry))

    def stats(self) -> CacheStats:
        """Return the size of the cache."""
        self.flush()
        if not self._file.path.exists():  # reading does not create a file
            return CacheStats(0, 0, self._limit)
        entries, size, oldest, newest = self._file.run(
            lambda: self._open().execute(_STATS).fetchone()
        )
        return CacheStats(entries, size, self._limit, oldest, newest)

    def clear(self, domain: str | None = None) -> Cleared:
        """Remove all responses of a host (with any port, unless one is given), or of all hosts."""
        self.flush()
        if not self._file.path.exists():
            return Cleared(0, 0)
        where = "" if domain is None else _OF_DOMAIN
        values = () if domain is None else (domain.lower(), domain.lower())

        def work() -> tuple[int, int]:
            connection = self._open()
            with transaction(connection):
                count = f"SELECT count(*), coalesce(sum(size), 0) FROM answers{where}"  # noqa: S608  # constants
                entries, size = connection.execute(count, values).fetchone()
                connection.execute(f"DELETE FROM answers{where}", values)  # noqa: S608  # constants
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            return entries, size

        return Cleared(*self._file.run(work))

    def flush(self) -> None:
        """Wait until all changes are in the file."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write pending changes, close the file and end the thread; further calls do nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _open(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise self._failure
        if self._reading is None:
            self._reading = self._file.run(self._file.open)
        return self._reading

    def _may_hold(self, url: str) -> bool:
        """Return whether the file may have a URL.

        Each query releases the interpreter lock, which a busy process gets back late. So hashes of
        the stored URLs are kept in memory, unless there are too many. URLs that other processes
        store later are not among them and are fetched once more.
        """
        if self._known is None:
            self._known = _known_urls(self._open(), _MOST_KNOWN)
        is_full = len(self._known) >= _MOST_KNOWN
        return is_full or hash(url) in self._known or url in self._pending

    def _write(self, url: str, change: _Change) -> None:
        if self._failure is not None:
            raise self._failure
        if self._known is not None and len(self._known) < _MOST_KNOWN:
            self._known.add(hash(url))
        if self._writer is None:
            self._writer = _Writer(self._file, self._limit, self._settle, self._fail)
        with self._lock:
            self._pending.setdefault(url, []).append(change)
            self._pending_bytes += change.size_bytes
        self._writer.submit(url, change)

    def _settle(self, settled: list[tuple[str, _Change]]) -> None:
        """Remove changes that are no longer pending: written, or failed."""
        with self._lock:
            for url, change in settled:
                changes = self._pending[url]
                changes.remove(change)
                self._pending_bytes -= change.size_bytes
                if not changes:
                    del self._pending[url]

    def _fail(self, error: StoreError) -> None:
        # Without these changes the file is outdated: it is not used any more.
        self._failure = error

    def _last_change(self, entry: CacheEntry) -> _Put | _Drop | None:
        """Return the last pending change to the body of a response."""
        for change in reversed(tuple(self._pending.get(entry.url, ()))):
            match change:
                case _Put(its, bytes(), _) if its.variant == entry.variant:
                    return change
                case _Drop(_, its, _) if its is None or its.variant == entry.variant:
                    return change
        return None


def _apply_pending(found: list[CacheEntry], changes: tuple[_Change, ...]) -> list[CacheEntry]:
    """Return the entries after pending changes."""
    entries = {entry.variant: entry for entry in found}
    for change in changes:
        match change:
            case _Put(entry, bytes(), _):
                entries[entry.variant] = entry
            case _Put(entry, None, _):
                kept = entries.get(entry.variant)
                if kept is not None and kept.saved_at == entry.saved_at:
                    entries[entry.variant] = entry
            case _Drop(_, None, _):
                entries.clear()
            case _Drop(_, CacheEntry() as entry, _):
                entries.pop(entry.variant, None)
    return list(entries.values())


def _size_of(entry: CacheEntry, body: bytes) -> int:
    """Return the bytes that a response counts for."""
    headers = len("".join(entry.headers)) + len("".join(entry.headers.values()))
    return len(body) + headers + len(entry.url) + _OVERHEAD_BYTES
