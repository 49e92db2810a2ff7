"""Several items on each page, of every kind that Scrapy knows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import attrs
import scrapy
from pydantic import BaseModel
from scrapy.http import Response, TextResponse


class Rope(scrapy.Item):
    name = scrapy.Field()
    price = scrapy.Field()


@dataclass
class Anchor:
    name: str
    price: str


@attrs.define
class Lamp:
    name: str
    price: str


class Compass(BaseModel):
    name: str
    price: str


KINDS: list[Any] = [dict, Rope, Anchor, Lamp, Compass]


class GoodsSpider(scrapy.Spider):
    """Goods, five on a page."""

    name = "goods"

    def __init__(self, site: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{site}/goods/1"]

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        for place, row in enumerate(response.css("li")):
            kind = KINDS[place % len(KINDS)]
            yield kind(name=row.css("b::text").get(), price=row.css("i::text").get())
        onward = response.css("a.next::attr(href)").get()
        if onward:
            yield response.follow(onward)
