"""A JSON API: every kind of authentication and pagination, parents and children, changes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

from aiohttp import web

from longline.core.clock import Clock
from longline.sandbox.sites import api_records, authentication
from longline.sandbox.sites.api_records import Orders
from longline.sandbox.sites.base import PracticeSite, Rows, Truth, query_number
from longline.sandbox.sites.edge_cases import Errands
from longline.sandbox.templates.routes import reply

_A_PAGE, _MOST = 10, 25


class Rest(PracticeSite):
    """Collections below `/rest/`, each with its own authentication and pagination."""

    name: ClassVar[str] = "rest"
    path: ClassVar[str] = "/rest/"
    about: ClassVar[str] = (
        "a JSON API: bearer, keys, basic, OAuth2; page, offset, cursor, Link, next URL; "
        "parents and children, changes since, failing responses"
    )

    def __init__(self, seed: int, clock: Clock, *, site: Callable[[], str]) -> None:
        self._site = site
        self._clock = clock
        self._books = api_records.make_rows(seed, "book", 45, api_records.book)
        self._stations = api_records.make_rows(seed, "station", 32, api_records.station)
        self._readings = api_records.make_rows(seed, "reading", 50, api_records.reading)
        self._invoices = api_records.make_rows(seed, "invoice", 36, api_records.invoice)
        self._parts = api_records.make_rows(seed, "part", 27, api_records.part)
        self._changes = api_records.make_rows(seed, "change", 30, api_records.change)
        self._orders = Orders(seed)
        self._errands = Errands(seed)
        self.office = authentication.TokenOffice(seed, clock)
        self.sinces: list[str | None] = []
        """The `since` of each request for changes."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/rest/", self._list_endpoints),
            web.get(
                "/rest/books", authentication.behind(authentication.has_token, self._by_cursor)
            ),
            web.get("/rest/stations", authentication.behind(authentication.has_key, self._by_link)),
            web.get(
                "/rest/readings",
                authentication.behind(authentication.has_key_in_query, self._by_offset),
            ),
            web.post("/rest/token", self.office.give),
            web.get("/rest/invoices", self.office.behind(self._by_page)),
            web.get(
                "/rest/parts", authentication.behind(authentication.has_password, self._by_next)
            ),
            web.get("/rest/changes", self._since),
            *self._orders.routes(),
            *self._errands.routes(),
        ]

    def truth(self) -> Truth:
        return {
            "books": self._books,
            "stations": self._stations,
            "readings": self._readings,
            "invoices": self._invoices,
            "parts": self._parts,
            "changes": self._changes,
            "errands": self._errands.rows(),
            **self._orders.truth(),
        }

    def change(self, *ids: int) -> None:
        """Change these rows of `/rest/changes` at this time."""
        now = api_records.written(datetime.fromtimestamp(self._clock.now(), UTC))
        for row in self._changes:
            if row["id"] in ids:
                row.update(title=f"{row['title']}, again", updated_at=now)

    async def _list_endpoints(self, _request: web.Request) -> web.Response:
        return reply({"collections": {name: f"/rest/{name}" for name in self.truth()}})

    async def _by_cursor(self, request: web.Request) -> web.Response:
        start = _place(request.query.get("cursor", ""))
        if start is None:
            return reply({"error": "cursor: not one of ours"}, status=400)
        rows = self._books[start : start + _A_PAGE]
        end = start + len(rows)
        onward = _cursor(end) if end < len(self._books) else None
        return reply({"data": {"books": rows}, "meta": {"next_cursor": onward}})

    async def _by_link(self, request: web.Request) -> web.Response:
        page = query_number(request, "page", 1)
        rows = self._stations[(page - 1) * _A_PAGE : page * _A_PAGE]
        first = f'<{self._site()}/rest/stations?page=1>; rel="first"'
        onward = f'<{self._site()}/rest/stations?page={page + 1}>; rel="next"'
        has_more = page * _A_PAGE < len(self._stations)
        return reply(rows, headers={"Link": f"{first}, {onward}" if has_more else first})

    async def _by_offset(self, request: web.Request) -> web.Response:
        start = query_number(request, "offset", 0)
        count = min(_MOST, query_number(request, "limit", _A_PAGE))
        rows = self._readings[start : start + count]
        return reply({"total": len(self._readings), "readings": rows})

    async def _by_page(self, request: web.Request) -> web.Response:
        return reply(_numbered(self._invoices, request))

    async def _by_next(self, request: web.Request) -> web.Response:
        start = query_number(request, "after", 0)
        rows = self._parts[start : start + _A_PAGE]
        end = start + len(rows)
        onward = f"/rest/parts?after={end}" if end < len(self._parts) else None
        return reply({"results": rows, "next": onward})

    async def _since(self, request: web.Request) -> web.Response:
        since = request.query.get("since")
        self.sinces.append(since)
        fresh = [row for row in self._changes if row["updated_at"] >= (since or "")]
        return reply(_numbered(sorted(fresh, key=lambda row: row["updated_at"]), request))


def _numbered(rows: Rows, request: web.Request) -> dict[str, Any]:
    page = query_number(request, "page", 1)
    return {
        "items": rows[(page - 1) * _A_PAGE : page * _A_PAGE],
        "page": page,
        "pages": -(-len(rows) // _A_PAGE),
        "total": len(rows),
    }


def _cursor(place: int) -> str:
    return base64.urlsafe_b64encode(f"after {place}".encode()).decode()


def _place(cursor: str) -> int | None:
    if not cursor:
        return 0
    try:
        return int(base64.urlsafe_b64decode(cursor).decode().removeprefix("after "))
    except ValueError:
        return None
