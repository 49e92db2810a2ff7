"""What goes in and out while a page loads: counted, paced, blocked, and some of it read along."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page, Request, Response, Route

from longline.config.patterns import UserPattern
from longline.core.errors import LonglineError
from longline.core.json_text import read_json
from longline.core.model import CUT, Usage
from longline.http.errors import PrivateAddress
from longline.http.messages import Permit
from longline.http.transports.browser.deadlines import Patience
from longline.http.transports.browser.manifest import RESOURCE_TYPES, TRACKERS

# ---------------- Which of a page's requests are not made: pictures, films, fonts and those who

_WATCHERS = frozenset(
    {
        *("google-analytics.com", "analytics.google.com", "googletagmanager.com"),
        *(
            "doubleclick.net",
            "googlesyndication.com",
            "googleadservices.com",
            "adservice.google.com",
        ),
        *("connect.facebook.net", "pixel.facebook.com", "ads.linkedin.com", "snap.licdn.com"),
        *("analytics.tiktok.com", "ads-twitter.com", "analytics.twitter.com", "bat.bing.com"),
        *("clarity.ms", "hotjar.com", "hotjar.io", "mouseflow.com", "fullstory.com"),
        *("segment.io", "segment.com", "mixpanel.com", "amplitude.com", "heapanalytics.com"),
        *("matomo.cloud", "plausible.io", "statcounter.com", "scorecardresearch.com"),
        *("quantserve.com", "chartbeat.com", "chartbeat.net", "newrelic.com", "nr-data.net"),
        *("criteo.com", "criteo.net", "taboola.com", "outbrain.com", "adnxs.com"),
        *("mc.yandex.ru", "yadro.ru", "top-fwz1.mail.ru", "intercom.io", "branch.io"),
    }
)
"""Hosts that measure visitors or show advertisements; everything below them is meant as well."""


class Blocker:
    """Says of each request of a page whether it is blocked.

    Args:
        words: resource types, hosts (`*.example.com` is everything below) and `trackers`.
    """

    def __init__(self, words: Iterable[str]) -> None:
        words = frozenset(words)
        self._types = words & RESOURCE_TYPES
        self._hosts = words - RESOURCE_TYPES - {TRACKERS}
        self._below = tuple(host[1:] for host in self._hosts if host.startswith("*."))
        self._trackers = _WATCHERS if TRACKERS in words else frozenset()

    def blocks(self, url: str, resource_type: str) -> bool:
        """Return whether this request is not to be made."""
        if resource_type in self._types:
            return True
        parts = urlsplit(url)
        return self._has_host(parts.netloc.lower()) or self._has_host(parts.hostname or "")

    def _has_host(self, host: str) -> bool:
        if host in self._hosts or host.endswith(self._below):
            return True
        labels = host.split(".")
        return any(".".join(labels[first:]) in self._trackers for first in range(len(labels)))


BeforeSubrequest = Callable[[str], Awaitable[Any]]
_TOO_MANY = 429
_FIRST_BAD = 400
_DATA = frozenset({"xhr", "fetch"})
_MOST_CAPTURED = 200
_ENDLESS = frozenset({"eventsource", "websocket", "ping", "media"})  # these say nothing of idleness
_LOOK = 0.05  # seconds
_OWN_HEADERS = frozenset({"cookie", "user-agent", "host", "content-length", "accept-encoding"})
"""Headers that the browser sees to by itself."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for the traffic of every page."""

    blocker: Blocker
    captured: tuple[UserPattern, ...] = ()
    before: BeforeSubrequest | None = None
    largest_body: int = 50_000_000


@dataclass(eq=False)  # no slots: the library leaves marks on whoever listens to it
class Traffic:
    """The requests of one page. `main` is the last answer that the page itself was made of."""

    page: Page
    rules: Rules
    usage: Usage
    patience: Patience
    headers: Mapping[str, str]
    permit: Permit | None = None
    main: Response | None = None
    subrequests: int = 0
    blocked: int = 0
    failure: LonglineError | None = None
    """Why a request of the page could not be made; without it, the page is not whole."""
    documents: int = 0
    """How many documents the page itself was made of, one after the other."""
    failed: list[tuple[str, int | None]] = field(default_factory=list)
    """Requests of the page's own scripts that failed, with their status; None without an answer."""
    _is_under_way: bool = False
    _open: set[Request] = field(default_factory=set)
    _answers: list[Response] = field(default_factory=list)
    _is_capture_full: bool = False
    _hops: list[str] = field(default_factory=list)
    _turns: set[asyncio.Future[Any]] = field(default_factory=set)

    async def watch(self) -> None:
        """Begin to look at the page's requests."""
        self.page.on("request", self._begun)
        self.page.on("requestfinished", self._ended)
        self.page.on("requestfailed", self._lost)
        self.page.on("response", self._answered)
        await self.page.route("**/*", self._route)

    async def idle(self, seconds: float) -> None:
        """Return when no request was under way for so many seconds."""
        quiet = 0.0
        while quiet < seconds:
            await asyncio.sleep(_LOOK)
            quiet = 0.0 if self._open else quiet + _LOOK

    async def settle(self) -> None:
        """Pay for the redirects that the browser followed by itself: the next request waits."""
        while self._hops and self.failure is None:
            await self._take_turn(self._hops.pop())

    async def stop(self) -> None:
        """Give up the turns that requests of the page still wait for."""
        for turn in self._turns:
            turn.cancel()
        with suppress(PlaywrightError):
            await self.page.unroute_all(behavior="ignoreErrors")

    async def captured(self) -> dict[str, Any]:
        """Return the JSON answers that were to be read along, by address.

        An address that answered several times has #2, #3 … behind it.
        """
        found: dict[str, Any] = {}
        for answer in self._answers:
            with suppress(PlaywrightError, orjson.JSONDecodeError):
                body = await answer.body()
                if len(body) <= self.rules.largest_body:
                    found[_free(answer.url, found)] = read_json(body)
        return found

    def _begun(self, request: Request) -> None:
        if request.resource_type not in _ENDLESS:
            self._open.add(request)
        if request.redirected_from is not None:
            # The browser follows these without asking us.
            self._count()
            self._hops.append(request.url)

    def _ended(self, request: Request) -> None:
        self._open.discard(request)

    def _lost(self, request: Request) -> None:
        self._ended(request)
        reason = request.failure or ""
        # What we block, and what the page itself gives up, is no failure.
        is_wanted = "BLOCKED" not in reason and "ABORTED" not in reason
        if is_wanted and self._is_own(request):
            self.failed.append((request.url, None))

    def _is_own(self, request: Request) -> bool:
        """Whether a script of the page asked its own site for data."""
        if request.resource_type not in _DATA:
            return False
        return _site(request.url) == _site(self.page.url)

    def _answered(self, response: Response) -> None:
        request = response.request
        if response.status >= _FIRST_BAD and self._is_own(request):
            self.failed.append((response.url, response.status))
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            self.main = response
            self.documents += 1
        elif response.status == _TOO_MANY:
            self.usage.rate_limited += 1
        if self._is_captured(response.url):
            self._capture(response)

    def _capture(self, response: Response) -> None:
        if len(self._answers) < _MOST_CAPTURED:
            self._answers.append(response)
        elif not self._is_capture_full:
            self._is_capture_full = True
            reason = f"{self.page.url} received more than {_MOST_CAPTURED} answers to capture"
            self.usage.add_event(CUT, reason=reason)

    def _is_captured(self, url: str) -> bool:
        return any(pattern.search(url) for pattern in self.rules.captured)

    async def _route(self, route: Route) -> None:
        # A page may be closed under our hands; then nobody waits for this request any more.
        with suppress(PlaywrightError):
            await self._decide(route, route.request)

    async def _decide(self, route: Route, request: Request) -> None:
        if not self._is_under_way and request.is_navigation_request():
            self._is_under_way = True  # its token was taken by the chain
            await route.continue_(headers=self._with_own(request.headers))
            return
        if self.rules.blocker.blocks(request.url, request.resource_type):
            self.blocked += 1
            await route.abort("blockedbyclient")
        elif await self._is_permitted(request) and await self._take_turn(request.url):
            self._count()
            await route.continue_()
        else:
            await route.abort("blockedbyclient")

    async def _is_permitted(self, request: Request) -> bool:
        """Ask whether the page itself may become another document; its parts may load."""
        is_document = request.is_navigation_request() and request.frame == self.page.main_frame
        if self.permit is None or not is_document:
            return True
        try:
            with self.patience.waiting():
                await self.permit(request.url)
        except LonglineError as error:
            self.failure = self.failure or error
            return False
        return True

    def _with_own(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Add the source's headers: to the page alone, since its parts may be on any host."""
        own = {name.lower(): value for name, value in self.headers.items()}
        return {**headers, **{n: v for n, v in own.items() if n not in _OWN_HEADERS}}

    def _count(self) -> None:
        self.subrequests += 1
        self.usage.requests += 1

    async def _take_turn(self, url: str) -> bool:
        """Wait for the pace of a host; False when the request is not to be made."""
        if self.rules.before is None:
            return True
        # The browser calls us in tasks of its own, so this one has no group to live in; `stop`
        # ends it.
        turn = asyncio.ensure_future(self.rules.before(url))
        self._turns.add(turn)
        try:
            with self.patience.waiting(), self.usage.waiting:
                await asyncio.wait({turn})
        finally:
            turn.cancel()
            self._turns.discard(turn)
        if turn.cancelled():
            return False
        error = turn.exception()
        if error is None:
            return True
        if isinstance(error, PrivateAddress):
            # Pages ask this machine for reasons of their own; they are shown without the answer.
            self.usage.add_event("address.refused", url=url, address=error.address)
            self.blocked += 1
            return False
        if not isinstance(error, LonglineError):
            raise error
        self.failure = self.failure or error
        return False


def _free(url: str, taken: Mapping[str, Any]) -> str:
    if url not in taken:
        return url
    number = 2
    while f"{url}#{number}" in taken:
        number += 1
    return f"{url}#{number}"


def _site(url: str) -> str:
    """Return what the hosts of one site have in common, roughly: api.shop.test and shop.test."""
    host = urlsplit(url).hostname or ""
    return host if host.replace(".", "").isdigit() else ".".join(host.split(".")[-2:])
