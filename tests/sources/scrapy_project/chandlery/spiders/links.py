"""Links over links: duplicates, redirects, dead ends, and some that lead away."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response, TextResponse
from scrapy.spidermiddlewares.httperror import HttpError


class LinksSpider(scrapy.Spider):
    """Shelves, and what lies on them."""

    name = "links"
    allowed_domains = ["127.0.0.1"]  # noqa: RUF012  # as Scrapy has it
    custom_settings = {"DEPTH_LIMIT": 3}  # noqa: RUF012  # the same
    handle_httpstatus_list = [410]  # noqa: RUF012  # the same

    def __init__(self, site: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.site = site

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{self.site}/shelves", cookies={"lang": "en"})
        yield {"kind": "from the start"}

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        for link in response.css("a.shelf"):
            shelf = {"shelf": link.css("::text").get(), "tags": ("oak", b"old")}
            yield response.follow(
                link, self.parse_shelf, cb_kwargs={"shelf": shelf}, errback=self.lost, priority=5
            )

    async def parse_shelf(self, response: Response, shelf: dict[str, Any]) -> AsyncIterator[Any]:
        assert isinstance(response, TextResponse)
        yield {"kind": "shelf", "name": shelf["shelf"], "tag": shelf["tags"][1].decode()}
        for link in response.css("a.thing"):
            yield response.follow(link, self.parse_thing, meta={"via": "a shelf"})

    def parse_thing(self, response: Response) -> Any:
        assert isinstance(response, TextResponse)
        found = {
            "kind": "thing",
            "url": response.url.rpartition("/")[2],
            "status": response.status,
            "via": response.meta["via"],
            "depth": response.meta["depth"],
            "title": response.css("h1::text").get(),
            "seen": response.css("p::text").get(),
        }
        again = [
            response.follow(link, self.parse_thing, meta={"via": "a thing"})
            for link in response.css("a")
        ]
        return [found, *again]

    def lost(self, failure: Any) -> Iterator[Any]:
        assert failure.check(HttpError)
        status = failure.value.response.status
        yield {"kind": "lost", "status": status, "url": failure.request.url.rpartition("/")[2]}
