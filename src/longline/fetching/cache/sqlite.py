"""Answers in a SQLite file that all processes of a home share.

Readers of a file in WAL mode wait for nobody, so a look-up is done in place. All writing is done
by one thread, many changes to a transaction, and no request waits for it: what it has not
written yet is found in memory.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from longline.errors import StoreError
from longline.fetching.cache import file
from longline.fetching.cache.base import (
    LARGEST_PART,
    LIMIT_BYTES,
    CacheStats,
    Cleared,
    Entry,
    HttpCache,
    size_of,
)
from longline.fetching.cache.file import Change, Drop, Store, Touch
from longline.fetching.cache.writer import Writer
from longline.resilience.keepers.transactions import is_busy, transaction

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
            found = file.find(self._open(), url)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise file.translation(error, self._path) from error
            found = []  # another process mends the file after a crash: not to be waited for
        return _changed(found, pending) if pending else found

    def read(self, entry: Entry, now: float) -> bytes | None:
        last = self._last_change(entry)
        if last is None:
            with file.translated(self._path):
                body = file.read_body(self._open(), entry)
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
        with file.translated(self._path):
            entries, size, oldest, newest = self._open().execute(_STATS).fetchone()
        return CacheStats(entries, size, self._limit, oldest, newest)

    def clear(self, domain: str | None = None) -> Cleared:
        self.flush()
        if not self._path.exists():
            return Cleared(0, 0)
        where = "" if domain is None else _OF_DOMAIN
        values = () if domain is None else (domain.lower(), domain.lower())
        with file.translated(self._path):
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
            self._reading = file.open_file(self._path)
        return self._reading

    def _may_hold(self, url: str) -> bool:
        """Say whether it is worth asking the file for an address.

        Each question lets go of the interpreter, and a busy process does not get it back at once.
        So the addresses are remembered as numbers, unless they are too many. What other processes
        store later is not among them: it is then fetched once more.
        """
        if self._known is None:
            self._known = file.known(self._open(), _MOST_KNOWN)
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
