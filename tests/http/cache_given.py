"""What tests of the cache share: a cached site, and entries that no site had to send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.model import Usage
from longline.http.cache import CacheEntry, HttpCache
from longline.http.messages import Page, Request
from longline.http.middleware.cache import CacheMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from tests.scripted_site import Answer, ScriptedSite, drop
from tests.virtual import EPOCH, VirtualClock


class TemporaryCache(HttpCache):
    """A cache whose file is removed with it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        super().__init__(Path(self._folder.name) / "cache.sqlite")

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


@dataclass
class Browser:
    """The cache middleware around real HTTP; a test looks at what it cost."""

    clock: VirtualClock
    cache: HttpCache = field(default_factory=TemporaryCache)
    mark: str = ""

    def __post_init__(self) -> None:
        self.usage = Usage()
        self.transport = HttpTransport(HttpOptions(timeout=10), self.clock)
        self.middleware = CacheMiddleware(self.transport, self.cache, self.clock, mark=self.mark)

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Page:
        return await self.ask(Request(url, headers=headers or {}))

    async def ask(self, request: Request) -> Page:
        return await self.middleware(request, self.usage)

    async def close(self) -> None:
        self.cache.close()
        await self.transport.close()


@dataclass
class Shelf:
    """A page of a site that keeps count: every full answer has a number of its own."""

    headers: dict[str, str]
    status: int = 200
    asked: list[CIMultiDictProxy[str]] = field(default_factory=list)
    later: dict[str, str] | None = None
    fails: bool | int = False

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers)
        if self.fails is True:
            return await drop(request)
        if self.fails:
            return web.Response(status=self.fails)
        now = {"Date": formatdate(EPOCH + _time(), usegmt=True)}
        headers = now | (self.headers if len(self.asked) == 1 else self.later or self.headers)
        tag = headers.get("ETag")
        if tag is not None and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        text = f"answer {len(self.asked)}"
        return web.Response(text=text, status=self.status, headers=headers)


def shelf(site: ScriptedSite, path: str, headers: dict[str, str], **values: object) -> Shelf:
    """Put a page that keeps count on a site."""
    page = Shelf(headers, **values)  # type: ignore[arg-type]  # a test's shorthand
    answer: Answer = page
    site.answers[path] = answer
    return page


def entry(
    headers: Mapping[str, str] | None = None,
    *,
    url: str = "http://site.test/a",
    owner: str = "",
    at: float = EPOCH,
    status: int = 200,
    vary: tuple[tuple[str, str | None], ...] = (),
) -> CacheEntry:
    """Return an entry of a response that arrived at this time."""
    kept = CIMultiDictProxy(CIMultiDict(headers or {}))
    return CacheEntry(url, owner, vary, status, kept, at, at, at, at)


def _time() -> float:
    return VirtualClock().now() - EPOCH
