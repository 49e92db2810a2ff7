"""A CrawlSpider of Scrapy runs as it is: rules, depth, domains, forms, timeouts and priorities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scrapy
from aiohttp import web
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from longline.core.errors import NothingToStore
from longline.core.model import JobState
from longline.orchestrator import Orchestrator
from longline.sources.base import Visit
from longline.sources.scrapy import scrapy_source
from longline.storage.query import RecordQuery
from tests.scripted_site import ScriptedSite
from tests.sources.scripted import ScriptedWeb, discovered
from tests.sources.test_crawl import links
from tests.virtual import VirtualClock


class Shop(CrawlSpider):
    name = "ruled-shop"
    site: str
    allowed_domains = ("127.0.0.1",)
    custom_settings = {"DEPTH_LIMIT": 3, "DOWNLOAD_TIMEOUT": 7}  # noqa: RUF012  # as Scrapy has it
    rules = (
        Rule(LinkExtractor(allow=r"/p/\d+", deny="print"), callback="parse_item", follow=True),
        Rule(LinkExtractor(restrict_css="nav")),
    )

    def start_requests(self) -> Iterator[scrapy.Request]:
        yield scrapy.FormRequest(f"{self.site}/search", formdata={"q": "rod"}, priority=3)

    def parse_item(self, response: Response) -> Any:
        yield {"url": response.url.rpartition("/")[2], "title": response.css("h1::text").get()}


@pytest.fixture
def shop(site: ScriptedSite) -> list[str]:
    """A shop that is entered by a form; what was sent to it."""
    sent: list[str] = []

    async def search(request: web.Request) -> web.StreamResponse:
        sent.append(f"{request.method} {await request.text()}")
        nav = f"<nav>{links('/c/1', 'http://localhost:1/p/9')}</nav>"
        return web.Response(
            text=nav + links("/p/1", "/p/1/print", "/other"), content_type="text/html"
        )

    site.answers["/search"] = search
    for path, html in {
        "/c/1": links("/p/2"),
        "/p/1": "<h1>One</h1>" + links("/p/2", "/p/3"),
        "/p/2": "<h1>Two</h1>",
        "/p/3": "<h1>Three</h1>" + links("/p/4"),
        "/p/4": "<h1>Four</h1>" + links("/p/5"),
    }.items():
        site.says(path, f"<html>{html}</html>", headers={"content-type": "text/html"})
    return sent


async def test_a_crawl_spider_collects_by_its_rules_to_its_depth(
    site: ScriptedSite, shop: list[str], tmp_path: Path, clock: VirtualClock
) -> None:
    told = {"set": {"site": site.url}, "rate": "unlimited"}
    async with Orchestrator(home=tmp_path, clock=clock) as longline:
        report = await longline.execute(f"{__name__}:Shop", told)
        rows = await longline.store.records.list(RecordQuery(source="ruled-shop"))

    assert shop == ["POST q=rod"]
    assert sorted(row["data"]["url"] for row in rows) == ["1", "2", "3", "4"]
    assert {"/p/1/print", "/other", "/p/5"} & set(site.hits) == set()
    assert report.state is JobState.PARTIAL
    assert report.caveats.cuts == ("requests beyond DEPTH_LIMIT (3) were left out",)


class Timed(scrapy.Spider):
    name = "timed"
    custom_settings = {"DOWNLOAD_TIMEOUT": 7}  # noqa: RUF012  # as Scrapy has it

    def start_requests(self) -> Iterator[scrapy.Request]:
        yield scrapy.Request("https://shop.test/a", priority=5)
        yield scrapy.Request("https://shop.test/b", meta={"download_timeout": 2})

    def parse(self, _response: Response, **_values: Any) -> Any:
        return []


async def test_timeouts_and_priorities_reach_the_request(clock: VirtualClock) -> None:
    source = scrapy_source(Timed).with_options({})
    web = ScriptedWeb({"https://shop.test/a": "a", "https://shop.test/b": "b"})
    items, _ = await discovered(source, web, clock)

    for item in items:
        visit = Visit(web, clock, item=item)
        with pytest.raises(NothingToStore):
            await source.record(visit)  # type: ignore[attr-defined]  # its one layer

    assert [(one.timeout, one.priority) for one in web.requests] == [(7.0, 5), (2.0, 0)]
