"""The pages of `proof_proxies` with Scrapy and scrapy-rotating-proxies, as their pages advise.

Arguments: the URL of the site, the number of pages, requests per second, seconds of a timeout,
and the proxies, separated by commas.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess


class Pages(scrapy.Spider):
    """Yields the title of each page."""

    name = "pages"

    async def start(self) -> Any:
        """Yield a request for each page."""
        for number in range(int(sys.argv[2])):
            yield scrapy.Request(f"{sys.argv[1]}/p/{number}")

    def parse(self, response: Any) -> Iterator[dict[str, Any]]:
        """Yield the title."""
        yield {"title": response.css("title::text").get()}


process = CrawlerProcess(
    {
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
        "DOWNLOAD_DELAY": 1 / float(sys.argv[3]),
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "DOWNLOAD_TIMEOUT": float(sys.argv[4]),
        "ROTATING_PROXY_LIST": sys.argv[5].split(","),
        "DOWNLOADER_MIDDLEWARES": {
            "rotating_proxies.middlewares.RotatingProxyMiddleware": 610,
            "rotating_proxies.middlewares.BanDetectionMiddleware": 620,
        },
        "LOG_LEVEL": "ERROR",
    }
)
process.crawl(Pages)
process.start()
