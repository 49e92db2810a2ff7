"""A source for the JavaScript pages of the practice web: opens each item in the browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel, Field

from longline import Cursor, Item, Options, Source, Visit, layer
from longline.http.browser.manifest import BrowserSpec


class AppOptions(Options):
    """Address and number of the pages."""

    base_url: str
    count: int = Field(200, ge=1)


class Card(BaseModel):
    """What a page must show once its script has run."""

    name: str = Field(min_length=1)
    price: float = Field(gt=0)


class AppPages(Source):
    """Cards that JavaScript renders, one per page."""

    name = "app-pages"
    Options = AppOptions
    Record = Card
    transport = "browser"
    browser = BrowserSpec.model_validate({"wait": "body.done"})

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the pages; their addresses are known."""
        del visit
        for number in range(1, self.options.count + 1):
            yield Item(str(number), f"{self.options.base_url}/app/item/{number}/")

    @layer()
    async def card(self, visit: Visit) -> dict[str, Any]:
        """Read what the script has rendered."""
        page = await visit.fetch(visit.item.url, rendered=True)
        return {"name": page.first_text(".name"), "price": page.first_text(".price")}
