"""A site for property in English: ?page=2, square feet, pounds now and then, JSON-LD."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from html import escape
from typing import Any, ClassVar
from urllib.parse import quote

import orjson
from aiohttp import web

from longline.sandbox.sites.base import document, missing, query_number
from longline.sandbox.sites.listings import words
from longline.sandbox.sites.listings.ads import HOMES, SQUARE_FOOT, Ad
from longline.sandbox.sites.listings.board import AdSite

_A_PAGE = 24
_SIGNS = {"EUR": "€", "GBP": "£"}
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}


class Homes(AdSite):
    """Places in Latin letters with the local spelling behind, rooms only in JSON-LD."""

    name: ClassVar[str] = HOMES
    path: ClassVar[str] = "/homes/for-sale"
    about: ClassVar[str] = "property in English: ?page=2, square feet, JSON-LD, days first"

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/homes/for-sale", self._list_ads),
            web.get(r"/homes/property/{key:\d+}", self.serve_ad),
        ]

    async def _list_ads(self, request: web.Request) -> web.Response:
        page = query_number(request, "page", 1)
        ads = self._board.on(HOMES)
        shown = ads[(page - 1) * _A_PAGE : page * _A_PAGE]
        if not shown:
            return missing()
        last = -(-len(ads) // _A_PAGE)
        numbers = "".join(f'<a href="?page={n}">{n}</a> ' for n in range(1, last + 1))
        cards = "".join(_card(ad, request.host) for ad in shown)
        return document("For sale", f'<main>{cards}</main><nav class="pages">{numbers}</nav>')

    def show(self, ad: Ad, _host: str, /) -> web.Response:
        return document(ad.values["title"], _page_in_english(ad.values), head=_json_ld(ad))


def _card(ad: Ad, host: str) -> str:
    address = quote(f"http://{host}{ad.path}", safe=":/")
    return (
        f'<article class="card"><h2><a href="{ad.path}">{escape(ad.values["title"])}</a></h2>'
        f'<p class="price">{_price_in_english(ad.values)}</p>'
        f'<a href="mailto:?body={address}">Mail</a> <a href="http://share.example/?u={address}">Share</a></article>\n'
    )


def _page_in_english(values: Mapping[str, Any]) -> str:
    facts = {
        "area": values["area_m2"] and f"{values['area_m2'] / SQUARE_FOOT:,.0f} sq ft",
        "floor": _floor_in_english(values),
        "built": values["year"],
        "structure": values["building_type"] and words.BUILDINGS["en"][values["building_type"]],
    }
    items = "".join(
        f'<li data-name="{name}">{text}</li>' for name, text in facts.items() if text is not None
    )
    return (
        f'<h1>{escape(values["title"])}</h1><p class="where">{_places(values)}</p><p class="price">'
        f'{_price_in_english(values)}</p><ul class="facts">{items}</ul>{_footer(values)}'
    )


def _places(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f'<span class="{name}">{words.in_latin(values[name])} ({values[name]})</span>'
        for name in ("neighbourhood", "city")
        if values[name]
    )


def _price_in_english(values: Mapping[str, Any]) -> str:
    if values["price"] is None:
        return "Price on request"
    return f"{_SIGNS[values['currency']]}{values['price']:,.0f}"


def _floor_in_english(values: Mapping[str, Any]) -> str | None:
    floor, floors = values["floor"], values["floors"]
    if floor is None:
        return None if floors is None else f"{floors} storeys"
    if floors is None:
        return "Ground floor" if floor == 0 else f"{floor}{_ENDINGS.get(floor, 'th')} floor"
    return f"Ground floor of {floors}" if floor == 0 else f"{floor} of {floors}"


def _footer(values: Mapping[str, Any]) -> str:
    agency, day = values["agency"], values["date"]
    by = f'<p class="agent">Offered by <b>{escape(agency)}</b></p>' if agency else ""
    return by + (f'<p class="listed">Listed {date.fromisoformat(day):%d/%m/%Y}</p>' if day else "")


def _json_ld(ad: Ad) -> str:
    values = ad.values
    flat = {
        "@context": "https://schema.org",
        "@type": "Apartment",
        "name": values["title"],
        "description": values["description"],
        "numberOfRooms": values["rooms"],
    }
    pieces = (
        {"@context": "https://schema.org", "@type": "WebSite", "name": "Homes by the Sea"},
        {"@context": "https://schema.org", "@type": "BreadcrumbList", "itemListElement": []},
        {name: value for name, value in flat.items() if value is not None},
    )
    scripts = (orjson.dumps(piece).decode().replace("</", "<\\/") for piece in pieces)
    return "".join(f'<script type="application/ld+json">{text}</script>' for text in scripts)
