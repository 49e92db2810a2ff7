"""What only members see, after a form is sent."""

from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.http import Response, TextResponse


class MembersSpider(scrapy.Spider):
    """Pages behind a login."""

    name = "members"

    def __init__(self, site: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [f"{site}/login"]

    def parse(self, response: Response, **_kwargs: Any) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        token = response.css("input[name=token]::attr(value)").get() or ""
        yield scrapy.FormRequest(
            response.urljoin("/login"),
            formdata={"user": "ann", "password": "öl", "token": token},
            callback=self.inside,
        )

    def inside(self, response: Response) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        yield from response.follow_all(css="a.page", callback=self.page)

    def page(self, response: Response) -> Iterator[Any]:
        assert isinstance(response, TextResponse)
        yield {"url": response.url.rpartition("/")[2], "secret": response.css("b::text").get()}
