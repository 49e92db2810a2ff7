"""The routes of the catalogue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from longline.core.errors import BadOption
from longline.sandbox.templates import pages, responses
from longline.sandbox.templates.catalogue import Catalogue, Form
from longline.sandbox.templates.search import Query, Search
from longline.sandbox.templates.template import Template

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """The pages and the API of a catalogue; `site` returns its base URL."""

    def __init__(self, catalogue: Catalogue, *, site: Callable[[], str], disallow: bool) -> None:
        self._catalogue = catalogue
        self._search = Search(catalogue)
        self._site = site
        self._disallow = disallow
        self._sitemap: str | None = None

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses and who answers there."""
        return [
            web.get("/", self._home),
            web.get("/robots.txt", self._robots),
            web.get("/sitemap_index.xml", self._sitemap_index),
            web.get("/sitemap-workflows.xml", self._sitemap_workflows),
            web.get(r"/workflows/{id:\d+}{slug:(-[^/]*)?/?}", self._page),
            web.get(r"/{folder:images|avatars}/{id:\d+}.png", self._picture),
            web.get("/api/health", self._health),
            web.get("/api/templates/search", self._list),
            web.get("/api/templates/categories", self._categories),
            web.get(
                r"/api/templates/workflows/{id:\d+}",
                self._by_id(Form.DETAIL, responses.detail_answer),
            ),
            web.get(
                r"/api/workflows/templates/{id:\d+}", self._by_id(Form.FLAT, responses.flat_answer)
            ),
            web.get(r"/api/workflows/{id:\d+}", self._by_id(Form.STRAPI, responses.strapi_answer)),
        ]

    async def _home(self, _request: web.Request) -> web.Response:
        return web.Response(text=pages.home_page(self._catalogue), content_type="text/html")

    async def _robots(self, _request: web.Request) -> web.Response:
        return web.Response(text=pages.robots(self._site(), disallow=self._disallow))

    async def _sitemap_index(self, _request: web.Request) -> web.Response:
        return _xml(pages.sitemap_index(self._site()))

    async def _sitemap_workflows(self, _request: web.Request) -> web.Response:
        if self._sitemap is None:  # a large catalogue takes a second to list
            self._sitemap = pages.sitemap(self._catalogue, self._site())
        return _xml(self._sitemap)

    async def _page(self, request: web.Request) -> web.Response:
        number = int(request.match_info["id"])
        if not self._catalogue.has(number, Form.PAGE):
            return web.Response(status=404, text="<h1>404</h1>", content_type="text/html")
        template = self._catalogue.template(number)
        text = pages.template_page(template, self._catalogue, self._site())
        return web.Response(text=text, content_type="text/html")

    async def _picture(self, request: web.Request) -> web.Response:
        body = pages.picture(int(request.match_info["id"]))
        return web.Response(body=body, content_type="image/png")

    async def _health(self, _request: web.Request) -> web.Response:
        return reply({"status": "OK"})

    async def _categories(self, _request: web.Request) -> web.Response:
        return reply(responses.categories_answer())

    async def _list(self, request: web.Request) -> web.Response:
        try:
            query = Query.parse(request.query)
        except BadOption as error:
            return reply({"error": str(error)}, status=400)
        return reply(self._search.answer(query))

    def _by_id(self, form: Form, make: Callable[[Template], dict[str, Any]]) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            number = int(request.match_info["id"])
            if not self._catalogue.has(number, form):
                return reply({"error": "there is no such template"}, status=404)
            return reply(make(self._catalogue.template(number)))

        return answer


def reply(answer: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON answer."""
    return web.Response(
        body=responses.encode(answer),
        status=status,
        headers=headers,
        content_type="application/json",
        charset="utf-8",
    )


def _xml(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/xml", charset="utf-8")
