"""Generated sites: language, markup, class names and pagination depend on a number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from functools import lru_cache
from html import escape
from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Rows, Truth, document, missing, query_number
from longline.sandbox.sites.formats import written_date, written_money
from longline.sandbox.templates.titles import make_slug

_ROOTS = ("card", "entry", "tile", "row", "thing", "teaser", "record")
_TITLES = ("title", "name", "heading", "caption")
_PRICES = ("price", "amount", "cost", "tag")
_DATES = ("date", "added", "since", "stamp")
_CODES = ("code", "ref", "sku", "no")
_TEXTS = ("text", "body", "description", "about")
_JOINS = ("__", "-", "_")
_LANGUAGES = ("en", "de", "fr", "bg")


class Frame(StrEnum):
    """The markup of a list, and of the facts on a detail page."""

    LIST = "list"
    TABLE = "table"
    CARDS = "cards"
    ARTICLES = "articles"


class Pager(StrEnum):
    """The pagination of a list."""

    NEXT = "next"
    """A link with a word such as "next"."""
    REL = "rel"
    """A link with rel=next and only a symbol as text."""
    NUMBERS = "numbers"
    """Numbered pages in the query."""
    PATHS = "paths"
    """Numbered pages in the path."""
    OFFSET = "offset"
    """Links with an offset in the query."""


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one generated site."""

    language: str
    frame: Frame
    pager: Pager
    root: str
    title: str
    price: str
    added: str
    code: str
    text: str

    @classmethod
    def of(cls, number: int) -> Look:
        """Return the look of the site with this number."""
        picks = Picks(draw(number, "look", "site"))
        root = picks.of(_ROOTS)
        join = picks.of(_JOINS)
        parts = (_TITLES, _PRICES, _DATES, _CODES, _TEXTS)
        title, price, added, code, text = (f"{root}{join}{picks.of(names)}" for names in parts)
        return cls(
            language=picks.of(_LANGUAGES),
            frame=picks.of(tuple(Frame)),
            pager=picks.of(tuple(Pager)),
            root=root,
            title=title,
            price=price,
            added=added,
            code=code,
            text=text,
        )


# ---------------- Any number of list-and-detail sites, each made from its number; no two look

_A_PAGE = 9
_FEWEST, _SPREAD = 20, 20
_KEPT = 64
_FIRST_DAY = date(2024, 1, 1)


class Generated(PracticeSite):
    """`/generated/NUMBER/` is a list; each of its entries has a page with more."""

    name: ClassVar[str] = "generated"
    path: ClassVar[str] = "/generated/1/"
    about: ClassVar[str] = "a list-and-detail site for every number: markup, pages, language vary"

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(r"/generated/{site:\d+}/", self._list_entries),
            web.get(r"/generated/{site:\d+}/page/{page:\d+}/", self._list_entries),
            web.get(r"/generated/{site:\d+}/{id:\d+}-{slug}", self._detail),
        ]

    def truth(self, site: int = 1) -> Truth:
        """Return the records of the site with this number."""
        return {"entries": list(_entries(site))}

    def look(self, site: int) -> Look:
        """Return the look of the site with this number."""
        return Look.of(site)

    async def _list_entries(self, request: web.Request) -> web.Response:
        site = int(request.match_info["site"])
        look, rows = Look.of(site), _entries(site)
        start = _start(request, look)
        shown = rows[start : start + _A_PAGE]
        if not shown:
            return missing()
        labels = words.LABELS[look.language]
        inside = _listing(look, list(shown)) + _pager(look, site, start, len(rows))
        return document(labels["list"], f"<h1>{labels['list']}</h1>{inside}", lang=look.language)

    async def _detail(self, request: web.Request) -> web.Response:
        site, place = int(request.match_info["site"]), int(request.match_info["id"]) - 1
        rows = _entries(site)
        if not 0 <= place < len(rows):
            return missing()
        look = Look.of(site)
        return document(rows[place]["title"], _facts(look, site, rows[place]), lang=look.language)


@lru_cache(maxsize=_KEPT)
def _entries(site: int) -> tuple[dict[str, Any], ...]:
    count = _FEWEST + Picks(draw(site, "count", "entries")).below(_SPREAD)
    return tuple(_entry(site, number) for number in range(1, count + 1))


def _entry(site: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(site, "entry", number))
    title = f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)} {number}"
    cents = 500 + picks.below(300_000)
    return {
        "path": f"/generated/{site}/{number}-{make_slug(title)}",
        "title": title,
        "price": cents / 100,
        "cents": cents,
        "added": (_FIRST_DAY + timedelta(days=picks.below(900))).isoformat(),
        "code": f"{site}-{1000 + number}",
        "text": picks.of(words.REMARKS),
    }


def _start(request: web.Request, look: Look) -> int:
    if look.pager is Pager.OFFSET:
        return query_number(request, "start", 0)
    page = int(request.match_info.get("page") or query_number(request, "page", 1))
    return (page - 1) * _A_PAGE


def _listing(look: Look, rows: Rows) -> str:
    around, each, cell = {
        Frame.LIST: ("ul", "li", "span"),
        Frame.TABLE: ("table", "tr", "td"),
        Frame.CARDS: ("div", "div", "div"),
        Frame.ARTICLES: ("section", "article", "p"),
    }[look.frame]
    inside = "".join(
        f'<{each} class="{look.root}"><{cell} class="{look.title}">'
        f'<a href="{row["path"]}">{escape(row["title"])}</a></{cell}>'
        f'<{cell} class="{look.price}">{written_money(row["cents"], look.language)}</{cell}>'
        f"</{each}>\n"
        for row in rows
    )
    return f'<{around} class="{look.root}s">\n{inside}</{around}>'


def _pager(look: Look, site: int, start: int, total: int) -> str:
    labels = words.LABELS[look.language]
    has_more = start + _A_PAGE < total
    if look.pager in {Pager.NEXT, Pager.REL}:
        sign = "»" if look.pager is Pager.REL else labels["next"]
        mark = ' rel="next"' if look.pager is Pager.REL else ' class="next"'
        address = f"/generated/{site}/?page={start // _A_PAGE + 2}"
        return f'<nav><a{mark} href="{address}">{sign}</a></nav>' if has_more else "<nav></nav>"
    pages = range(-(-total // _A_PAGE))
    links = (
        f'<a class="page" href="{_address(look, site, page)}">{page + 1}</a> ' for page in pages
    )
    return f'<nav class="pages">{labels["page"]}: {"".join(links)}</nav>'


def _address(look: Look, site: int, page: int) -> str:
    if look.pager is Pager.OFFSET:
        return f"/generated/{site}/?start={page * _A_PAGE}"
    if look.pager is Pager.PATHS:
        return f"/generated/{site}/page/{page + 1}/"
    return f"/generated/{site}/?page={page + 1}"


def _facts(look: Look, site: int, row: dict[str, Any]) -> str:
    labels = words.LABELS[look.language]
    added = written_date(date.fromisoformat(row["added"]), look.language)
    facts = (
        (look.price, labels["price"], written_money(row["cents"], look.language)),
        (look.added, labels["added"], added),
        (look.code, labels["code"], row["code"]),
        (look.text, labels["text"], row["text"]),
    )
    inside = "".join(_fact(look.frame, name, label, escape(text)) for name, label, text in facts)
    around = {Frame.LIST: "dl", Frame.TABLE: "table"}.get(look.frame, "div")
    return (
        f'<main><h1 class="{look.title}">{escape(row["title"])}</h1>'
        f'<{around} class="facts">{inside}</{around}></main>'
        f'<p><a href="/generated/{site}/">{labels["back"]}</a></p>'
    )


def _fact(frame: Frame, name: str, label: str, text: str) -> str:
    if frame is Frame.LIST:
        return f'<dt>{label}</dt><dd class="{name}">{text}</dd>'
    if frame is Frame.TABLE:
        return f'<tr><th>{label}</th><td class="{name}">{text}</td></tr>'
    return f'<p><b>{label}:</b> <span class="{name}">{text}</span></p>'
