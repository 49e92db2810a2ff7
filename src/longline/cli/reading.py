"""Opening a home to look at it: for commands that start nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from longline.cli.options import settings_of
from longline.config.settings import prepare_home
from longline.stores.store import Store, open_store

T = TypeVar("T")


def with_store(home: Path | None, use: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store of a home, use it, close it."""
    settings = settings_of(home)
    prepare_home(settings)

    async def look() -> T:
        with open_store(settings.database) as store:
            return await use(store)

    return asyncio.run(look())
