"""The practice shop and its products."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar

import orjson
from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Rows, Truth, document, missing, query_number
from longline.sandbox.sites.formats import written_money
from longline.sandbox.templates.routes import reply
from longline.sandbox.templates.titles import make_slug

_PRODUCTS = 60
_DEAREST = 250_000  # cents
_FEWEST = 990


def make_products(seed: int) -> Rows:
    """Return all products; a few have no rating, no description or nothing in stock."""
    return [_product(seed, number) for number in range(1, _PRODUCTS + 1)]


def _product(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "product", number))
    # The lower of two draws: categories differ in size, and the first has several pages.
    shelf = min(picks.below(len(words.CATEGORIES)), picks.below(len(words.CATEGORIES)))
    slug, category = words.CATEGORIES[shelf]
    name = f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)} {number}"
    cents = _FEWEST + picks.below(_DEAREST)
    stock = max(0, picks.below(24) - 3)
    return {
        "id": number,
        "name": name,
        "path": f"/shop/product/{number}-{make_slug(name)}",
        "category": category,
        "category_slug": slug,
        "price": cents / 100,
        "cents": cents,
        "stock": stock,
        "in_stock": stock > 0,
        "rating": picks.below(6) or None,
        "description": picks.of((None, *words.REMARKS)),
        "variants": _variants(number, cents, picks),
    }


def _variants(number: int, cents: int, picks: Picks) -> Rows:
    colours = words.COLOURS[: picks.below(4)]
    return [
        {"sku": f"P{number}-{colour[:2].upper()}", "colour": colour, "price": (cents + n) / 100}
        for n, colour in enumerate(colours)
    ]


# ---------------- A shop: categories, numbered pages, an offset list, a load-more list, prices in

_A_PAGE, _A_STEP, _MOST = 8, 15, 20
_STARS = ("Zero", "One", "Two", "Three", "Four", "Five")
_STOCK = {
    "en": ("In stock ({0} available)", "Out of stock"),
    "de": ("Auf Lager ({0} verfügbar)", "Nicht vorrätig"),
}


class Shop(PracticeSite):
    """Sixty products in five categories, listed in three ways, in English and German."""

    name: ClassVar[str] = "shop"
    path: ClassVar[str] = "/shop/"
    about: ClassVar[str] = "a shop with categories, numbered pages, offsets, load-more, two locales"

    def __init__(self, seed: int) -> None:
        self._products = make_products(seed)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/shop/", self._home),
            web.get("/shop/category/{slug}/", self._category),
            web.get("/shop{locale:(/de)?}/all", self._by_offset),
            web.get("/shop/more", self._first_of_more),
            web.get("/shop/more.json", self._more),
            web.get(r"/shop{locale:(/de)?}/product/{id:\d+}{slug:(-[^/]*)?}", self._product),
        ]

    def truth(self) -> Truth:
        return {"products": self._products}

    async def _home(self, _request: web.Request) -> web.Response:
        links = "".join(
            f'<li><a href="/shop/category/{slug}/">{escape(name)}</a></li>'
            for slug, name in words.CATEGORIES
        )
        return document("Shop", f'<h1>Shop</h1><nav><ul class="categories">{links}</ul></nav>')

    async def _category(self, request: web.Request) -> web.Response:
        slug = request.match_info["slug"]
        rows = [row for row in self._products if row["category_slug"] == slug]
        page = query_number(request, "page", 1)
        shown = rows[(page - 1) * _A_PAGE : page * _A_PAGE]
        if not shown:
            return missing()
        pages = -(-len(rows) // _A_PAGE)
        numbers = "".join(
            f"<strong>{n}</strong>" if n == page else f'<a href="?page={n}">{n}</a>'
            for n in range(1, pages + 1)
        )
        title = escape(rows[0]["category"])
        inside = f'<h1>{title}</h1>{_tiles(shown)}<p class="pages">{numbers}</p>'
        return document(rows[0]["category"], inside)

    async def _by_offset(self, request: web.Request) -> web.Response:
        start = query_number(request, "offset", 0)
        count = min(_MOST, query_number(request, "limit", _MOST))
        rows = self._products[start : start + count]
        language = _language(request)
        title = "Alle Waren" if language == "de" else "All products"
        return document(title, f"<h1>{title}</h1>{_tiles(rows, language)}", lang=language)

    async def _first_of_more(self, _request: web.Request) -> web.Response:
        button = '<button class="load-more" data-url="/shop/more.json?page=2">Load more</button>'
        return document("New", f"<h1>New</h1>{_tiles(self._products[:_A_STEP])}{button}")

    async def _more(self, request: web.Request) -> web.Response:
        page = query_number(request, "page", 1)
        rows = self._products[(page - 1) * _A_STEP : page * _A_STEP]
        return reply(
            {
                "items": [
                    {"id": row["id"], "url": row["path"], "name": row["name"]} for row in rows
                ],
                "html": _tiles(rows),
                "has_more": page * _A_STEP < len(self._products),
            }
        )

    async def _product(self, request: web.Request) -> web.Response:
        place = int(request.match_info["id"]) - 1
        if not 0 <= place < len(self._products):
            return missing()
        language = _language(request)
        row = self._products[place]
        return document(row["name"], _product_page(row, language), lang=language)


def _language(request: web.Request) -> str:
    return request.match_info["locale"].strip("/") or "en"


def _tiles(rows: Rows, language: str = "en") -> str:
    folder = "/shop/de/" if language == "de" else "/shop/"
    tiles = "".join(
        f'<li class="product"><h3><a href="{row["path"].replace("/shop/", folder)}">'
        f"{escape(row['name'])}</a></h3>"
        f'<p class="price">{written_money(row["cents"], language)}</p></li>\n'
        for row in rows
    )
    return f'<ul class="products">\n{tiles}</ul>'


def _product_page(row: dict[str, Any], language: str) -> str:
    stocked, sold_out = _STOCK[language]
    stock = stocked.format(row["stock"]) if row["in_stock"] else sold_out
    rating = f'<p class="star-rating {_STARS[row["rating"]]}"></p>' if row["rating"] else ""
    text = f'<p class="description">{escape(row["description"])}</p>' if row["description"] else ""
    return (
        f'<p class="breadcrumb"><a href="/shop/">Shop</a> / '
        f'<a href="/shop/category/{row["category_slug"]}/">{escape(row["category"])}</a></p>'
        f'<article class="product" data-id="{row["id"]}"><h1>{escape(row["name"])}</h1>'
        f'<p class="price">{written_money(row["cents"], language)}</p>'
        f'<p class="stock">{stock}</p>{rating}{text}</article>'
        f'<script type="application/json" id="variants">{_script(row["variants"])}</script>'
        f"<script>window.shop = {_script({'product': row['id'], 'stock': row['stock']})};</script>"
    )


def _script(value: Any) -> str:
    # A script ends at the first </, wherever it is.
    return orjson.dumps(value).decode().replace("</", "<\\/")
