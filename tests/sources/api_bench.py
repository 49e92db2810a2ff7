"""An API manifest on a scripted site: real HTTP, through the whole chain, on virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from longline.config.auth import Auth
from longline.config.documents import parse_document
from longline.core.clock import Clock
from longline.core.model import Cursor, Item, Outcome, Usage
from longline.engine.collector import Collector
from longline.http.chain import ClientIdentity, Policies, build_chain
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.backends.state import StateBackend
from longline.limits.breaker import CircuitBreaker
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryHandler
from longline.sources.api.manifest import ApiManifest
from longline.sources.api.source import ApiSource, Bookmark, api_source
from longline.sources.base import Visit
from tests.scripted_site import ScriptedSite


class ApiSite:
    """A scripted site that answers in JSON and remembers what it was asked."""

    def __init__(self, site: ScriptedSite) -> None:
        self.site = site
        self.url = site.url
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sent: list[Any] = []
        self.headers: list[Mapping[str, str]] = []

    @property
    def queries(self) -> list[dict[str, str]]:
        return [query for _, query in self.asked]

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def says(self, path: str, *answers: Any) -> None:
        """Answer a path with these one after the other; the last one stays.

        An answer is JSON, a response, or a function of the query and the body.
        """
        left = list(answers)

        async def answer(request: web.Request) -> web.StreamResponse:
            query = dict(request.query)
            body = await request.read()
            self.asked.append((request.path, query))
            self.sent.append(body)
            self.headers.append(request.headers)
            said = left.pop(0) if len(left) > 1 else left[0]
            return _response(said(query, body) if callable(said) else said)

        self.site.answers[path] = answer


def _response(said: Any) -> web.Response:
    if isinstance(said, tuple):
        status, body, *headers = said
        return _json(body, status, headers[0] if headers else {})
    return _json(said)


def _json(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    kind = {"Content-Type": "application/json", **(headers or {})}
    return web.Response(body=orjson.dumps(body), status=status, headers=kind)


class Bench:
    """Runs manifests as an engine would: discovery, then every item through its layers."""

    def __init__(self, site: ScriptedSite, clock: Clock) -> None:
        self.site = site
        self.clock = clock
        self.transport = HttpTransport(HttpOptions(timeout=10), clock)
        self.cursors: list[Cursor] = []
        self.closing = AsyncExitStack()
        self.closing.push_async_callback(self.transport.close)
        self.usage = Usage()
        self.notes: list[str] = []
        self.cuts: list[str] = []
        self.warnings: list[str] = []
        self.source: ApiSource | None = None

    def open(
        self, text: str, bookmarks: StateBackend[Bookmark] | None = None, **options: Any
    ) -> tuple[ApiSource, Collector]:
        written = parse_document(text.encode(), Path("shop.yaml"))
        values = {"manifest": "api", "name": "shop", "base_url": self.site.url}
        manifest = ApiManifest.model_validate({**values, **written.values})
        source = api_source(manifest).with_options(options)
        assert isinstance(source, ApiSource)
        source.bookmarks = bookmarks
        self.source = source
        return source, Collector(source, self._chain(manifest.auth), self.clock)

    async def find(
        self, text: str, cursor: Mapping[str, Any] | None = None, **options: Any
    ) -> list[Item]:
        """Run discovery to its end."""
        _, collector = self.open(text, **options)
        return await self.discover(collector, cursor)

    async def run(self, text: str, **options: Any) -> list[Outcome]:
        """Run discovery and then each item."""
        _, collector = self.open(text, **options)
        items = await self.discover(collector)
        return [await collector.collect(item) for item in items]

    async def records(self, text: str, **options: Any) -> list[dict[str, Any]]:
        """Return the data of the records of a run in which nothing failed."""
        found = await self.run(text, **options)
        assert [one.reason for one in found if not one.is_success] == []
        return [dict(one.record.data) for one in found if one.record]

    async def discover(
        self, collector: Collector, cursor: Mapping[str, Any] | None = None
    ) -> list[Item]:
        visit: Visit = collector.visit(cursor=cursor)
        items: list[Item] = []
        try:
            async for found in collector.source.discover(visit):
                if isinstance(found, Item):
                    items.append(found)
                else:
                    self.cursors.append(found)
        finally:
            self.usage = visit.usage
            self.notes = [f"{note.field}: {note.text}" for note in visit.notes]
            self.cuts, self.warnings = visit.cuts, visit.warnings
        return items

    def _chain(self, auth: Auth | None) -> Any:
        policies = Policies(
            RateLimiter(None, clock=self.clock),
            CircuitBreaker(clock=self.clock),
            RetryHandler(circuit_breaker_threshold=None, clock=self.clock, jitter=0.0),
            identity=ClientIdentity(auth=auth),
        )
        return build_chain(self.transport, policies, self.clock, self.closing)
