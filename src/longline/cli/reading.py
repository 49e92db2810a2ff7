"""Opening a home to look at it: for commands that start nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from longline.cli.options import settings_of
from longline.config.settings import Settings, is_read_only, prepare_home
from longline.errors import HomeUnwritable
from longline.stores.store import Store, open_store

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
