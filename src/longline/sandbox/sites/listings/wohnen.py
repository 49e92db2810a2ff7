"""A site for property in German: a list that loads more, tables, commas before decimals."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from html import escape
from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.sites.base import document, query_number
from longline.sandbox.sites.listings import words
from longline.sandbox.sites.listings.ads import WOHNEN, Ad
from longline.sandbox.sites.listings.board import AdSite
from longline.sandbox.templates.routes import reply

_A_PAGE = 16


class Wohnen(AdSite):
    """Places as they are written locally, floors as EG and 3. OG."""

    name: ClassVar[str] = WOHNEN
    path: ClassVar[str] = "/wohnen/"
    about: ClassVar[str] = "property in German: load more, EG and 3. OG, 64,5 m²"

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/wohnen/", self._first),
            web.get("/wohnen/mehr", self._more_ads),
            web.get(r"/wohnen/{slug}-ID{key:\w+}.html", self.serve_ad),
        ]

    async def _first(self, request: web.Request) -> web.Response:
        cards = "".join(_card(ad, request.host) for ad in self._board.on(WOHNEN)[:_A_PAGE])
        button = '<button data-href="/wohnen/mehr?seite=2">Mehr laden</button>'
        inside = f'<h1>Wohnungen</h1><div id="treffer">{cards}</div>{button}'
        return document("Wohnungen", inside, lang="de")

    async def _more_ads(self, request: web.Request) -> web.Response:
        page = query_number(request, "seite", 2)
        ads = self._board.on(WOHNEN)
        shown = ads[(page - 1) * _A_PAGE : page * _A_PAGE]
        html = "".join(_card(ad, request.host) for ad in shown)
        return reply({"html": html, "mehr": page * _A_PAGE < len(ads)})

    def show(self, ad: Ad, _host: str, /) -> web.Response:
        return document(ad.values["title"], _page_in_german(ad.values), lang="de")


def _card(ad: Ad, host: str) -> str:
    address = f"http://{host}{ad.path}"
    return (
        f'<div class="treffer"><a class="titel" href="{ad.path}">{escape(ad.values["title"])}</a>'
        f"<span>{_price_in_german(ad.values)}</span>"
        f'<a class="teilen" href="whatsapp://send?text={address}">Teilen</a></div>\n'
    )


def _page_in_german(values: Mapping[str, Any]) -> str:
    kind, year = values["building_type"], values["year"]
    facts = {
        "Zimmer": values["rooms"],
        "Wohnfläche": values["area_m2"] and f"{values['area_m2']:.1f} m²".replace(".", ","),
        "Etage": _floor_in_german(values),
        "Bauweise": kind and words.BUILDINGS["de"][kind],
        "Baujahr": year and (f"{year} (Erstbezug)" if kind == "new" else year),
        "Kaufpreis": _price_in_german(values),
        "Online seit": values["date"] and f"{date.fromisoformat(values['date']):%d.%m.%Y}",
    }
    rows = "".join(
        f"<tr><th>{name}</th><td>{text}</td></tr>\n"
        for name, text in facts.items()
        if text is not None
    )
    return (
        f"<h1>{escape(values['title'])}</h1>{_places(values)}<table>{rows}</table>"
        f"{_text('expose', values['description'])}{_text('anbieter', values['agency'])}"
    )


def _places(values: Mapping[str, Any]) -> str:
    names = {"stadtteil": values["neighbourhood"], "ort": values["city"]}
    return "".join(
        f'<span class="{name}" lang="bg">{text}</span> ' for name, text in names.items() if text
    )


def _text(name: str, text: str | None) -> str:
    return f'<div class="{name}"><p>{escape(text)}</p></div>' if text else ""


def _price_in_german(values: Mapping[str, Any]) -> str:
    if values["price"] is None:
        return "auf Anfrage"
    return f"{values['price']:,.0f} €".replace(",", ".")


def _floor_in_german(values: Mapping[str, Any]) -> str | None:
    floor, floors = values["floor"], values["floors"]
    if floor is None:
        return None if floors is None else f"{floors} Etagen"
    named = f"{floor}. OG" if floor else "EG"
    return named if floors is None else f"{named} von {floors}"
