"""The three property sites together: one set of ads, and a switch to the next round."""

from __future__ import annotations

from typing import ClassVar

from aiohttp import web

from longline.sandbox.sites.base import PracticeSite, Truth, document
from longline.sandbox.sites.listings.ads import SITES
from longline.sandbox.sites.listings.board import Board
from longline.sandbox.sites.listings.homes import Homes
from longline.sandbox.sites.listings.imoti import Imoti
from longline.sandbox.sites.listings.wohnen import Wohnen
from longline.sandbox.templates.routes import reply


class Listings(PracticeSite):
    """Three sites that advertise the same properties, each in its own way."""

    name: ClassVar[str] = "listings"
    path: ClassVar[str] = "/listings/"
    about: ClassVar[str] = "three property sites; POST /listings/round/2 changes their ads"

    def __init__(self, board: Board) -> None:
        self.board = board
        self.imoti = Imoti(board)
        self.homes = Homes(board)
        self.wohnen = Wohnen(board)

    @property
    def sites(self) -> tuple[PracticeSite, ...]:
        """The three sites."""
        return (self.imoti, self.homes, self.wohnen)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/listings/", self._list_ad_sites),
            web.get("/listings/round", self._tell_round),
            web.post(r"/listings/round/{number:[12]}", self._move),
        ]

    def truth(self) -> Truth:
        return {"ads": [row for site in SITES for row in self.board.truth(site)]}

    async def _list_ad_sites(self, _request: web.Request) -> web.Response:
        links = "".join(f'<li><a href="{one.path}">{one.name}</a></li>' for one in self.sites)
        return document("Listings", f"<h1>Listings</h1><ul>{links}</ul>")

    async def _tell_round(self, _request: web.Request) -> web.Response:
        return reply({"round": self.board.round})

    async def _move(self, request: web.Request) -> web.Response:
        self.board.move_to(int(request.match_info["number"]))
        return reply({"round": self.board.round})
