"""A practice web without sockets: the same catalogue and rate limit in one callable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from longline.core.clock import Clock
from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.sandbox.limits import Limits
from longline.sandbox.templates import pages, responses
from longline.sandbox.templates.catalogue import Form
from longline.sandbox.templates.template import Template
from longline.sandbox.web import PracticeWeb, WebOptions

SITE = "http://practice.test"
_FORMS: tuple[tuple[str, Form, Callable[[Template], dict[str, Any]]], ...] = (
    (r"/api/templates/workflows/(\d+)", Form.DETAIL, responses.detail_answer),
    (r"/api/workflows/templates/(\d+)", Form.FLAT, responses.flat_answer),
    (r"/api/workflows/(\d+)", Form.STRAPI, responses.strapi_answer),
)


class MemoryWeb(Middleware):
    """Answers as the practice web does; 429 when its token bucket is empty."""

    def __init__(self, items: int, *, rate: float, burst: int, clock: Clock) -> None:
        self._catalogue = PracticeWeb(WebOptions(items=items)).catalogue
        self._limits = Limits(rate, burst)
        self._clock = clock
        self._fixed = {
            "/robots.txt": pages.robots(SITE, disallow=False),
            "/sitemap_index.xml": pages.sitemap_index(SITE),
            "/sitemap-workflows.xml": pages.sitemap(self._catalogue, SITE),
            "/api/health": '{"status": "OK"}',
        }
        self.requests = 0
        self.rate_limited = 0

    async def __call__(self, request: Request, usage: Usage) -> Page:
        usage.requests += 1
        self.requests += 1
        if request.sent is not None:
            request.sent.at = self._clock.now()
        if self._limits.take("", self._clock.now()) > 0:
            self.rate_limited += 1
            return Page(request.url, 429, {"retry-after": "1"}, b"")
        return self._answer(request.url)

    def _answer(self, url: str) -> Page:
        path = urlsplit(url).path
        if path in self._fixed:
            return Page(url, 200, {}, self._fixed[path].encode())
        for pattern, form, make in _FORMS:
            if found := re.fullmatch(pattern, path):
                return self._template(url, int(found[1]), form, make)
        return Page(url, 404, {}, b"")

    def _template(
        self, url: str, number: int, form: Form, make: Callable[[Template], dict[str, Any]]
    ) -> Page:
        if not self._catalogue.has(number, form):
            return Page(url, 404, {}, b"")
        return Page(url, 200, {}, responses.encode(make(self._catalogue.template(number))))
