"""A Scrapy spider as it would stand in any project; longline runs it unchanged.

pip install longline[scrapy]
longline run examples/quotes_spider.py:QuotesSpider
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response


class QuotesSpider(scrapy.Spider):
    """Quotes, page by page."""

    name = "quotes-spider"
    base_url = "http://127.0.0.1:8765"

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Begin with the first page."""
        yield scrapy.Request(f"{self.base_url}/quotes/")

    def parse(self, response: Response) -> Iterator[Any]:
        """Read the quotes of a page, and go on to the next."""
        for quote in response.css(".quote"):
            yield {
                "text": quote.css(".text::text").get(),
                "author": quote.css(".author::text").get(),
            }
        yield from response.follow_all(css=".next a")
