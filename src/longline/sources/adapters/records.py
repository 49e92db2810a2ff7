"""Sources that receive finished records: each record becomes an item that carries its data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from longline.core.errors import UnexpectedShape
from longline.core.json import plain, to_json
from longline.core.model import Item
from longline.sources.base import Source, layer
from longline.sources.visit import Visit

KEY_FIELDS = ("id", "key", "url")
"""Fields that identify a record unless the source names another; the first with a value."""
_RECORD = "record"
_PROBLEM = "problem"
_MAX_SHOWN = 200  # characters of an invalid record that its item keeps
_KEY_LENGTH = 16  # characters of a hash: enough to tell records apart, short enough to read

KeyFunction = Callable[[Mapping[str, Any]], Any]
"""Returns what identifies a record, or None."""


class RecordSource(Source):
    """A source whose items carry their records."""

    can_repeat_discovery = False  # discovery may send requests outside the chain

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return the record that the item carries.

        Raises:
            UnexpectedShape: discovery received something that is not a record.
        """
        data = visit.item.data
        if _PROBLEM in data:
            raise UnexpectedShape(visit.item.key, data[_PROBLEM])
        result: Mapping[str, Any] = data[_RECORD]
        return result

    def carries_values(self, item: Item) -> bool:
        return _RECORD in item.data or _PROBLEM in item.data


class RecordItems:
    """Makes items of one stream of records, each with its own key.

    Of two different records with the same key both are kept, the second one with a longer key and
    a note: a wrong key loses no records.

    Args:
        place: the URL of records that have none.
        key: the field that identifies a record, or a function; None for the default fields.
        visit: receives the notes.
    """

    def __init__(self, place: str, key: str | KeyFunction | None, visit: Visit) -> None:
        self._place = place
        self._key = key
        self._visit = visit
        self._known: dict[str, str] = {}

    def make(self, record: object) -> Item:
        """Return the item of a record; for an invalid record, an item with the problem."""
        if not isinstance(record, Mapping):
            kind = type(record).__name__
            return self.make_invalid(repr(record), f"a record is names and values, not {kind}")
        try:
            data = as_json(record)
            mark = fingerprint(data)
            key = self._key_of(data) or mark[:_KEY_LENGTH]
        except Exception as error:  # noqa: BLE001  # not JSON, no key, or the user's own function
            problem = f"not usable ({type(error).__name__}: {error})"
            return self.make_invalid(repr(record), problem)
        if self._known.setdefault(key, mark) != mark:
            self._visit.note(key, "two different records have this key; both are kept")
            key = f"{key} {mark[:_KEY_LENGTH]}"
        url = data.get("url")
        is_web = isinstance(url, str) and url.startswith(("http://", "https://"))
        return Item(key, str(url) if is_web else self._place, data={_RECORD: data})

    def make_invalid(self, text: str, problem: str) -> Item:
        """Return the item of an invalid record, which is going to be quarantined."""
        mark = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        return Item(f"unusable {mark}", self._place, data={_PROBLEM: f"{problem}: {shown}"})

    def _key_of(self, data: Mapping[str, Any]) -> str | None:
        if self._key is None:
            return first_key_field(data)
        value = data.get(self._key) if isinstance(self._key, str) else self._key(data)
        if value in (None, "", [], {}):
            raise LookupError("the key field is empty")
        return str(value)


def first_key_field(data: Mapping[str, Any]) -> str | None:
    """Return the value of the first default key field that has one."""
    values = (data.get(name) for name in KEY_FIELDS)
    return next((str(value) for value in values if value not in (None, "", [], {})), None)


def as_json(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a record as the JSON that is stored.

    Raises:
        TypeError: a field has no JSON form; the message names it.
    """
    data: dict[str, Any] = orjson.loads(to_json(dict(record), default=_plain_or_bytes))
    return data


def fingerprint(data: Mapping[str, Any]) -> str:
    """Return a short hash of a record that does not depend on the order of its fields."""
    text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _plain_or_bytes(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else plain(value)
