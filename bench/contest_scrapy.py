"""The contestant Scrapy, with JOBDIR, so that it can resume; items go to JSON Lines."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import click
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from children import peak_memory
from contest import Score
from pages import FIELDS, addresses, digest


class PageSpider(scrapy.Spider):
    """Reads the seven fields with Scrapy's own selectors."""

    name = "pages"
    url: str
    count: int

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Yield the pages; their addresses are known."""
        for _, url in addresses(self.url, self.count):
            yield scrapy.Request(url)

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[dict[str, str | None]]:
        """Yield the product of one page."""
        yield {
            name: _stripped(response.css(f"{field.css}{_ending(field.attribute)}").get())
            for name, field in FIELDS.items()
        }


def _stripped(text: str | None) -> str | None:
    return text.strip() if text else text


def _ending(attribute: str | None) -> str:
    return f"::attr({attribute})" if attribute else "::text"


@click.command()
@click.argument("url")
@click.argument("count", type=int)
@click.argument("concurrency", type=int)
@click.argument("folder", type=click.Path(path_type=Path))
def main(url: str, count: int, concurrency: int, folder: Path) -> None:
    """Collect COUNT pages below URL into a feed in FOLDER."""
    feed = folder / "pages.jsonl"
    process = CrawlerProcess(_settings(concurrency, folder, feed))
    process.crawl(PageSpider, url=url, count=count)
    started = time.perf_counter()
    process.start()
    seconds = time.perf_counter() - started
    peak = peak_memory()
    rows = [json.loads(line) for line in feed.read_text("utf-8").splitlines()]
    Score(len(rows), seconds, peak, digest(rows)).print_json()


def _settings(concurrency: int, folder: Path, feed: Path) -> dict[str, Any]:
    return {
        "JOBDIR": str(folder / "job"),
        "FEEDS": {str(feed): {"format": "jsonlines", "encoding": "utf8"}},
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "DOWNLOAD_DELAY": 0,
        "AUTOTHROTTLE_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
    }


if __name__ == "__main__":
    main()
