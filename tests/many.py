"""A source whose items lie on several sites, for tests of what one site does to another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from longline.core.model import Cursor, Item
from longline.sources.base import Options, Source, layer
from longline.sources.visit import Visit


class ManyOptions(Options):
    sites: list[str]
    count: int = 10
    """Items of each site."""


class Many(Source):
    """Pages /item/0, /item/1, … of each site, one site after the other."""

    name = "many"
    Options = ManyOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        del visit
        for place, site in enumerate(self.options.sites):
            for number in range(self.options.count):
                yield Item(f"{place}-{number}", f"{site}/item/{number}")

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        page = await visit.fetch(visit.item.url)
        return {"text": page.text}
