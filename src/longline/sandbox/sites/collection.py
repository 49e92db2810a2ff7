"""All small sites of one practice web, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiohttp import web

from longline.core.clock import Clock
from longline.sandbox.sites.app import App
from longline.sandbox.sites.base import PracticeSite
from longline.sandbox.sites.generated import Generated
from longline.sandbox.sites.graphql import GraphQL
from longline.sandbox.sites.judge import Judge
from longline.sandbox.sites.listings.board import Board
from longline.sandbox.sites.listings.site import Listings
from longline.sandbox.sites.maze import Maze
from longline.sandbox.sites.members import Members
from longline.sandbox.sites.news import News
from longline.sandbox.sites.quotes import Quotes
from longline.sandbox.sites.redesign import Redesign
from longline.sandbox.sites.rest import Rest
from longline.sandbox.sites.shop import Shop
from longline.sandbox.templates.routes import reply


class Sites:
    """The small sites next to the catalogue; `site` returns their base URL."""

    def __init__(self, seed: int, clock: Clock, *, site: Callable[[], str]) -> None:
        self.quotes = Quotes(seed)
        self.shop = Shop(seed)
        self.rest = Rest(seed, clock, site=site)
        self.graphql = GraphQL(seed)
        self.app = App(seed)
        self.members = Members(seed)
        self.news = News(seed, site=site)
        self.generated = Generated()
        self.redesign = Redesign(seed)
        self.maze = Maze(seed)
        self.judge = Judge()
        self.listings = Listings(Board(seed))

    def __iter__(self) -> Iterator[PracticeSite]:
        yield from (self.quotes, self.shop, self.rest, self.graphql)
        yield from (self.app, self.members, self.news, self.generated)
        yield from (self.redesign, self.maze, self.judge)
        yield from (self.listings, *self.listings.sites)

    def routes(self, prefix: str) -> list[web.RouteDef]:
        """Return the routes of all sites, and a list of the sites below `prefix`."""
        return [
            *(route for one in self for route in one.routes()),
            web.get(f"{prefix}sites", self._list_sites),
        ]

    async def _list_sites(self, _request: web.Request) -> web.Response:
        return reply({one.name: {"path": one.path, "about": one.about} for one in self})
