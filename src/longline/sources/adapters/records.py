"""Sources that are handed finished records: each becomes an item that carries its data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from longline.core.errors import UnexpectedShape
from longline.core.json_values import plain, to_json
from longline.core.model import Item
from longline.sources.base import Source, layer
from longline.sources.visit import Visit

GUESSED = ("id", "key", "url")
"""Fields that name a record when nobody says which one does; the first that is filled."""
_RECORD = "record"
_PROBLEM = "problem"
_SHOWN = 200  # characters of something unusable that its item keeps
_SIGNS = 16  # of a fingerprint: enough to tell records apart, short enough to read

Key = Callable[[Mapping[str, Any]], Any]
"""Told a record; returns what makes it the same one next time, or None."""


class RecordSource(Source):
    """A source whose items bring their records along."""

    can_repeat_discovery = False  # others' code, which may ask by itself

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return the record that came with the item.

        Raises:
            UnexpectedShape: what came was none.
        """
        data = visit.item.data
        if _PROBLEM in data:
            raise UnexpectedShape(visit.item.key, data[_PROBLEM])
        result: Mapping[str, Any] = data[_RECORD]
        return result

    def carries_values(self, item: Item) -> bool:
        return _RECORD in item.data or _PROBLEM in item.data


class Keying:
    """Makes items of one stream of records, no two with one key.

    Two different records that claim the same key are both kept, the later one under a longer key
    and with a note: a key that was guessed wrongly loses nothing.
    """

    def __init__(self, place: str, key: str | Key | None, visit: Visit) -> None:
        """Make one; `place` is the address of records that have none of their own."""
        self._place = place
        self._key = key
        self._visit = visit
        self._known: dict[str, str] = {}

    def item(self, record: object) -> Item:
        """Return the item of a record; of something that is none, an item that tells so."""
        if not isinstance(record, Mapping):
            return self.unusable(repr(record), f"a record is names and values, not {_kind(record)}")
        try:
            data = as_plain(record)
            mark = fingerprint(data)
            key = self._named(data) or mark[:_SIGNS]
        except Exception as error:  # noqa: BLE001  # no JSON, no key, or the user's own function
            return self.unusable(repr(record), f"not usable ({type(error).__name__}: {error})")
        if self._known.setdefault(key, mark) != mark:
            self._visit.note(key, "two different records have this key; both are kept")
            key = f"{key} {mark[:_SIGNS]}"
        return Item(key, self._address(data), data={_RECORD: data})

    def unusable(self, text: str, problem: str) -> Item:
        """Return the item of something that is no record; it is going to be quarantined."""
        mark = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return Item(f"unusable {mark}", self._place, data={_PROBLEM: f"{problem}: {shown}"})

    def _named(self, data: Mapping[str, Any]) -> str | None:
        if self._key is None:
            named = (
                str(data[name]) for name in GUESSED if data.get(name) not in (None, "", [], {})
            )
            return next(named, None)
        value = data.get(self._key) if isinstance(self._key, str) else self._key(data)
        if value in (None, "", [], {}):
            raise LookupError("the field that was named as the key is empty")
        return str(value)

    def _address(self, data: Mapping[str, Any]) -> str:
        url = data.get("url")
        is_one = isinstance(url, str) and url.startswith(("http://", "https://"))
        return str(url) if is_one else self._place


def as_plain(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a record as the JSON that it is kept as.

    Raises:
        TypeError: a field of it is no data; it is named.
    """
    data: dict[str, Any] = orjson.loads(to_json(dict(record), default=_plain))
    return data


def fingerprint(data: Mapping[str, Any]) -> str:
    """Return a short hash of a record, whatever the order of its fields."""
    text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else plain(value)


def _kind(value: object) -> str:
    return type(value).__name__
