"""A list without a single item: a failure for every kind of manifest, unless it says otherwise."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from longline.errors import DiscoveryFailed
from longline.model import Cursor, Item

Found = AsyncGenerator[Item | Cursor, None]


async def not_empty(found: Found, source: str, advice: str) -> Found:
    """Yield what discovery finds.

    Args:
        found: the items and cursors.
        source: its name.
        advice: what to look at when nothing is found.

    Raises:
        DiscoveryFailed: there was no item.
    """
    is_empty = True
    async with aclosing(found) as stream:
        async for one in stream:
            is_empty = is_empty and isinstance(one, Cursor)
            yield one
    if is_empty:
        problem = f"no item was found: {advice}, or write may_be_empty: true"
        raise DiscoveryFailed(source, problem)
