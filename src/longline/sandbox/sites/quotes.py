"""Quotes on pages with a next link, and a page for each author."""

from __future__ import annotations

from datetime import date, timedelta
from html import escape
from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Rows, Truth, document, missing
from longline.sandbox.sites.formats import written_date
from longline.sandbox.templates.titles import make_slug
from longline.sandbox.templates.words import FIRST_NAMES, LAST_NAMES

_QUOTES, _AUTHORS, _A_PAGE = 47, 11, 10
_FIRST_BIRTH = date(1890, 1, 1)
_YEARS_OF_DAYS = 30_000
_A_YEAR = 31_536_000  # seconds


class Quotes(PracticeSite):
    """Five pages of quotes; a quote names its author, tags and the author's page."""

    name: ClassVar[str] = "quotes"
    path: ClassVar[str] = "/quotes/"
    about: ClassVar[str] = "quotes on pages with a next link, authors as pages of their own"

    def __init__(self, seed: int) -> None:
        self._authors = [_author(seed, number) for number in range(_AUTHORS)]
        self._quotes = [_quote(seed, number, self._authors) for number in range(1, _QUOTES + 1)]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/quotes/", self._list_quotes),
            web.get(r"/quotes/page/{page:\d+}/", self._list_quotes),
            web.get("/quotes/author/{slug}/", self._author_page),
        ]

    def truth(self) -> Truth:
        return {"quotes": self._quotes, "authors": self._authors}

    async def _list_quotes(self, request: web.Request) -> web.Response:
        page = int(request.match_info.get("page", "1"))
        rows = self._quotes[(page - 1) * _A_PAGE : page * _A_PAGE]
        if not rows:
            return missing()
        has_more = page * _A_PAGE < len(self._quotes)
        onward = f'<li class="next"><a href="/quotes/page/{page + 1}/">Next</a></li>'
        inside = "".join(_block(row) for row in rows)
        pager = f'<ul class="pager">{onward if has_more else ""}</ul>'
        return document("Quotes", f"<h1>Quotes</h1>{inside}{pager}")

    async def _author_page(self, request: web.Request) -> web.Response:
        slug = request.match_info["slug"]
        found = [author for author in self._authors if author["slug"] == slug]
        if not found:
            return missing()
        answer = document(found[0]["name"], _about(found[0]))
        answer.headers["cache-control"] = f"max-age={_A_YEAR}"  # authors hardly change
        return answer


def _author(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "quotes author", number))
    # The last names differ, so that no two authors share a page.
    name = f"{picks.of(FIRST_NAMES)} {LAST_NAMES[number]}"
    born = _FIRST_BIRTH + timedelta(days=picks.below(_YEARS_OF_DAYS))
    return {
        "slug": make_slug(name),
        "name": name,
        "born": born.isoformat(),
        "place": picks.of(words.PLACES),
        "about": picks.of(words.REMARKS),
    }


def _quote(seed: int, number: int, authors: Rows) -> dict[str, Any]:
    picks = Picks(draw(seed, "quote", number))
    parts = (picks.of(words.BEGINNINGS), picks.of(words.MIDDLES), picks.of(words.ENDINGS))
    first = picks.below(len(words.TAGS))
    author = picks.of(authors)
    return {
        "id": number,
        "text": f"{' '.join(parts)}.",
        "author": author["name"],
        "author_path": f"/quotes/author/{author['slug']}/",
        "tags": list(words.TAGS[first : first + picks.below(4)]),
    }


def _block(quote: dict[str, Any]) -> str:
    tags = "".join(f'<a class="tag" href="/quotes/">{tag}</a>' for tag in quote["tags"])
    return (
        f'<div class="quote" id="quote-{quote["id"]}">'
        f'<span class="text">\N{LEFT DOUBLE QUOTATION MARK}{escape(quote["text"])}'
        "\N{RIGHT DOUBLE QUOTATION MARK}</span>"
        f'<span>by <small class="author">{escape(quote["author"])}</small> '
        f'<a class="about" href="{quote["author_path"]}">(about)</a></span>'
        f'<div class="tags">{tags}</div></div>\n'
    )


def _about(author: dict[str, Any]) -> str:
    born = written_date(date.fromisoformat(author["born"]), "en")
    return (
        f'<div class="author-details"><h1 class="author-title">{escape(author["name"])}</h1>'
        f'<p>Born: <span class="author-born-date">{born}</span> '
        f'<span class="author-born-location">in {escape(author["place"])}</span></p>'
        f'<div class="author-description">{escape(author["about"])}</div></div>'
    )
