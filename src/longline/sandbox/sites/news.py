"""News in German: a sitemap index, one sitemap plain and one gzipped, articles with JSON-LD."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import date, timedelta
from html import escape
from typing import Any, ClassVar

import orjson
from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Rows, Truth, document, missing
from longline.sandbox.sites.formats import written_date
from longline.sandbox.templates.titles import make_slug
from longline.sandbox.templates.words import FIRST_NAMES, LAST_NAMES

_YEARS, _A_YEAR = (2025, 2026), 14
_SPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


class News(PracticeSite):
    """Twenty-eight articles of two years, found through sitemaps."""

    name: ClassVar[str] = "news"
    path: ClassVar[str] = "/news/sitemap_index.xml"
    about: ClassVar[str] = "a sitemap index (one part gzipped), JSON-LD, dates in German"

    def __init__(self, seed: int, *, site: Callable[[], str]) -> None:
        self._site = site
        self._articles = [_article(seed, year, n) for year in _YEARS for n in range(_A_YEAR)]
        self._by_path = {row["path"]: row for row in self._articles}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/news/sitemap_index.xml", self._index),
            web.get(r"/news/sitemap-{year:\d+}.xml{ending:(\.gz)?}", self._sitemap),
            web.get(r"/news/about/", self._about),
            web.get(r"/news/{year:\d+}/{slug}/", self._article),
        ]

    def truth(self) -> Truth:
        return {"articles": self._articles}

    async def _index(self, _request: web.Request) -> web.Response:
        endings = dict(zip(_YEARS, ("", ".gz"), strict=True))
        rows = "".join(
            f"<sitemap><loc>{self._site()}/news/sitemap-{year}.xml{ending}</loc></sitemap>"
            for year, ending in endings.items()
        )
        return _xml(f'<sitemapindex xmlns="{_SPACE}">{rows}</sitemapindex>')

    async def _sitemap(self, request: web.Request) -> web.Response:
        year = int(request.match_info["year"])
        text = self._urls(year)
        if not request.match_info["ending"]:
            return _xml(text)
        # A file that happens to be packed, not an encoding of the transfer.
        packed = gzip.compress(text.encode(), mtime=0)
        return web.Response(body=packed, content_type="application/gzip")

    async def _about(self, _request: web.Request) -> web.Response:
        return document("Impressum", "<h1>Impressum</h1>", lang="de")

    async def _article(self, request: web.Request) -> web.Response:
        row = self._by_path.get(request.path)
        if row is None:
            return missing()
        return document(row["headline"], _body(row), lang="de", head=_json_ld(row))

    def _urls(self, year: int) -> str:
        rows = [row for row in self._articles if row["published"].startswith(str(year))]
        urls = "".join(
            f"<url><loc>{self._site()}{row['path']}</loc><lastmod>{row['published']}</lastmod></url>"
            for row in rows
        )
        imprint = f"<url><loc>{self._site()}/news/about/</loc></url>"
        return f'<urlset xmlns="{_SPACE}">{imprint}{urls}</urlset>'


def _xml(text: str) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'
    return web.Response(text=text, content_type="application/xml", charset="utf-8")


def _article(seed: int, year: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, f"news {year}", number))
    start = picks.below(len(words.PLACES))
    headline = picks.of(words.HEADLINES).format(
        a=words.PLACES[start], b=words.PLACES[(start + 1) % len(words.PLACES)]
    )
    day = date(year, 1, 5) + timedelta(days=picks.below(330))
    return {
        "path": f"/news/{year}/{number + 1}-{make_slug(headline)}/",
        "headline": headline,
        "published": day.isoformat(),
        "author": f"{picks.of(FIRST_NAMES)} {picks.of(LAST_NAMES)}",
        "section": picks.of(("Hafen", "Kultur", "Wirtschaft")),
        "paragraphs": [picks.of(words.PARAGRAPHS) for _ in range(1 + picks.below(3))],
    }


def _json_ld(row: dict[str, Any]) -> str:
    pieces: Rows = [
        {"@context": "https://schema.org", "@type": "WebSite", "name": "Hafenblatt"},
        {
            "@context": "https://schema.org",
            "@type": "NewsArticle",
            "headline": row["headline"],
            "datePublished": row["published"],
            "articleSection": row["section"],
            "author": [{"@type": "Person", "name": row["author"]}],
        },
    ]
    scripts = (orjson.dumps(piece).decode().replace("</", "<\\/") for piece in pieces)
    return "".join(f'<script type="application/ld+json">{one}</script>' for one in scripts)


def _body(row: dict[str, Any]) -> str:
    day = written_date(date.fromisoformat(row["published"]), "de")
    text = "".join(f"<p>{escape(one)}</p>" for one in row["paragraphs"])
    return (
        f"<article><h1>{escape(row['headline'])}</h1>"
        f'<p class="date">{day}</p><p class="byline">Von {escape(row["author"])}</p>'
        f'<div class="text">{text}</div></article>'
    )
