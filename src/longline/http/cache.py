"""HttpCache: responses in a SQLite file that all processes of a home share.

In WAL mode readers never wait, so a look-up is done in place. One thread writes, many changes in a
transaction, and no request waits for it: changes that are not written yet are found in memory.
"""

from __future__ import annotations

import hashlib
import queue
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import orjson
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.errors import StoreError
from longline.core.sqlite_files import SqliteFile, is_busy, transaction
from longline.http.messages import origin_of

LIMIT_BYTES = 1_000_000_000
_LARGEST_SHARE = 10  # one response takes at most a tenth of the cache
_OVERHEAD_BYTES = 200  # of a row, besides its texts

Variant = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A stored response without its body.

    `owner` is a digest of the secrets in the request, so that responses are not shared between
    identities. `vary` pairs the request headers that the response depends on with digests of their
    values; None for a header that was not sent. `saved_at` identifies the version of the body.
    """

    url: str
    owner: str
    vary: Variant
    status: int
    headers: CIMultiDictProxy[str]
    requested_at: float
    responded_at: float
    saved_at: float
    used_at: float

    @property
    def variant(self) -> tuple[str, Variant]:
        """What distinguishes it from other responses of its URL."""
        return self.owner, self.vary


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


def digest(*parts: str) -> str:
    """Return a one-way digest of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


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
_KEY = "url = ? AND owner = ? AND variant = ?"
_BODY = f"SELECT body FROM answers WHERE {_KEY} AND saved_at = ?"  # noqa: S608  # constants
_STORE = "INSERT OR REPLACE INTO answers VALUES "
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROWS_PER_STATEMENT = 64
_REFRESH = f"""UPDATE answers SET headers = ?, requested_at = ?, responded_at = ?, used_at = ?
    WHERE {_KEY} AND saved_at = ?"""  # noqa: S608  # constants
_TOUCH = f"UPDATE answers SET used_at = max(used_at, ?) WHERE {_KEY}"  # noqa: S608  # constants
_DROP = "DELETE FROM answers WHERE url = ?"
_DROP_ONE = f"DELETE FROM answers WHERE {_KEY}"  # noqa: S608  # constants
_STATS = "SELECT count(*), coalesce(sum(size), 0), min(saved_at), max(saved_at) FROM answers"
_OF_DOMAIN = " WHERE domain = ? OR rtrim(rtrim(domain, '0123456789'), ':') = ?"


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A change to one response of a URL; `drop` without an entry removes all of them."""

    kind: Literal["store", "refresh", "touch", "drop"]
    url: str
    entry: CacheEntry | None = None
    body: bytes = b""
    size_bytes: int = 0
    at: float = 0.0

    def row(self) -> tuple[Any, ...]:
        """Return the values of a stored response."""
        entry = self.entry
        assert entry is not None  # noqa: S101  # only `drop` has none
        about = (origin_of(entry.url)[1], entry.status, _encode_headers(entry))
        times = (entry.requested_at, entry.responded_at, entry.saved_at, entry.used_at)
        return (*_row_key(entry), *about, *times, self.size_bytes, self.body)

    def apply(self, connection: sqlite3.Connection) -> None:
        """Execute a change other than `store`."""
        entry = self.entry
        if entry is None:
            connection.execute(_DROP, (self.url,))
        elif self.kind == "drop":
            connection.execute(_DROP_ONE, _row_key(entry))
        elif self.kind == "touch":
            connection.execute(_TOUCH, (self.at, *_row_key(entry)))
        else:
            times = (entry.requested_at, entry.responded_at, entry.used_at)
            key = (*_row_key(entry), entry.saved_at)
            connection.execute(_REFRESH, (_encode_headers(entry), *times, *key))


def _apply_changes(connection: sqlite3.Connection, changes: Sequence[_Change]) -> None:
    """Write changes in order.

    Consecutive responses are stored by one statement: after each statement the thread has to get
    the interpreter lock back from the busy event loop.
    """
    for is_store, group in groupby(changes, lambda one: one.kind == "store"):
        some = list(group)
        if not is_store:
            for change in some:
                change.apply(connection)
            continue
        for start in range(0, len(some), _ROWS_PER_STATEMENT):
            rows = [one.row() for one in some[start : start + _ROWS_PER_STATEMENT]]
            values = [value for row in rows for value in row]
            connection.execute(_STORE + ", ".join([_ROW] * len(rows)), values)


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
    variant = digest(*(f"{name}:{value}" for name, value in entry.vary)) if entry.vary else ""
    return entry.url, entry.owner, variant


def _encode_headers(entry: CacheEntry) -> bytes:
    return orjson.dumps([entry.vary, list(entry.headers.items())])


def _decode_entry(row: tuple[str, str, int, bytes, float, float, float, float]) -> CacheEntry:
    url, owner, status, text, *times = row
    vary, pairs = orjson.loads(text)
    headers = CIMultiDictProxy(CIMultiDict((name, value) for name, value in pairs))
    return CacheEntry(
        url, owner, tuple((name, value) for name, value in vary), status, headers, *times
    )


_LARGEST_GROUP = 512
_GATHERING = 0.1  # seconds that a write waits for others
_EVICTION_EVERY = 50  # the cache exceeds its limit by at most one part in this many
_TOUCH_AFTER = 60.0  # seconds; exact enough for eviction
_MOST_PENDING_BYTES = 64_000_000  # a slow disk costs responses, not memory
_MOST_KNOWN = 200_000  # URLs, about 16 MB


class HttpCache:
    """Stores responses up to a size and evicts the least recently used.

    No method waits for a write: a stored response is found immediately. The file is opened on first
    use, so an object that was made before a fork can be used after it. A StoreError from any method
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
        self._known: set[int] | None = None
        self._failure: StoreError | None = None
        self._lock = threading.Lock()  # of the pending changes
        self._pending: dict[str, list[_Change]] = {}
        self._pending_bytes = 0
        self._thread: threading.Thread | None = None
        self._queue: queue.SimpleQueue[_Change | threading.Event | None] = queue.SimpleQueue()
        self._is_hurried = threading.Event()
        self._added_bytes = limit  # evict first what others left

    def find(self, url: str) -> list[CacheEntry]:
        """Return all stored responses of a URL."""
        # First pending changes, then the file: a change committed in between is in both.
        if not self._may_have(url):
            return []
        pending = tuple(self._pending.get(url, ()))
        try:
            found = [_decode_entry(row) for row in self._open().execute(_FIND, (url,))]
        except sqlite3.Error as error:
            if not is_busy(error):
                raise self._file.translate(error) from error
            found = []  # another process recovers the file after a crash: do not wait
        return _apply_pending(found, pending) if pending else found

    def read(self, entry: CacheEntry, now: float) -> bytes | None:
        """Return the body, and record its use; None when it was removed or replaced."""
        last = self._last_change(entry)
        if last is None:
            values = (*_row_key(entry), entry.saved_at)
            row = self._file.run(lambda: self._open().execute(_BODY, values).fetchone())
            body = None if row is None else row[0]
        elif last.entry is not None and last.entry.saved_at == entry.saved_at:
            body = last.body if last.kind == "store" else None
        else:
            body = None
        if body is not None and now - entry.used_at > _TOUCH_AFTER:
            self._write(_Change("touch", entry.url, entry, at=now))
        return body

    def put(self, entry: CacheEntry, body: bytes | None) -> None:
        """Store a response; without a body, only refresh the stored entry."""
        if body is None:
            self._write(_Change("refresh", entry.url, entry))
            return
        headers = len("".join(entry.headers)) + len("".join(entry.headers.values()))
        size = len(body) + headers + len(entry.url) + _OVERHEAD_BYTES
        if size > self._limit // _LARGEST_SHARE:
            self.drop(entry.url, entry)
        elif self._pending_bytes + size <= _MOST_PENDING_BYTES:
            self._write(_Change("store", entry.url, entry, body, size))

    def drop(self, url: str, entry: CacheEntry | None = None) -> None:
        """Remove one response of a URL, or all."""
        self._write(_Change("drop", url, entry))

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
        if self._thread is not None:
            done = threading.Event()
            self._is_hurried.set()
            self._queue.put(done)
            done.wait()
            self._is_hurried.clear()

    def close(self) -> None:
        """Write pending changes, close the file and end the thread; further calls do nothing."""
        if self._thread is not None:
            self._is_hurried.set()
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _open(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise self._failure
        if self._reading is None:
            self._reading = self._file.run(self._file.open)
        return self._reading

    def _may_have(self, url: str) -> bool:
        """Return whether the file may have a URL.

        Each query releases the interpreter lock, which a busy process gets back late. So hashes of
        the stored URLs are kept in memory, unless there are too many. URLs that other processes
        store later are not among them and are fetched once more.
        """
        if self._known is None:
            rows = self._open().execute("SELECT url FROM answers LIMIT ?", (_MOST_KNOWN,))
            self._known = {hash(url) for (url,) in rows}
        is_full = len(self._known) >= _MOST_KNOWN
        return is_full or hash(url) in self._known or url in self._pending

    def _write(self, change: _Change) -> None:
        if self._failure is not None:
            raise self._failure
        if self._known is not None and len(self._known) < _MOST_KNOWN:
            self._known.add(hash(change.url))
        if self._thread is None:
            self._is_hurried.clear()
            self._thread = threading.Thread(target=self._serve, name="longline-cache", daemon=True)
            self._thread.start()
        with self._lock:
            self._pending.setdefault(change.url, []).append(change)
            self._pending_bytes += change.size_bytes
        self._queue.put(change)

    def _last_change(self, entry: CacheEntry) -> _Change | None:
        """Return the last pending change to the body of a response."""
        for change in reversed(tuple(self._pending.get(entry.url, ()))):
            is_ours = change.entry is None or change.entry.variant == entry.variant
            if change.kind in ("store", "drop") and is_ours:
                return change
        return None

    # ------------------------------------------------------------ in the thread

    def _serve(self) -> None:
        connection: sqlite3.Connection | None = None
        is_open = True
        while is_open:
            group = [self._queue.get()]
            self._is_hurried.wait(_GATHERING)
            with suppress(queue.Empty):
                while len(group) < _LARGEST_GROUP:
                    group.append(self._queue.get_nowait())
            is_open = None not in group
            changes = [one for one in group if isinstance(one, _Change)]
            try:
                if changes:
                    connection = connection or self._file.run(self._file.open)
                    self._commit(connection, changes)
            except StoreError as error:
                self._failure = error  # without these changes the file is outdated
            self._settle(changes)
            for one in group:
                if isinstance(one, threading.Event):
                    one.set()
        if connection is not None:
            connection.close()

    def _commit(self, connection: sqlite3.Connection, changes: list[_Change]) -> None:
        def work() -> None:
            with transaction(connection):
                _apply_changes(connection, changes)
                if is_due:
                    _evict(connection, self._limit)

        added = self._added_bytes + sum(change.size_bytes for change in changes)
        is_due = added * _EVICTION_EVERY > self._limit
        self._file.run(work)
        self._added_bytes = 0 if is_due else added

    def _settle(self, settled: list[_Change]) -> None:
        """Remove changes that are no longer pending: written, or failed."""
        with self._lock:
            for change in settled:
                changes = self._pending[change.url]
                changes.remove(change)
                self._pending_bytes -= change.size_bytes
                if not changes:
                    del self._pending[change.url]


def _apply_pending(found: list[CacheEntry], changes: tuple[_Change, ...]) -> list[CacheEntry]:
    """Return the entries after pending changes."""
    entries = {entry.variant: entry for entry in found}
    for change in changes:
        entry = change.entry
        if entry is None:
            entries.clear()
        elif change.kind == "drop":
            entries.pop(entry.variant, None)
        elif change.kind == "store":
            entries[entry.variant] = entry
        elif change.kind == "refresh":
            stored = entries.get(entry.variant)
            if stored is not None and stored.saved_at == entry.saved_at:
                entries[entry.variant] = entry
    return list(entries.values())
