"""Requests of a loading page: count, rate-limit and block them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page, Request, Response, Route

from longline.core.errors import LonglineError
from longline.core.model import Usage
from longline.http.browser.manifest import RESOURCE_TYPES, TRACKERS
from longline.http.errors import PrivateAddress
from longline.http.messages import FIRST_ERROR, Permit

# ---------------- Blocked requests: resource types, hosts and trackers

_TRACKER_HOSTS = frozenset(
    {
        *("google-analytics.com", "analytics.google.com", "googletagmanager.com", "yadro.ru"),
        *("doubleclick.net", "googlesyndication.com", "googleadservices.com", "branch.io"),
        *("connect.facebook.net", "pixel.facebook.com", "ads.linkedin.com", "snap.licdn.com"),
        *("analytics.tiktok.com", "ads-twitter.com", "analytics.twitter.com", "bat.bing.com"),
        *("clarity.ms", "hotjar.com", "hotjar.io", "mouseflow.com", "fullstory.com"),
        *("segment.io", "segment.com", "mixpanel.com", "amplitude.com", "heapanalytics.com"),
        *("matomo.cloud", "plausible.io", "statcounter.com", "scorecardresearch.com"),
        *("quantserve.com", "chartbeat.com", "chartbeat.net", "newrelic.com", "nr-data.net"),
        *("criteo.com", "criteo.net", "taboola.com", "outbrain.com", "adnxs.com"),
        *("mc.yandex.ru", "top-fwz1.mail.ru", "intercom.io", "adservice.google.com"),
    }
)
"""Hosts of analytics and advertising, with their subdomains."""


class Blocker:
    """Decides which requests of a page are blocked.

    `words` are resource types, hosts (`*.example.com` is everything below) and `trackers`.
    """

    def __init__(self, words: Iterable[str]) -> None:
        words = frozenset(words)
        self._types = words & RESOURCE_TYPES
        self._hosts = words - RESOURCE_TYPES - {TRACKERS}
        self._below = tuple(host[1:] for host in self._hosts if host.startswith("*."))
        self._trackers = _TRACKER_HOSTS if TRACKERS in words else frozenset()

    def blocks(self, url: str, resource_type: str) -> bool:
        """Return whether a request is blocked."""
        if resource_type in self._types:
            return True
        parts = urlsplit(url)
        return self._has_host(parts.netloc.lower()) or self._has_host(parts.hostname or "")

    def _has_host(self, host: str) -> bool:
        if host in self._hosts or host.endswith(self._below):
            return True
        labels = host.split(".")
        return any(".".join(labels[first:]) in self._trackers for first in range(len(labels)))


class PausableTimeouts:
    """The timeouts of one page; they pause while a request of the page waits for a rate limit."""

    def __init__(self) -> None:
        self._deadlines: list[asyncio.Timeout] = []
        self._left: dict[asyncio.Timeout, float] = {}
        self._waiting = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Pause all timeouts during the block."""
        self._waiting += 1
        if self._waiting == 1:
            self._pause()
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                now = asyncio.get_running_loop().time()
                for deadline, left in self._left.items():
                    deadline.reschedule(now + left)
                self._left.clear()

    @contextmanager
    def pausing(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Make an entered timeout pausable during the block."""
        self._deadlines.append(deadline)
        if self._waiting:
            self._pause()
        try:
            yield
        finally:
            self._deadlines.remove(deadline)
            self._left.pop(deadline, None)

    def _pause(self) -> None:
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            when = deadline.when()
            if when is None or deadline.expired():
                continue
            self._left[deadline] = when - now
            deadline.reschedule(None)


BeforeSubrequest = Callable[[str], Awaitable[Any]]
_TOO_MANY = 429
_DATA = frozenset({"xhr", "fetch"})
_ENDLESS = frozenset({"eventsource", "websocket", "ping", "media"})  # they do not count as activity
_POLL = 0.05  # seconds
_OWN_HEADERS = frozenset({"cookie", "user-agent", "host", "content-length", "accept-encoding"})
"""Headers that the browser sets itself."""


@dataclass(frozen=True, slots=True)
class TrafficRules:
    """The rules for the requests of every page."""

    blocker: Blocker
    before: BeforeSubrequest | None = None
    largest_body: int = 50_000_000


@dataclass(eq=False)  # no slots: the library sets attributes on listeners
class Traffic:
    """The requests of one page. `main` is the response of its last document."""

    page: Page
    rules: TrafficRules
    usage: Usage
    timeouts: PausableTimeouts
    headers: Mapping[str, str]
    permit: Permit | None = None
    main: Response | None = None
    failure: LonglineError | None = None
    """Why a request of the page was not sent; the page is incomplete without it."""
    documents: int = 0
    """The number of documents that the page has loaded."""
    failed: list[tuple[str, int | None]] = field(default_factory=list)
    """Failed requests of the page's own scripts, with their status; None without a response."""
    _is_under_way: bool = False
    _open: set[Request] = field(default_factory=set)
    _hops: list[str] = field(default_factory=list)
    _waits: set[asyncio.Future[Any]] = field(default_factory=set)

    async def watch(self) -> None:
        """Start to handle the page's requests."""
        self.page.on("request", self._on_request)
        self.page.on("requestfinished", self._on_finish)
        self.page.on("requestfailed", self._on_failure)
        self.page.on("response", self._on_response)
        await self.page.route("**/*", self._route)

    async def idle(self, seconds: float) -> None:
        """Return when no request was in flight for this many seconds."""
        quiet = 0.0
        while quiet < seconds:
            await asyncio.sleep(_POLL)
            quiet = 0.0 if self._open else quiet + _POLL

    async def settle(self) -> None:
        """Acquire slots for the redirects that the browser followed by itself."""
        while self._hops and self.failure is None:
            await self._acquire_slot(self._hops.pop())

    async def stop(self) -> None:
        """Cancel the waits of requests of the page."""
        for wait in self._waits:
            wait.cancel()
        with suppress(PlaywrightError):
            await self.page.unroute_all(behavior="ignoreErrors")

    def _on_request(self, request: Request) -> None:
        if request.resource_type not in _ENDLESS:
            self._open.add(request)
        if request.redirected_from is not None:
            # The browser follows these by itself.
            self.usage.requests += 1
            self._hops.append(request.url)

    def _on_finish(self, request: Request) -> None:
        self._open.discard(request)

    def _on_failure(self, request: Request) -> None:
        self._open.discard(request)
        reason = request.failure or ""
        # Blocked requests, and those that the page cancels, are not failures.
        is_wanted = "BLOCKED" not in reason and "ABORTED" not in reason
        if is_wanted and self._is_own(request):
            self.failed.append((request.url, None))

    def _is_own(self, request: Request) -> bool:
        """Whether a script of the page requested data from its own site."""
        if request.resource_type not in _DATA:
            return False
        return _site(request.url) == _site(self.page.url)

    def _on_response(self, response: Response) -> None:
        request = response.request
        if response.status >= FIRST_ERROR and self._is_own(request):
            self.failed.append((response.url, response.status))
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            self.main = response
            self.documents += 1
        elif response.status == _TOO_MANY:
            self.usage.rate_limited += 1

    async def _route(self, route: Route) -> None:
        request = route.request
        with suppress(PlaywrightError):  # the page may be closed meanwhile
            if not self._is_under_way and request.is_navigation_request():
                self._is_under_way = True  # its slot was acquired by the chain
                # The source's headers go to the page only, since its parts may be on any host.
                own = {name.lower(): value for name, value in self.headers.items()}
                own = {name: own[name] for name in own.keys() - _OWN_HEADERS}
                await route.continue_(headers={**request.headers, **own})
                return
            if (
                not self.rules.blocker.blocks(request.url, request.resource_type)
                and await self._is_permitted(request)
                and await self._acquire_slot(request.url)
            ):
                self.usage.requests += 1
                await route.continue_()
            else:
                await route.abort("blockedbyclient")

    async def _is_permitted(self, request: Request) -> bool:
        """Return whether the page may navigate to another document; its parts may load."""
        is_document = request.is_navigation_request() and request.frame == self.page.main_frame
        if self.permit is None or not is_document:
            return True
        try:
            with self.timeouts.waiting():
                await self.permit(request.url)
        except LonglineError as error:
            self.failure = self.failure or error
            return False
        return True

    async def _acquire_slot(self, url: str) -> bool:
        """Wait for the rate limit of a host; return False when the request must not be sent."""
        if self.rules.before is None:
            return True
        # The browser calls us in its own tasks, so this one has no task group; `stop` ends it.
        wait = asyncio.ensure_future(self.rules.before(url))
        self._waits.add(wait)
        try:
            with self.timeouts.waiting(), self.usage.waiting:
                await asyncio.wait({wait})
        finally:
            wait.cancel()
            self._waits.discard(wait)
        if wait.cancelled():
            return False
        error = wait.exception()
        if error is None:
            return True
        if isinstance(error, PrivateAddress):
            # Some pages request from this machine; they are shown without the response.
            self.usage.add_event("address.refused", url=url, address=error.address)
            return False
        if not isinstance(error, LonglineError):
            raise error
        self.failure = self.failure or error
        return False


def _site(url: str) -> str:
    """Return the common part of the hosts of one site, roughly: api.shop.test and shop.test."""
    host = urlsplit(url).hostname or ""
    return host if host.replace(".", "").isdigit() else ".".join(host.split(".")[-2:])
