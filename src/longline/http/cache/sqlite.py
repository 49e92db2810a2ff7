"""Answers in a SQLite file that all processes of a home share.

Readers of a file in WAL mode wait for nobody, so a look-up is done in place. All writing is done
by one thread, many changes to a transaction, and no request waits for it: what it has not
written yet is found in memory.
"""

from __future__ import annotations

import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnreachable,
)
from longline.core.files import make_private_file
from longline.core.sqlite_files import is_busy, is_damaged, transaction, undecodable_is_damage
from longline.http.cache.base import (
    LARGEST_PART,
    LIMIT_BYTES,
    CacheStats,
    Cleared,
    Entry,
    HttpCache,
    size_of,
)
from longline.http.cache.policy import Variant, digest
from longline.http.messages import origin_of

# ---------------- The SQLite file of the cache: its table, how it is opened, and what is written

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


# ---------------- The one thread that writes to the cache: what arrives while it waits shares a

_LARGEST_GROUP = 512
_GATHERING = 0.1  # seconds; nobody waits for a write, so it can wait for company
_EVICTION_EVERY = 50  # parts of the limit: the cache is at most so much too large

_Queued = tuple[str, Change] | threading.Event | None


class Writer:
    """Applies changes in order. `settle` is told of changes once they need no keeping."""

    def __init__(
        self,
        path: Path,
        limit: int,
        settle: Callable[[list[tuple[str, Change]]], None],
        fail: Callable[[StoreError], None],
    ) -> None:
        """Start the thread; `fail` is told why the changes of a group could not be written."""
        self._path = path
        self._limit = limit
        self._settle = settle
        self._fail = fail
        self._added_bytes = limit  # what others left behind is looked at first
        self._queue: queue.SimpleQueue[_Queued] = queue.SimpleQueue()
        self._is_hurried = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._serve, name="longline-cache", daemon=True)
        self._thread.start()

    def submit(self, url: str, change: Change) -> None:
        """Queue a change."""
        self._queue.put((url, change))

    def flush(self) -> None:
        """Wait until all that was queued is done."""
        done = threading.Event()
        self._is_hurried.set()
        self._queue.put(done)
        done.wait()
        self._is_hurried.clear()

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
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

    def _write(self, changes: list[tuple[str, Change]]) -> None:
        try:
            with translated(self._path):
                self._commit([change for _, change in changes])
        except StoreError as error:
            self._fail(error)
        self._settle(changes)

    def _commit(self, changes: list[Change]) -> None:
        if not changes:
            return
        if self._connection is None:
            self._connection = open_file(self._path)
        with transaction(self._connection) as connection:
            self._added_bytes += apply_all(connection, changes)
            if self._added_bytes * _EVICTION_EVERY > self._limit:
                evict(connection, self._limit)
                self._added_bytes = 0


_USE_IS_NOTED_AFTER = 60.0  # seconds: eviction need not know more exactly
_MOST_PENDING_BYTES = 64_000_000  # a disk that cannot keep up costs answers, not memory
_STATS = "SELECT count(*), coalesce(sum(size), 0), min(saved_at), max(saved_at) FROM answers"
_MOST_KNOWN = 200_000  # addresses, about 16 MB
_OF_DOMAIN = " WHERE domain = ? OR rtrim(rtrim(domain, '0123456789'), ':') = ?"


class SqliteCache(HttpCache):
    """Opens its file when first asked, so it costs nothing until then and survives a fork."""

    def __init__(self, path: Path, limit: int = LIMIT_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._reading: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._lock = threading.Lock()  # of what the writer takes away below
        self._pending: dict[str, list[Change]] = {}
        self._pending_bytes = 0
        self._known: set[int] | None = None
        self._trouble: StoreError | None = None

    def find(self, url: str) -> list[Entry]:
        # First what is pending, then the file: what was committed in between is in both.
        if not self._may_hold(url):
            return []
        pending = tuple(self._pending.get(url, ()))
        try:
            found = find(self._open(), url)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise translation(error, self._path) from error
            found = []  # another process mends the file after a crash: not to be waited for
        return _changed(found, pending) if pending else found

    def read(self, entry: Entry, now: float) -> bytes | None:
        last = self._last_change(entry)
        if last is None:
            with translated(self._path):
                body = read_body(self._open(), entry)
        elif isinstance(last, Store) and last.entry.saved_at == entry.saved_at:
            body = last.body
        else:
            body = None
        if body is not None and now - entry.used_at > _USE_IS_NOTED_AFTER:
            self._write(entry.url, Touch(entry, now))
        return body

    def put(self, entry: Entry, body: bytes | None) -> None:
        size = 0 if body is None else size_of(entry, body)
        if size > self._limit // LARGEST_PART:
            self.drop(entry.url, entry)
        elif self._pending_bytes + size <= _MOST_PENDING_BYTES:
            self._write(entry.url, Store(entry, body, size))

    def drop(self, url: str, entry: Entry | None = None) -> None:
        self._write(url, Drop(url, entry))

    def stats(self) -> CacheStats:
        self.flush()
        if not self._path.exists():  # looking does not make a file
            return CacheStats(0, 0, self._limit)
        with translated(self._path):
            entries, size, oldest, newest = self._open().execute(_STATS).fetchone()
        return CacheStats(entries, size, self._limit, oldest, newest)

    def clear(self, domain: str | None = None) -> Cleared:
        self.flush()
        if not self._path.exists():
            return Cleared(0, 0)
        where = "" if domain is None else _OF_DOMAIN
        values = () if domain is None else (domain.lower(), domain.lower())
        with translated(self._path):
            connection = self._open()
            with transaction(connection):
                count = f"SELECT count(*), coalesce(sum(size), 0) FROM answers{where}"  # noqa: S608  # our own words
                entries, size = connection.execute(count, values).fetchone()
                connection.execute(f"DELETE FROM answers{where}", values)  # noqa: S608  # ours, too
            connection.execute("PRAGMA incremental_vacuum").fetchall()
        return Cleared(entries, size)

    def flush(self) -> None:
        """Wait until all that was stored is in the file."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write what is pending, close the file and end the thread; again does no harm."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _open(self) -> sqlite3.Connection:
        if self._trouble is not None:
            raise self._trouble
        if self._reading is None:
            self._reading = open_file(self._path)
        return self._reading

    def _may_hold(self, url: str) -> bool:
        """Say whether it is worth asking the file for an address.

        Each question lets go of the interpreter, and a busy process does not get it back at once.
        So the addresses are remembered as numbers, unless they are too many. What other processes
        store later is not among them: it is then fetched once more.
        """
        if self._known is None:
            self._known = known(self._open(), _MOST_KNOWN)
        is_full = len(self._known) >= _MOST_KNOWN
        return is_full or hash(url) in self._known or url in self._pending

    def _write(self, url: str, change: Change) -> None:
        if self._trouble is not None:
            raise self._trouble
        if self._known is not None and len(self._known) < _MOST_KNOWN:
            self._known.add(hash(url))
        if self._writer is None:
            self._writer = Writer(self._path, self._limit, self._settle, self._fail)
        with self._lock:
            self._pending.setdefault(url, []).append(change)
            self._pending_bytes += change.size_bytes
        self._writer.submit(url, change)

    def _settle(self, settled: list[tuple[str, Change]]) -> None:
        """Forget what is no longer pending: it is in the file now, or never will be."""
        with self._lock:
            for url, change in settled:
                changes = self._pending[url]
                changes.remove(change)
                self._pending_bytes -= change.size_bytes
                if not changes:
                    del self._pending[url]

    def _fail(self, error: StoreError) -> None:
        # Without its changes the file tells the past: from here on it is not asked any more.
        self._trouble = error

    def _last_change(self, entry: Entry) -> Store | Drop | None:
        """Return the last change to the body of an answer that is not in the file yet."""
        for change in reversed(tuple(self._pending.get(entry.url, ()))):
            match change:
                case Store(its, bytes(), _) if its.place == entry.place:
                    return change
                case Drop(_, its, _) if its is None or its.place == entry.place:
                    return change
        return None


def _changed(found: list[Entry], changes: tuple[Change, ...]) -> list[Entry]:
    """Return what the file will hold once the changes are in it."""
    entries = {entry.place: entry for entry in found}
    for change in changes:
        match change:
            case Store(entry, bytes(), _):
                entries[entry.place] = entry
            case Store(entry, None, _):
                kept = entries.get(entry.place)
                if kept is not None and kept.saved_at == entry.saved_at:
                    entries[entry.place] = entry
            case Drop(_, None, _):
                entries.clear()
            case Drop(_, Entry() as entry, _):
                entries.pop(entry.place, None)
    return list(entries.values())
