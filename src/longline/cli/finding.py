"""Finding one record by what a person typed."""

from __future__ import annotations

from typing import Any

from longline.errors import UnknownRecord
from longline.stores.selecting import RecordQuery
from longline.stores.store import Store


async def found_record(
    store: Store, key: str, source: str | None, *, as_of: float | None = None
) -> dict[str, Any]:
    """Return a record by its key, or by source/key as `list` shows it; a key may hold slashes.

    Raises:
        UnknownRecord: there is none, or was none by then.
    """
    name, _, rest = key.partition("/")
    tries = [(source, key)] if source or not rest else [(None, key), (name, rest)]
    for of, wanted in tries:
        query = RecordQuery(key=wanted, source=of, as_of=as_of, limit=1)
        if rows := await store.records.list(query):
            return rows[0]
    raise UnknownRecord(key)
