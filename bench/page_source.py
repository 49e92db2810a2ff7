"""The pages as a source of longline: seven fields, checked by a model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel, Field

from longline import Cursor, Item, Options, Source, Visit, layer
from pages import FIELDS, addresses


class PageOptions(Options):
    """Address and range of the pages."""

    base_url: str
    first: int = Field(1, ge=1)
    count: int = Field(2000, ge=1)


class Product(BaseModel):
    """What a page must hold."""

    title: str
    sku: str
    price: float = Field(gt=0)
    brand: str
    rating: float = Field(ge=0, le=5)
    stock: int = Field(ge=0)
    description: str


class Pages(Source):
    """The chandlery: every page holds one product."""

    name = "pages"
    Options = PageOptions
    Record = Product

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the pages; their addresses are known."""
        del visit
        wanted = self.options
        for key, url in addresses(wanted.base_url, wanted.count, first=wanted.first):
            yield Item(key, url)

    @layer()
    async def product(self, visit: Visit) -> dict[str, Any]:
        """Read the seven fields."""
        page = await visit.fetch(visit.item.url)
        return {
            name: page.first_attribute(field.css, field.attribute)
            if field.attribute
            else page.first_text(field.css)
            for name, field in FIELDS.items()
        }
