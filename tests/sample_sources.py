"""Sources of a dozen lines, for tests of what runs sources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel

from longline.core.model import Cursor, Item
from longline.sources.base import Options, Source, Visit, layer


class PageOptions(Options):
    site: str
    count: int = 10
    fails_at: int | None = None
    """The item at which discovery requests `/trouble`."""


class PageRecord(BaseModel):
    text: str
    extra: str | None = None


class PageSource(Source):
    """Pages /item/0, /item/1, … of a site."""

    name = "pages"
    Options = PageOptions
    Record = PageRecord

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        start = int(visit.cursor["next"]) if visit.cursor else 0
        for number in range(start, self.options.count):
            if number == self.options.fails_at:
                await visit.fetch(f"{self.options.site}/trouble")
            yield Item(str(number), f"{self.options.site}/item/{number}")
            yield Cursor({"next": number + 1})

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        page = await visit.fetch(visit.item.url)
        if page.text == "raise":
            raise ZeroDivisionError(page.text)
        return {"text": page.json if page.text.startswith("[") else page.text}

    @layer(needs=("page",), optional=True)
    async def extra(self, visit: Visit) -> dict[str, Any]:
        if visit.results["page"]["text"] != "more":
            return {"extra": None}
        return {"extra": (await visit.fetch(f"{self.options.site}/extra")).text}


class BranchingSource(PageSource):
    """Pages that each add the item `count` places further on."""

    name = "branching"

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        number = int(visit.item.key)
        if number < self.options.count:
            further = number + self.options.count
            visit.add(Item(str(further), f"{self.options.site}/item/{further}"))
        return {"text": (await visit.fetch(visit.item.url)).text}


class SitesOptions(Options):
    sites: list[str]
    count: int = 10
    """Items of each site."""


class SitesSource(Source):
    """Pages /item/0, /item/1, … of each site, one site after the other."""

    name = "sites"
    Options = SitesOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        del visit
        for place, site in enumerate(self.options.sites):
            for number in range(self.options.count):
                yield Item(f"{place}-{number}", f"{site}/item/{number}")

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        return {"text": (await visit.fetch(visit.item.url)).text}
