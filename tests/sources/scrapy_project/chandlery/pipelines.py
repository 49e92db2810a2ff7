"""Item pipelines in every form that Scrapy allows."""

import asyncio
import os
from pathlib import Path
from typing import Any, Self

from itemadapter import ItemAdapter
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem, NotConfigured
from scrapy.pipelines.media import MediaPipeline

LOG = "CHANDLERY_LOG"


class Prices:
    """Reads prices, in the older form that is given the spider."""

    def process_item(self, item: Any, spider: Spider) -> Any:
        adapter = ItemAdapter(item)
        number, _, currency = adapter["price"].partition(" ")
        adapter["price"] = {"number": number, "currency": currency, "spider": spider.name}
        return item


class Classes:
    """Says of which class an item is, as a pipeline that looks at classes would."""

    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(0)
        adapter = ItemAdapter(item)
        adapter["price"]["class"] = type(item).__name__
        return item


class Cheap:
    """Drops what is cheap, as the settings say."""

    def __init__(self, least: float) -> None:
        self._least = least

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings.getfloat("LEAST_PRICE"))

    def process_item(self, item: Any) -> Any:
        adapter = ItemAdapter(item)
        if float(adapter["price"]["number"]) < self._least:
            raise DropItem(f"{adapter['name']} is cheap")
        return item


class Faulty:
    """Fails on one item."""

    def process_item(self, item: Any) -> Any:
        if ItemAdapter(item)["name"] == "good 2-3":
            message = "not this one"
            raise ValueError(message)
        return item


class Once:
    """Drops names that it has seen."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def process_item(self, item: Any) -> Any:
        name = ItemAdapter(item)["name"]
        if name in self._seen:
            raise DropItem(f"{name} again")
        self._seen.add(name)
        return item


class Logged:
    """Writes down when it is opened, called and closed."""

    def open_spider(self) -> None:
        _log("open")

    def process_item(self, item: Any) -> Any:
        _log(f"item {ItemAdapter(item)['name']}")
        return item

    async def close_spider(self) -> None:
        await asyncio.sleep(0)
        _log("close")


class Off:
    """Is not configured."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not crawler.settings.get("ADDRESS"):
            raise NotConfigured("no address is set")
        return cls()

    def process_item(self, item: Any) -> Any:
        raise AssertionError(item)


class Files(MediaPipeline):
    """Downloads media in a way of its own, which only Scrapy's engine can."""


class Stamps:
    """A middleware of whichever kind."""


def _log(line: str) -> None:
    if path := os.environ.get(LOG):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
