"""A GraphQL endpoint: a connection with cursors, and errors that arrive with status 200."""

from __future__ import annotations

import base64
from typing import Any, ClassVar

import orjson
from aiohttp import web

from longline.sandbox.draws import Picks, draw
from longline.sandbox.site import reply
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Rows, Truth
from longline.sandbox.sites.selections import BadQuery, Selection, parse_query, pick
from longline.sandbox.words import FIRST_NAMES, LAST_NAMES

_ALBUMS, _MOST = 45, 20
_STUMBLE = 21
"""The first request for what follows this album is told to try again."""


class GraphQL(PracticeSite):
    """`albums(first, after)` over POST. What is asked for is what is answered."""

    name: ClassVar[str] = "graphql"
    path: ClassVar[str] = "/graphql"
    about: ClassVar[str] = "a GraphQL API: pageInfo cursors, errors in an answer with status 200"

    def __init__(self, seed: int) -> None:
        self._albums = [_album(seed, number) for number in range(1, _ALBUMS + 1)]
        self._has_stumbled = False

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/graphql", self._answer)]

    def truth(self) -> Truth:
        return {"albums": self._albums}

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            body = orjson.loads(await request.read())
            fields = parse_query(body["query"])
            asked = _connection(fields)
            return self._page(asked, body.get("variables") or {})
        except (KeyError, TypeError, orjson.JSONDecodeError):
            return reply({"errors": [{"message": "send a JSON object with a query"}]}, status=400)
        except BadQuery as problem:
            return _refusal(str(problem), "BAD_QUERY")

    def _page(self, asked: Selection, variables: dict[str, Any]) -> web.Response:
        start = _place(variables.get("after"))
        if start >= _STUMBLE and not self._has_stumbled:
            self._has_stumbled = True
            return _refusal("the shelf is being dusted", "TRY_AGAIN")
        end = start + min(_MOST, _count(variables.get("first", _MOST)))
        rows = self._albums[start:end]
        connection = {
            "totalCount": len(self._albums),
            "edges": [{"cursor": _cursor(row["id"]), "node": row} for row in rows],
            "nodes": rows,
            "pageInfo": {
                "hasNextPage": end < len(self._albums),
                "endCursor": _cursor(rows[-1]["id"]) if rows else None,
            },
        }
        return reply({"data": {"albums": pick(connection, asked)}})


def _connection(fields: Selection) -> Selection:
    if set(fields) != {"albums"} or not fields["albums"]:
        raise BadQuery("ask for albums and at least one of its fields")
    return fields["albums"]


def _refusal(message: str, code: str) -> web.Response:
    return reply({"data": None, "errors": [{"message": message, "extensions": {"code": code}}]})


def _count(first: Any) -> int:
    if not isinstance(first, int) or isinstance(first, bool) or first < 1:
        raise BadQuery("first is not an Int of 1 or more")
    return first


def _cursor(album: int) -> str:
    return base64.urlsafe_b64encode(f"album:{album}".encode()).decode()


def _place(cursor: Any) -> int:
    if cursor is None:
        return 0
    try:
        return int(base64.urlsafe_b64decode(str(cursor)).decode().removeprefix("album:"))
    except ValueError as error:
        raise BadQuery("after is not a cursor of this list") from error


def _album(seed: int, number: int) -> dict[str, Any]:
    picks = Picks(draw(seed, "album", number))
    return {
        "id": number,
        "title": f"{picks.of(words.LOOKS)} {picks.of(words.SERIES)}",
        "year": 1960 + picks.below(60),
        "artist": {
            "name": f"{picks.of(FIRST_NAMES)} {picks.of(LAST_NAMES)}",
            "country": picks.of(("BG", "DE", "NO", "PT")),
        },
        "tracks": _tracks(picks),
    }


def _tracks(picks: Picks) -> Rows:
    return [
        {"title": f"{picks.of(words.LOOKS)} {n}", "seconds": 90 + picks.below(300)}
        for n in range(1, 2 + picks.below(3))
    ]
