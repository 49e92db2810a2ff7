"""A site full of crawler traps: endless pages around a few rooms that are worth collecting."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar

from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Truth, document, missing, query_number

_ROOMS, _A_PAGE = 24, 8
_MONTHS = 12
_SORTS = ("name", "price", "size")
_VIEWS = ("grid", "list", "table")


class Maze(PracticeSite):
    """Twenty-four rooms on three list pages; everything else has no end.

    Links carry session ids; the calendar, the list and a path go on for ever, the list can be
    sorted and shown in many ways, and each room has endless addresses with the same text.
    """

    name: ClassVar[str] = "maze"
    path: ClassVar[str] = "/maze/"
    about: ClassVar[str] = "crawler traps: endless calendar, session ids, mirrored parameters"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rooms = [_room(seed, number) for number in range(1, _ROOMS + 1)]
        self._pages = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/maze/", self._home),
            web.get("/maze/rooms", self._list),
            web.get(r"/maze/room/{number:\d+}", self._room),
            web.get(r"/maze/calendar/{year:\d+}/{month:\d+}", self._calendar),
            web.get("/maze/corridor/{rest:.*}", self._corridor),
        ]

    def truth(self) -> Truth:
        return {"rooms": self._rooms}

    def _page(self, title: str, inside: str, *paths: str) -> web.Response:
        """Return a page whose links have a session id that no other page has."""
        self._pages += 1
        session = f"{draw(self._seed, 'maze session', self._pages):016x}"
        links = "".join(
            f'<li><a href="{escape(path)}{"&amp;" if "?" in path else "?"}PHPSESSID={session}">'
            f"{escape(path)}</a></li>"
            for path in ("/maze/", *paths)
        )
        return document(title, f"<h1>{escape(title)}</h1>{inside}<ul>{links}</ul>")

    async def _home(self, _request: web.Request) -> web.Response:
        paths = ("/maze/rooms", "/maze/calendar/2026/11", "/maze/corridor/left/right")
        return self._page("The maze", "", *paths)

    async def _list(self, request: web.Request) -> web.Response:
        number = max(1, query_number(request, "page", 1))
        last = -(-_ROOMS // _A_PAGE)
        shown = min(number, last)  # beyond the last page the site repeats it
        rooms = self._rooms[(shown - 1) * _A_PAGE : shown * _A_PAGE]
        orders = [f"/maze/rooms?sort={one}&view={view}" for one in _SORTS for view in _VIEWS]
        mirrored = [f"/maze/rooms?view={view}&sort={one}" for one in _SORTS for view in _VIEWS]
        paths = (*(one["path"] for one in rooms), f"/maze/rooms?page={number + 1}")
        return self._page("Rooms", "", *paths, *orders, *mirrored)

    async def _room(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        if not 0 < number <= _ROOMS:
            return missing()
        room = self._rooms[number - 1]
        light = query_number(request, "light", 0)
        title, about = escape(room["title"]), escape(room["about"])
        inside = f'<p class="about">{about}</p><a href="{room["path"]}?light={light + 1}">lamp</a>'
        return document(room["title"], f'<h1>{title}</h1>{inside}<a href="/maze/">out</a>')

    async def _calendar(self, request: web.Request) -> web.Response:
        year, month = (int(request.match_info[name]) for name in ("year", "month"))
        months = year * _MONTHS + month - 1
        paths = [
            f"/maze/calendar/{there // _MONTHS}/{there % _MONTHS + 1}"
            for there in (months - 1, months + 1)
        ]
        return self._page(f"Events of {month}/{year}", "<p>No events.</p>", *paths)

    async def _corridor(self, request: web.Request) -> web.Response:
        rest = request.match_info["rest"].strip("/")
        paths = [f"/maze/corridor/{rest}/{way}" for way in ("left", "right")]
        return self._page("A corridor", f"<p>{rest.count('/')} turns.</p>", *paths)


def _room(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "maze", number))
    place = picks.of(words.PLACES)
    return {
        "path": f"/maze/room/{number}",
        "title": f"Room {number}, {place}",
        "about": picks.of(words.PARAGRAPHS),
    }
