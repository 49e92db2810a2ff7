"""A site for property in Bulgarian: windows-1251, tables, pages /p-2, links without a scheme."""
# ruff: noqa: RUF001  # much of it is Bulgarian

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from html import escape
from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.seeded import draw
from longline.sandbox.sites.formats import written_date
from longline.sandbox.sites.listings import words
from longline.sandbox.sites.listings.ads import IMOTI, LEVS, Ad
from longline.sandbox.sites.listings.board import AdSite

_A_PAGE, _SIMILAR = 20, 3
_CHARSET = "windows-1251"
_ENDINGS = {1: "ви", 2: "ри", 7: "ми", 8: "ми"}


class Imoti(AdSite):
    """Prices in euros and levs, floors in words, and an ad that is pinned to every list."""

    name: ClassVar[str] = IMOTI
    path: ClassVar[str] = "/imoti/prodazhbi/"
    about: ClassVar[str] = "property in Bulgarian: windows-1251, /p-2, two currencies, share links"

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(r"/imoti/prodazhbi/{page:(p-\d+)?}", self._list_ads),
            web.get(r"/imoti/obiava-{key:[0-9a-z]+}-{slug}", self.serve_ad),
            web.get("/imoti/spodeli", self._share),
        ]

    async def _list_ads(self, request: web.Request) -> web.Response:
        number = int(request.match_info["page"].removeprefix("p-") or 1)
        ads = self._board.on(IMOTI)
        shown = ads[(number - 1) * _A_PAGE : number * _A_PAGE]
        if not shown:
            return _with_header("<p>Няма намерени обяви.</p>")
        # An agency pays for the first place on every page.
        pinned = ads[:1] if number > 1 else []
        rows = "".join(_row(ad, request.host) for ad in [*pinned, *shown])
        following = f'<a class="pageNumbers" href="/imoti/prodazhbi/p-{number + 1}">Напред</a>'
        return _with_header(f'<table class="list">{rows}</table>{following}')

    def show(self, ad: Ad, host: str, /) -> web.Response:
        similar = "".join(_row(one, host) for one in self._board.on(IMOTI)[:_SIMILAR])
        return _with_meta(f'{_page_in_bulgarian(ad)}<table class="similar">{similar}</table>')

    async def _share(self, request: web.Request) -> web.Response:
        return _with_header(f"<h1>Сподели</h1><p>{escape(request.query_string)}</p>")


def _row(ad: Ad, host: str) -> str:
    title, path = escape(ad.values["title"]), ad.path
    return (
        f'<tr><td><a class="photo" href="//{host}{path}"><img alt="" src="/imoti/no.gif"></a></td>'
        f'<td><a class="lnk" href="//{host}{path}">{title}</a>'
        f'<div class="price">{_price_in_bulgarian(ad.values)}</div>'
        f'<a href="viber://forward?text=http://{host}{path}">Viber</a> '
        f'<a href="/imoti/spodeli?adres={path}">Сподели</a></td></tr>\n'
    )


def _page_in_bulgarian(ad: Ad) -> str:
    values = ad.values
    facts = {
        "Площ": values["area_m2"] and f"{values['area_m2']:.0f} кв.м",
        "Етаж": _floor_in_bulgarian(ad),
        "Етажност": _floors(values),
        "Строителство": _building(values),
    }
    rows = "".join(
        f"<div>{name}: <strong>{text}</strong></div>" for name, text in facts.items() if text
    )
    return (
        f'<div class="advHeader"><h1>{escape(values["title"])}</h1>{_location(values)}'
        f'<div id="cena">{_price_in_bulgarian(values)}</div></div>'
        f'<div class="adParams">{rows}</div>{_description(values)}{_agency(values)}{_date(values)}'
    )


def _location(values: Mapping[str, Any]) -> str:
    city = values["city"] and f"гр. {values['city']}"
    parts = [part for part in (city, values["neighbourhood"]) if part]
    return f'<div class="location">{", ".join(parts)}</div>' if parts else ""


def _price_in_bulgarian(values: Mapping[str, Any]) -> str:
    if values["price"] is None:
        return "Цена при запитване"
    if values["currency"] == "BGN":
        return f"{_grouped(values['price'], 2)} лв."
    levs = _grouped(values["price"] * LEVS, 2)
    return f"{_grouped(values['price'], 0)} €<br>{levs} лв."


def _grouped(amount: float, decimals: int) -> str:
    return f"{amount:,.{decimals}f}".replace(",", " ")


def _floor_in_bulgarian(ad: Ad) -> str | None:
    floor, floors = ad.values["floor"], ad.values["floors"]
    if floor is None:
        return None
    is_short = draw(0, "floor", ad.key) % 2 == 0
    if floors is not None and is_short:
        return f"{floor}/{floors}"
    named = f"{floor}-{_ENDINGS.get(floor, 'ти')} ет." if floor else "партер"
    return named if floors is None else f"{named} от {floors}"


def _floors(values: Mapping[str, Any]) -> str | None:
    is_alone = values["floor"] is None and values["floors"] is not None
    return f"{values['floors']} етажа" if is_alone else None


def _building(values: Mapping[str, Any]) -> str | None:
    kind, year = values["building_type"], values["year"]
    parts = [kind and words.BUILDINGS["bg"][kind], year and f"{year} г."]
    return ", ".join(part for part in parts if part) or None


def _description(values: Mapping[str, Any]) -> str:
    text = values["description"]
    return f'<div id="description_div">{escape(text)}</div>' if text else ""


def _agency(values: Mapping[str, Any]) -> str:
    name = values["agency"]
    return f'<div class="AG"><b>{escape(name)}</b></div>' if name else ""


def _date(values: Mapping[str, Any]) -> str:
    if values["date"] is None:
        return ""
    day = written_date(date.fromisoformat(values["date"]), "bg")
    return f'<div class="info">Публикувана на {day}</div>'


def _with_header(inside: str) -> web.Response:
    """Return a page whose encoding is declared only in the header."""
    body = f"<html><head><title>Имоти</title></head><body>{inside}</body></html>"
    headers = {"content-type": f"text/html; charset={_CHARSET}"}
    return web.Response(body=body.encode(_CHARSET), headers=headers)


def _with_meta(inside: str) -> web.Response:
    """Return a page whose encoding is declared only in the page."""
    meta = f'<meta http-equiv="Content-Type" content="text/html; charset={_CHARSET}">'
    body = f"<html><head>{meta}<title>Имоти</title></head><body>{inside}</body></html>"
    return web.Response(body=body.encode(_CHARSET), headers={"content-type": "text/html"})
