"""The part of GraphQL that the practice site needs: which fields a query selects."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any, ClassVar, TypeAlias

import orjson
from aiohttp import web

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.sites import words
from longline.sandbox.sites.base import PracticeSite, Rows, Truth
from longline.sandbox.templates.routes import reply
from longline.sandbox.templates.words import FIRST_NAMES, LAST_NAMES

Selection: TypeAlias = "dict[str, Selection]"
_PIECE = re.compile(r"#[^\n]*|\([^()]*\)|[{}]|[A-Za-z_$][A-Za-z0-9_]*")


class BadQuery(Exception):
    """A query that cannot be answered; the message is returned to the client."""


def parse_query(text: str) -> Selection:
    """Return the fields of a query as nested dicts; a field without fields of its own is empty.

    Arguments are not looked at: values come as variables.

    Raises:
        BadQuery: the braces do not match.
    """
    pieces = (found[0] for found in _PIECE.finditer(text) if found[0][0] not in "#(")
    for piece in pieces:
        if piece == "{":
            return _fields(pieces)
    raise BadQuery("the query selects nothing")


def pick(value: Any, selection: Selection) -> Any:
    """Return only what was selected of a value, in lists and objects alike.

    Raises:
        BadQuery: a field is unknown, or an object was asked for without its fields.
    """
    if isinstance(value, list):
        return [pick(one, selection) for one in value]
    if not isinstance(value, dict):
        return value
    if not selection:
        raise BadQuery("an object needs a selection of fields")
    unknown = sorted(set(selection) - set(value))
    if unknown:
        raise BadQuery(f"there is no field {unknown[0]!r}; known are {', '.join(value)}")
    return {name: pick(value[name], below) for name, below in selection.items()}


def _fields(pieces: Iterator[str]) -> Selection:
    fields: Selection = {}
    last = ""
    for piece in pieces:
        if piece == "}":
            return fields
        if piece == "{":
            fields[last] = _fields(pieces)
        else:
            last = piece
            fields[last] = {}
    raise BadQuery("a brace is not closed")


# ---------------- A GraphQL endpoint: a connection with cursors, and errors that arrive with

_ALBUMS, _MOST = 45, 20
_STUMBLE = 21
"""The first request for the page after this album gets an error that asks for a retry."""


class GraphQL(PracticeSite):
    """`albums(first, after)` over POST; only selected fields are returned."""

    name: ClassVar[str] = "graphql"
    path: ClassVar[str] = "/graphql"
    about: ClassVar[str] = "a GraphQL API: pageInfo cursors, errors in responses with status 200"

    def __init__(self, seed: int) -> None:
        self._albums = [_album(seed, number) for number in range(1, _ALBUMS + 1)]
        self._has_stumbled = False

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/graphql", self._answer_query)]

    def truth(self) -> Truth:
        return {"albums": self._albums}

    async def _answer_query(self, request: web.Request) -> web.Response:
        try:
            body = orjson.loads(await request.read())
            fields = parse_query(body["query"])
            asked = _connection(fields)
            return self._album_page(asked, body.get("variables") or {})
        except (KeyError, TypeError, orjson.JSONDecodeError):
            return reply({"errors": [{"message": "send a JSON object with a query"}]}, status=400)
        except BadQuery as problem:
            return _refusal(str(problem), "BAD_QUERY")

    def _album_page(self, asked: Selection, variables: dict[str, Any]) -> web.Response:
        start = _place(variables.get("after"))
        if start >= _STUMBLE and not self._has_stumbled:
            self._has_stumbled = True
            return _refusal("the shelf is being dusted", "TRY_AGAIN")
        end = start + min(_MOST, _count(variables.get("first", _MOST)))
        rows = self._albums[start:end]
        connection = {
            "totalCount": len(self._albums),
            "edges": [{"cursor": _album_cursor(row["id"]), "node": row} for row in rows],
            "nodes": rows,
            "pageInfo": {
                "hasNextPage": end < len(self._albums),
                "endCursor": _album_cursor(rows[-1]["id"]) if rows else None,
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


def _album_cursor(album: int) -> str:
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
