"""Answers in memory, gone when the process ends."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import replace

from longline.http.cache.base import (
    LARGEST_PART,
    LIMIT_BYTES,
    CacheStats,
    Cleared,
    Entry,
    HttpCache,
    is_of,
    size_of,
)
from longline.http.cache.policy import Variant
from longline.http.messages import origin_of

_Key = tuple[str, str, Variant]


class MemoryCache(HttpCache):
    """Answers in a dict, the least recently used first."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[_Key, tuple[Entry, bytes]] = OrderedDict()
        self._keys: defaultdict[str, set[_Key]] = defaultdict(set)  # by address

    def find(self, url: str) -> list[Entry]:
        return [self._kept[key][0] for key in self._keys.get(url, ())]

    def read(self, entry: Entry, now: float) -> bytes | None:
        kept, body = self._kept.get(_key(entry), (None, None))
        if kept is None or kept.saved_at != entry.saved_at:
            return None
        self._kept[_key(entry)] = replace(kept, used_at=now), body or b""
        self._kept.move_to_end(_key(entry))
        return body

    def put(self, entry: Entry, body: bytes | None) -> None:
        if body is None:
            body = self.read(entry, entry.used_at)
            if body is None:
                return
        self.drop(entry.url, entry)
        size = size_of(entry, body)
        if size > self._limit // LARGEST_PART:
            return
        self._kept[_key(entry)] = entry, body
        self._keys[entry.url].add(_key(entry))
        self._size += size
        while self._size > self._limit:
            self._remove(next(iter(self._kept)))

    def drop(self, url: str, entry: Entry | None = None) -> None:
        places = [one.place for one in self.find(url)] if entry is None else [entry.place]
        for place in places:
            self._remove((url, *place))

    def stats(self) -> CacheStats:
        moments = [entry.saved_at for entry, _ in self._kept.values()]
        oldest, newest = min(moments, default=None), max(moments, default=None)
        return CacheStats(len(moments), self._size, self._limit, oldest, newest)

    def clear(self, domain: str | None = None) -> Cleared:
        gone = [key for key in self._kept if domain is None or is_of(origin_of(key[0])[1], domain)]
        before = self._size
        for key in gone:
            self._remove(key)
        return Cleared(len(gone), before - self._size)

    def _remove(self, key: _Key) -> None:
        entry, body = self._kept.pop(key, (None, b""))
        if entry is not None:
            self._size -= size_of(entry, body)
            self._keys[entry.url].discard(key)


def _key(entry: Entry) -> _Key:
    return (entry.url, *entry.place)
