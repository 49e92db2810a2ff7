"""An auction house that is redesigned during a run: its markup changes after some pages.

Below `/redesign/100/` the hundred-and-first lot that is asked for, and all after it, look new;
below `/redesign/never/` they stay as they are. The contents are the same in both.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from html import escape
from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.seeded import Picks, chance, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Truth, document, missing, query_number
from longline.sandbox.sites.formats import written_date, written_money

_LOTS, _A_PAGE = 200, 25
_FIRST_DAY = date(2025, 1, 1)
_PRICED, _RESERVED = 0.97, 0.03  # a lot may lack an estimate, and seldom has a reserve
_SIGNED = 0.5


class Redesign(PracticeSite):
    """Two hundred lots on eight pages; some fields are always, often or rarely present."""

    name: ClassVar[str] = "redesign"
    path: ClassVar[str] = "/redesign/100/"
    about: ClassVar[str] = "lots whose markup changes after the 100th"

    def __init__(self, seed: int) -> None:
        self._lots = [_lot(seed, place) for place in range(1, _LOTS + 1)]
        self._shown: Counter[str] = Counter()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(r"/redesign/{after:\d+|never}/", self._list_lots),
            web.get(r"/redesign/{after:\d+|never}/lot/{id:\d+}", self._detail),
        ]

    def truth(self) -> Truth:
        return {"lots": self._lots}

    async def _list_lots(self, request: web.Request) -> web.Response:
        page = query_number(request, "page", 1)
        rows = self._lots[(page - 1) * _A_PAGE : page * _A_PAGE]
        if not rows:
            return missing()
        after = request.match_info["after"]
        links = "".join(
            f'<li class="lot"><a href="/redesign/{after}/lot/{row["id"]}">Lot {row["id"]}</a></li>'
            for row in rows
        )
        has_more = page * _A_PAGE < len(self._lots)
        onward = f'<a rel="next" href="?page={page + 1}">Next</a>' if has_more else ""
        return document("Auction", f"<h1>Auction</h1><ul>{links}</ul><nav>{onward}</nav>")

    async def _detail(self, request: web.Request) -> web.Response:
        after, place = request.match_info["after"], int(request.match_info["id"]) - 1
        if not 0 <= place < len(self._lots):
            return missing()
        self._shown[after] += 1
        is_new = after.isdecimal() and self._shown[after] > int(after)
        lot = self._lots[place]
        return document(lot["title"], _new_look(lot) if is_new else _old_look(lot))


def _lot(seed: int, place: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "lot", place))
    cents = 1_000 + picks.below(500_000)
    remarks = [picks.of(words.REMARKS) for _ in range(1 + picks.below(4))]
    return {
        "id": place,
        "title": f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)} {place}",
        "estimate": cents / 100 if chance(seed, "lot priced", place) < _PRICED else None,
        "reserve": cents // 2 / 100 if chance(seed, "lot reserved", place) < _RESERVED else None,
        "signed": picks.of(words.PLACES) if chance(seed, "lot signed", place) < _SIGNED else None,
        "bids": picks.below(30),
        "made": (_FIRST_DAY + timedelta(days=picks.below(700))).isoformat(),
        "text": " ".join(remarks),
    }


def _old_look(lot: dict[str, Any]) -> str:
    made = written_date(date.fromisoformat(lot["made"]), "en")
    return (
        f'<h1 class="title">{escape(lot["title"])}</h1>'
        f"{_amount('estimate', lot['estimate'])}{_amount('reserve', lot['reserve'])}"
        f'{_signed(lot)}<p>Bids: <span class="bids">{lot["bids"]}</span></p>'
        f'<p>Made: <time class="made">{made}</time></p>'
        f'<div class="text">{escape(lot["text"])}</div>'
    )


def _new_look(lot: dict[str, Any]) -> str:
    """Return the page after the redesign: the estimate and the text have moved."""
    made = written_date(date.fromisoformat(lot["made"]), "en")
    amount = "" if lot["estimate"] is None else written_money(round(lot["estimate"] * 100), "en")
    return (
        f'<h1 class="title">{escape(lot["title"])}</h1>'
        f'<dl><dt>Estimate</dt><dd class="valuation">{amount}</dd></dl>'
        f"{_amount('reserve', lot['reserve'])}"
        f'{_signed(lot)}<p>Bids: <span class="bids">{lot["bids"]}</span></p>'
        f'<p>Made: <time class="made">{made}</time></p>'
        f'<div class="text">More …</div><template>{escape(lot["text"])}</template>'
    )


def _amount(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f'<p class="{name}">{written_money(round(value * 100), "en")}</p>'


def _signed(lot: dict[str, Any]) -> str:
    return f'<p class="signed">{escape(lot["signed"])}</p>' if lot["signed"] else ""
