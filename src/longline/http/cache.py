"""HttpCache: responses in a SQLite file that all processes of a home share.

In WAL mode readers never wait, so a look-up is done in place. One thread writes, many changes in a
transaction, and no request waits for it: changes that are not written yet are found in memory.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.errors import StoreError
from longline.core.sqlite_files import SqliteFile, is_busy, transaction
from longline.http.messages import origin_of

LIMIT_BYTES = 1_000_000_000
Variant = tuple[tuple[str, str | None], ...]
_RowKey = tuple[str, str, str]


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
_COLUMNS = 12
_ROW = f"({', '.join('?' * _COLUMNS)})"
_VALUES_PER_STATEMENT = 64 * _COLUMNS
_REFRESH = f"""UPDATE answers SET headers = ?, requested_at = ?, responded_at = ?, used_at = ?
    WHERE {_KEY} AND saved_at = ?"""  # noqa: S608  # constants
_DROP = f"DELETE FROM answers WHERE {_KEY}"  # noqa: S608  # constants
_EVICT = """DELETE FROM answers WHERE rowid IN (SELECT rowid FROM (
    SELECT rowid, sum(size) OVER (ORDER BY used_at DESC, rowid DESC) AS total FROM answers)
    WHERE total > ?)"""
_STATS = "SELECT count(*), coalesce(sum(size), 0), min(saved_at), max(saved_at) FROM answers"
_OF_DOMAIN = " WHERE domain = ? OR rtrim(rtrim(domain, '0123456789'), ':') = ?"
_LARGEST_SHARE = 10  # one response takes at most a tenth of the cache
_OVERHEAD_BYTES = 200  # of a row, besides its texts
_GATHERING = 0.1  # seconds that a write waits for others
_EVICTION_EVERY = 50  # the cache exceeds its limit by at most one part in this many
_TOUCH_AFTER = 60.0  # seconds; exact enough for eviction
_MOST_PENDING_BYTES = 64_000_000  # a slow disk costs responses, not memory
_MOST_KNOWN = 200_000  # URLs, about 16 MB


@dataclass(frozen=True, slots=True)
class _Pending:
    """The next state of a row: without an entry it is removed, without a body only refreshed."""

    entry: CacheEntry | None
    body: bytes | None = None
    size_bytes: int = 0


_Changes = dict[str, dict[_RowKey, _Pending]]
"""Changes by URL and row."""


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
        self._thread: threading.Thread | None = None
        self._state = threading.Condition()  # of the following
        self._pending: _Changes = {}
        self._writing: _Changes = {}
        self._pending_bytes = 0
        self._writing_bytes = 0
        self._is_hurried = False
        self._is_closing = False

    def find(self, url: str) -> list[CacheEntry]:
        """Return all stored responses of a URL."""
        if not self._may_have(url):
            return []
        # First pending changes, then the file: a change committed in between is in both.
        with self._state:
            changes = [one[url] for one in (self._writing, self._pending) if url in one]
        try:
            found = [_decode_entry(row) for row in self._open_reader().execute(_FIND, (url,))]
        except sqlite3.Error as error:
            if not is_busy(error):
                raise self._file.translate(error) from error
            found = []  # another process recovers the file after a crash: do not wait
        if not changes:
            return found
        entries = {_row_key(entry): entry for entry in found}
        for rows in changes:
            for key, row in rows.items():
                if row.entry is None:
                    entries.pop(key, None)
                elif row.body is not None or _is_version(entries.get(key), row.entry):
                    entries[key] = row.entry
        return list(entries.values())

    def read(self, entry: CacheEntry, now: float) -> bytes | None:
        """Return the body, and record its use; None when it was removed or replaced."""
        key = _row_key(entry)
        row = self._pending_row(entry.url, key)
        if row is not None:
            body = row.body if _is_version(row.entry, entry) else None
        else:
            values = (*key, entry.saved_at)
            found = self._file.run(lambda: self._open_reader().execute(_BODY, values).fetchone())
            body = found[0] if found else None
        if body is not None and now - entry.used_at > _TOUCH_AFTER:
            self.put(replace(entry, used_at=now), None)
        return body

    def put(self, entry: CacheEntry, body: bytes | None) -> None:
        """Store a response; without a body, only refresh the stored entry."""
        if body is None:
            row = self._pending.get(entry.url, {}).get(_row_key(entry))
            if row is None or _is_version(row.entry, entry):
                self._add_change(entry, replace(row or _Pending(None), entry=entry))
            return
        headers = len("".join(entry.headers)) + len("".join(entry.headers.values()))
        size = len(body) + headers + len(entry.url) + _OVERHEAD_BYTES
        if size > self._limit // _LARGEST_SHARE:
            self.drop(entry)
        elif self._pending_bytes + self._writing_bytes + size <= _MOST_PENDING_BYTES:
            self._add_change(entry, _Pending(entry, body, size))

    def drop(self, entry: CacheEntry) -> None:
        """Remove a response."""
        self._add_change(entry, _Pending(None))

    def stats(self) -> CacheStats:
        """Return the size of the cache."""
        self.flush()
        if not self._file.path.exists():  # reading does not create a file
            return CacheStats(0, 0, self._limit)
        entries, size, oldest, newest = self._file.run(
            lambda: self._open_reader().execute(_STATS).fetchone()
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
            connection = self._open_reader()
            with transaction(connection):
                count = f"SELECT count(*), coalesce(sum(size), 0) FROM answers{where}"  # noqa: S608  # constants
                entries, size = connection.execute(count, values).fetchone()
                connection.execute(f"DELETE FROM answers{where}", values)  # noqa: S608  # constants
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            return entries, size

        return Cleared(*self._file.run(work))

    def flush(self) -> None:
        """Wait until all changes are in the file."""
        with self._state:
            self._is_hurried = True
            self._state.notify_all()
            self._state.wait_for(lambda: not self._pending and not self._writing)
            self._is_hurried = False

    def close(self) -> None:
        """Write pending changes, close the file and end the thread; further calls do nothing."""
        if self._thread is not None:
            with self._state:
                self._is_hurried = self._is_closing = True
                self._state.notify_all()
            self._thread.join()
            self._thread = None
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _open_reader(self) -> sqlite3.Connection:
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
            rows = self._open_reader().execute("SELECT url FROM answers LIMIT ?", (_MOST_KNOWN,))
            self._known = {hash(url) for (url,) in rows}
        if len(self._known) >= _MOST_KNOWN or hash(url) in self._known:
            return True
        return url in self._pending or url in self._writing

    def _pending_row(self, url: str, key: _RowKey) -> _Pending | None:
        """Return the last pending change to the body of a response."""
        with self._state:
            layers = (self._pending, self._writing)
        rows = [layer[url][key] for layer in layers if key in layer.get(url, ())]
        return next((row for row in rows if row.body is not None or row.entry is None), None)

    def _add_change(self, entry: CacheEntry, row: _Pending) -> None:
        if self._failure is not None:
            raise self._failure
        if self._known is not None and len(self._known) < _MOST_KNOWN:
            self._known.add(hash(entry.url))
        with self._state:
            rows, key = self._pending.setdefault(entry.url, {}), _row_key(entry)
            self._pending_bytes += row.size_bytes - (rows[key].size_bytes if key in rows else 0)
            rows[key] = row
            if len(self._pending) == 1:
                self._state.notify_all()
        if self._thread is None:
            self._is_hurried = self._is_closing = False
            self._thread = threading.Thread(
                target=self._run_writer, name="longline-cache", daemon=True
            )
            self._thread.start()

    # ---------------- In the thread

    def _run_writer(self) -> None:
        connection: sqlite3.Connection | None = None
        added_bytes = self._limit  # evict first what others left
        while True:
            with self._state:
                self._state.wait_for(lambda: self._pending or self._is_closing)
                if not self._pending:
                    break
                self._state.wait_for(lambda: self._is_hurried, _GATHERING)
                self._writing, self._pending = self._pending, {}
                self._writing_bytes, self._pending_bytes = self._pending_bytes, 0
            added_bytes += self._writing_bytes
            is_eviction_due = added_bytes * _EVICTION_EVERY > self._limit
            try:
                connection = connection or self._file.run(self._file.open)
                limit = self._limit if is_eviction_due else None
                self._file.run(partial(_write_changes, connection, self._writing, limit))
                added_bytes = 0 if is_eviction_due else added_bytes
            except StoreError as error:
                self._failure = error  # without these changes the file is outdated
            with self._state:
                self._writing, self._writing_bytes = {}, 0
                self._state.notify_all()
        if connection is not None:
            connection.close()


def _is_version(stored: CacheEntry | None, entry: CacheEntry) -> bool:
    """Return whether both have the same body."""
    return stored is not None and stored.saved_at == entry.saved_at


def _row_key(entry: CacheEntry) -> _RowKey:
    variant = digest(*(f"{name}:{value}" for name, value in entry.vary)) if entry.vary else ""
    return entry.url, entry.owner, variant


def _decode_entry(row: tuple[str, str, int, bytes, float, float, float, float]) -> CacheEntry:
    url, owner, status, text, *times = row
    vary, pairs = orjson.loads(text)
    headers = CIMultiDictProxy(CIMultiDict((name, value) for name, value in pairs))
    return CacheEntry(
        url, owner, tuple((name, value) for name, value in vary), status, headers, *times
    )


def _write_changes(connection: sqlite3.Connection, changes: _Changes, limit: int | None) -> None:
    """Write changes; with a limit of bytes, evict the least recently used responses above it."""
    stored: list[Any] = []
    with transaction(connection):
        for key, row in (pair for rows in changes.values() for pair in rows.items()):
            entry = row.entry
            if entry is None:
                connection.execute(_DROP, key)
                continue
            headers = orjson.dumps([entry.vary, list(entry.headers.items())])
            times = (entry.requested_at, entry.responded_at, entry.used_at)
            if row.body is None:
                connection.execute(_REFRESH, (headers, *times, *key, entry.saved_at))
                continue
            stored += (*key, origin_of(entry.url)[1], entry.status, headers, *times[:2])
            stored += (entry.saved_at, entry.used_at, row.size_bytes, row.body)
        # Many rows in one statement: after each the thread has to get the interpreter lock back
        # from the busy event loop.
        for start in range(0, len(stored), _VALUES_PER_STATEMENT):
            values = stored[start : start + _VALUES_PER_STATEMENT]
            rows = ", ".join([_ROW] * (len(values) // _COLUMNS))
            connection.execute(f"INSERT OR REPLACE INTO answers VALUES {rows}", values)  # noqa: S608  # marks only
        if limit is not None:
            (size,) = connection.execute("SELECT coalesce(sum(size), 0) FROM answers").fetchone()
            if size > limit:
                connection.execute(_EVICT, (limit * _EVICTION_TARGET,))
