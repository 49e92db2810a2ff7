"""What the little practice sites have in common: who they are, where they answer, their truth."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar, Protocol

from aiohttp import web

Rows = list[dict[str, Any]]
Truth = dict[str, Rows]
"""What a site holds, by kind of record: what a perfect collector brings home."""


class PracticeSite(Protocol):
    """A small site with contents that depend on the seed alone."""

    name: ClassVar[str]
    path: ClassVar[str]
    """Where a reader or a collector begins."""
    about: ClassVar[str]
    """One line on what there is to practise."""

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses and who answers there."""

    def truth(self) -> Truth:
        """Return everything the site holds, as it should be collected."""


def document(title: str, inside: str, *, lang: str = "en", head: str = "") -> web.Response:
    """Return a whole HTML page."""
    text = (
        f'<!DOCTYPE html>\n<html lang="{lang}">\n<head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>{head}</head>\n<body>\n{inside}\n</body>\n</html>\n"
    )
    return web.Response(text=text, content_type="text/html", charset="utf-8")


def missing() -> web.Response:
    """Return what a site says to an address it does not know."""
    return web.Response(status=404, text="<h1>Not found</h1>", content_type="text/html")


def moved(address: str) -> web.Response:
    """Return a redirect that is followed with GET."""
    return web.Response(status=303, headers={"location": address})


def number(request: web.Request, name: str, default: int) -> int:
    """Return a whole number from the query; the default when there is none."""
    text = request.query.get(name, "")
    return int(text) if text.isdecimal() else default
