"""The pages of `proof_proxies` with Crawlee's ProxyConfiguration and session pool.

The arguments are those of `proxied_scrapy.py`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import timedelta

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.proxy_configuration import ProxyConfiguration


async def main() -> None:
    """Crawl the pages."""
    pages, rate, timeout = int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    crawler = ParselCrawler(
        proxy_configuration=ProxyConfiguration(proxy_urls=list(sys.argv[5].split(","))),
        concurrency_settings=ConcurrencySettings(
            max_concurrency=32, desired_concurrency=32, max_tasks_per_minute=rate * 60
        ),
        request_handler_timeout=timedelta(seconds=60),
        navigation_timeout=timedelta(seconds=timeout),
        respect_robots_txt_file=True,
        configure_logging=False,
    )
    logging.getLogger().setLevel(logging.CRITICAL)

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        await context.push_data({"title": context.selector.css("title::text").get()})

    await crawler.run([f"{sys.argv[1]}/p/{number}" for number in range(pages)])


asyncio.run(main())
