"""The source of the conformance tests; each test writes it into a file under a name of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel

from longline.core.model import Cursor, Item
from longline.sources.base import Options, Source, Visit, layer


class CollectedOptions(Options):
    site: str
    count: int = 20
    area: str = "item"
    """The first part of every path."""
    listing: bool = False
    """Discovery asks for /list before all else."""
    fails_at: int | None = None
    """Discovery asks for /trouble before this item."""
    branches: int = 0
    """So many of the items lead to another one."""


class Numbered(BaseModel):
    number: int


class Collected(Source):
    """Pages /item/0, /item/1, … of a site, each with its number."""

    name = "collected"
    Options = CollectedOptions
    Record = Numbered

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        if self.options.listing:
            await visit.fetch(f"{self.options.site}/list")
        start = int(visit.cursor["next"]) if visit.cursor else 0
        for number in range(start, self.options.count):
            if number == self.options.fails_at:
                await visit.fetch(f"{self.options.site}/trouble")
            yield self._item(number)
            yield Cursor({"next": number + 1})

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        number = int(visit.item.key.rpartition("/")[2])
        if number < self.options.branches:
            visit.add(self._item(number + self.options.count))
        page = await visit.fetch(visit.item.url)
        if page.text == "raise":
            raise ZeroDivisionError(page.text)
        return {"number": page.text}

    def _item(self, number: int) -> Item:
        key = f"{self.options.area}/{number}"
        return Item(key, f"{self.options.site}/{key}")
