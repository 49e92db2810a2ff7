"""The end of the chain for pages that need a browser: Chromium, driven by Playwright.

The library is an extra, so that only what is opened here imports it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from longline.core.clock import Clock
from longline.core.errors import MissingExtra
from longline.core.model import Usage
from longline.http.errors import BadAnswer
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.transports.browser.options import BrowserOptions, is_remote

_TOO_MANY = 429
_SCHEMES = ("http://", "https://")


class _Tabs(Protocol):
    """What opens pages."""

    subrequests: int

    async def open(self, request: Request, usage: Usage) -> Page:
        """Return a page as it is shown."""

    async def close(self) -> None:
        """End the browser."""


class BrowserTransport(Middleware):
    """Opens addresses in a browser, which is started with the first of them.

    A redirect of the page itself is an answer like any other: the chain follows it. What a page
    loads besides is counted in the account and, with `before_subrequest`, paced.

    Args:
        options: how.
        clock: to measure and pause by.
        before_subrequest: awaited with the address of each request that a page makes by itself;
            what it raises is why the page cannot be had.
    """

    def __init__(
        self,
        options: BrowserOptions,
        clock: Clock,
        before_subrequest: Callable[[str], Awaitable[Any]] | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._before = before_subrequest
        self._tabs: _Tabs | None = None

    @property
    def subrequests(self) -> int:
        """How many requests pages have made by themselves so far."""
        return self._tabs.subrequests if self._tabs else 0

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if request.method != "GET" or request.body is not None:
            raise BadAnswer(request.url, f"a browser opens pages with GET, not {request.method}")
        if not request.url.startswith(_SCHEMES):
            raise BadAnswer(request.url, "not an address that can be asked")
        if self._tabs is None:
            self._tabs = self._make()
        if self._options.addresses is not None and is_remote(self._options.chromium):
            await self._options.addresses.check_host(request.url)
        usage.requests += 1
        page = await self._tabs.open(request, usage)
        usage.received_bytes += len(page.body)
        usage.status = page.status
        usage.rate_limited += page.status == _TOO_MANY
        return page

    async def close(self) -> None:
        """End the browser and everything it started."""
        if self._tabs is not None:
            tabs, self._tabs = self._tabs, None
            await tabs.close()

    def _make(self) -> _Tabs:
        try:
            from longline.http.transports.browser.tabs import Tabs  # noqa: PLC0415  # an extra
        except ModuleNotFoundError as error:
            raise MissingExtra("browser", "opening pages in a browser") from error
        return Tabs(self._options, self._clock, self._before)
