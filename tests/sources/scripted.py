"""A scripted web and a scripted visit, for tests of sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from longline.core.clock import Clock
from longline.core.errors import FetchError, bad_status
from longline.core.model import Cursor, Item, Usage
from longline.http.messages import Middleware, Page, Request
from longline.sources.base import Source, Visit

Script = Page | FetchError | Any


class ScriptedWeb(Middleware):
    """Answers by address: a Page or error as it is, text and bytes as a body, the rest as JSON.

    A list is a script for several requests; its last entry is given again and again. An address
    that is not in the script is a 404.
    """

    def __init__(self, script: Mapping[str, Script]) -> None:
        self.script = dict(script)
        self.requests: list[Request] = []

    @property
    def addresses(self) -> list[str]:
        return [request.url for request in self.requests]

    async def __call__(self, request: Request, usage: Usage) -> Page:
        self.requests.append(request)
        usage.requests += 1
        page = self._page(request.url)
        if page.status >= 400 and page.status not in request.accept:
            raise bad_status(request.url, page.status)
        return page

    def _page(self, url: str) -> Page:
        answer = self.script.get(url)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if isinstance(answer, FetchError):
            raise answer
        return answer if isinstance(answer, Page) else _as_page(url, answer)


def _as_page(url: str, answer: Any) -> Page:
    if answer is None:
        return status(url, 404)
    if isinstance(answer, str):
        return Page(url, 200, {"content-type": "text/html; charset=utf-8"}, answer.encode())
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    return Page(url, 200, {"content-type": "application/json"}, body)


def status(url: str, code: int, body: bytes = b"") -> Page:
    return Page(url, code, {}, body)


async def collect(
    source: Source, web: Middleware, item: Item, clock: Clock
) -> tuple[dict[str, Any], Visit]:
    """Run every layer of an item, as an engine would when nothing fails."""
    visit = Visit(web, clock, item=item)
    for layer in source.layers():
        visit.results[layer.name] = await getattr(source, layer.name)(visit)
    return source.compose(item, visit.results), visit


async def discovered(
    source: Source, web: Middleware, clock: Clock, cursor: Mapping[str, Any] | None = None
) -> tuple[list[Item], list[Cursor]]:
    """Run discovery to its end and sort what it yields."""
    found = [entry async for entry in source.discover(Visit(web, clock, cursor=cursor))]
    items = [entry for entry in found if isinstance(entry, Item)]
    return items, [entry for entry in found if isinstance(entry, Cursor)]


def notes_on(visit: Visit, field: str) -> list[str]:
    return [note.text for note in visit.notes if note.field == field]


def unexplained(data: Mapping[str, Any], visit: Visit) -> list[str]:
    """Return the empty fields that no note speaks of."""
    noted = {note.field for note in visit.notes}
    return [field for field, value in data.items() if value is None and field not in noted]


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
