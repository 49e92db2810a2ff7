"""The tabs of one browser: a limited number of pages, and a new browser after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as Tab

from longline.config.expressions import user_pattern
from longline.core.clock import Clock
from longline.core.errors import ConnectFailed
from longline.core.model import Usage
from longline.http.errors import NeverReady, PrivateAddress, TimedOut
from longline.http.messages import Request
from longline.http.transports.browser.chromium import Chromium
from longline.http.transports.browser.loading import (
    FailedPages,
    Load,
    is_lost,
    translate_browser_error,
)
from longline.http.transports.browser.options import BrowserOptions
from longline.http.transports.browser.page import BrowserPage
from longline.http.transports.browser.traffic import (
    BeforeSubrequest,
    Blocker,
    PausableTimeouts,
    Traffic,
    TrafficRules,
)

KEPT = "browser.kept"
"""The event when a failed page was kept."""


class Tabs:
    """Opens pages, as many concurrently as the options allow."""

    def __init__(
        self, options: BrowserOptions, clock: Clock, before: BeforeSubrequest | None
    ) -> None:
        spec = options.spec
        self._options = options
        self._clock = clock
        self._rules = TrafficRules(
            Blocker(spec.block),
            tuple(user_pattern(one) for one in spec.capture),
            before,
            options.largest_body,
        )
        self._failures = FailedPages(options.failures, spec.screenshots, clock)
        self._free = asyncio.Semaphore(spec.tabs)
        self._starting = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._retired: list[Chromium] = []
        self._is_lost = False
        self.subrequests = 0

    async def open(self, request: Request, usage: Usage) -> BrowserPage:
        """Return the rendered page of a URL.

        Raises:
            NoBrowser: there is no browser to start.
            FetchError: the page could not be loaded.
        """
        async with usage.waiting.to_enter(self._free), self._browser(request) as chromium:
            try:
                async with chromium.page() as tab:
                    return await self._load(tab, request, usage)
            except ConnectFailed as error:
                if (refusal := chromium.refusal(request.url)) is not None:
                    raise PrivateAddress(request.url, refusal.address) from error
                raise
            except PlaywrightError as error:
                if is_lost(error) and chromium is self._chromium:
                    self._is_lost = True  # it may notice that later
                raise translate_browser_error(request.url, error) from None

    async def close(self) -> None:
        """Close the browser."""
        async with self._starting:
            chromium, self._chromium = self._chromium, None
            for one in (chromium, *self._retired):
                if one is not None:
                    await one.close()
            self._retired.clear()

    @asynccontextmanager
    async def _browser(self, request: Request) -> AsyncIterator[Chromium]:
        """Yield the running browser; a replaced one is closed with its last page."""
        async with self._starting:
            chromium = await self._running(request)
            chromium.pages += 1
        try:
            yield chromium
        finally:
            chromium.pages -= 1
            if chromium in self._retired and chromium.pages == 0:
                self._retired.remove(chromium)
                await chromium.close()

    async def _running(self, request: Request) -> Chromium:
        if self._chromium is not None and self._is_usable(self._chromium):
            return self._chromium
        if self._chromium is not None:
            await self._retire(self._chromium)
        try:
            self._chromium = await Chromium.start(self._options, self._clock)
        except (PlaywrightError, TimeoutError, OSError) as error:
            words = (str(error) or type(error).__name__).splitlines()[0]
            raise ConnectFailed(request.url, f"the browser did not start: {words}") from None
        self._is_lost = False
        return self._chromium

    def _is_usable(self, chromium: Chromium) -> bool:
        return chromium.is_alive and not self._is_lost and not chromium.is_worn

    async def _retire(self, chromium: Chromium) -> None:
        self._chromium = None
        if chromium.pages:
            self._retired.append(chromium)
        else:
            await chromium.close()

    async def _load(self, tab: Tab, request: Request, usage: Usage) -> BrowserPage:
        seconds = request.timeout or self._options.timeout
        if request.clicks is not None:  # each page has its own timeout
            seconds *= request.clicks.skip + request.clicks.most
        timeouts = PausableTimeouts()
        traffic = Traffic(tab, self._rules, usage, timeouts, request.headers, request.permit)
        load = Load(tab, request, traffic, self._options.spec.steps_for(request.url), self._clock)
        try:
            async with asyncio.timeout(seconds) as deadline:
                with timeouts.pausing(deadline):
                    return await load.run()
        except TimeoutError:
            await self._keep(tab, request, usage)
            raise TimedOut(request.url, seconds) from None
        except NeverReady:
            await self._keep(tab, request, usage)
            raise
        finally:
            self.subrequests += traffic.subrequests
            await traffic.stop()
            if not self._options.keeps_cookies:
                with suppress(PlaywrightError):
                    await tab.context.clear_cookies()

    async def _keep(self, tab: Tab, request: Request, usage: Usage) -> None:
        kept = await self._failures.keep(tab, request.url)
        if kept is not None:
            usage.add_event(KEPT, url=request.url, file=f"{kept}.html")
