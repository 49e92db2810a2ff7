"""Opening a home to look at it: for commands that start nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from longline.cli.options import settings_of
from longline.config.errors import HomeUnwritable
from longline.config.settings import Settings, is_read_only, prepare_home
from longline.storage.errors import UnknownRecord
from longline.storage.records.selecting import RecordQuery
from longline.storage.store import Store, open_store

T = TypeVar("T")


def with_store(home: Path | None, use: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store of a home, use it, close it."""
    settings = settings_of(home)
    _prepare(settings)

    async def look() -> T:
        with open_store(settings.database) as store:
            return await use(store)

    return asyncio.run(look())


def _prepare(settings: Settings) -> None:
    """Make the home; one on a file system that may only be read can be looked at all the same."""
    try:
        prepare_home(settings)
    except HomeUnwritable:
        if not is_read_only(settings.home):
            raise


# ---------------- Finding one record by what a person typed


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
