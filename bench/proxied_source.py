"""Pages of the site of `proof_proxies`, through proxies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import Field

from longline import Cursor, Item, Options, Source, Visit, layer


class ProxiedOptions(Options):
    """Address and number of the pages."""

    base_url: str
    count: int = Field(2000, ge=1)


class Proxied(Source):
    """Pages with a title and a text; every proxy of the pool is used."""

    name = "proxied"
    Options = ProxiedOptions
    proxies = True
    expects = ("main.page",)

    async def discover(self, _visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the pages; their addresses are known."""
        for number in range(self.options.count):
            yield Item(str(number), f"{self.options.base_url}/p/{number}")

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        """Return the title and the text of a page."""
        page = await visit.fetch(visit.item.url)
        return {"title": page.first_text("title"), "text": page.first_text("main.page")}
