"""The interface of the small practice sites: routes, start URL and expected records."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar, Protocol

from aiohttp import web

Rows = list[dict[str, Any]]
Truth = dict[str, Rows]
"""The expected records of a site, by kind."""


class PracticeSite(Protocol):
    """A small site whose content depends only on the seed."""

    name: ClassVar[str]
    path: ClassVar[str]
    """The path of the start page."""
    about: ClassVar[str]
    """One line about what the site is for."""

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses and who answers there."""

    def truth(self) -> Truth:
        """Return all records of the site as they should be collected."""


def document(title: str, inside: str, *, lang: str = "en", head: str = "") -> web.Response:
    """Return a whole HTML page."""
    text = (
        f'<!DOCTYPE html>\n<html lang="{lang}">\n<head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>{head}</head>\n<body>\n{inside}\n</body>\n</html>\n"
    )
    return web.Response(text=text, content_type="text/html", charset="utf-8")


def missing() -> web.Response:
    """Return the response to an unknown URL."""
    return web.Response(status=404, text="<h1>Not found</h1>", content_type="text/html")


def moved(address: str) -> web.Response:
    """Return a redirect that is followed with GET."""
    return web.Response(status=303, headers={"location": address})


def query_number(request: web.Request, name: str, default: int) -> int:
    """Return an integer from the query, or the default."""
    text = request.query.get(name, "")
    return int(text) if text.isdecimal() else default
