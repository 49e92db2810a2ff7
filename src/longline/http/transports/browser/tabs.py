"""The tabs of one browser: so many pages at once, a new browser when the old one has died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page as Tab

from longline.config.patterns import user_pattern
from longline.core.clock import Clock
from longline.core.errors import ConnectFailed
from longline.core.model import Usage
from longline.http.errors import NeverReady, PrivateAddress, TimedOut
from longline.http.messages import Request
from longline.http.transports.browser.chromium import Chromium
from longline.http.transports.browser.deadlines import Patience
from longline.http.transports.browser.loading import Failures, Load, is_lost, problem_of
from longline.http.transports.browser.options import BrowserOptions
from longline.http.transports.browser.page import BrowserPage
from longline.http.transports.browser.traffic import BeforeSubrequest, Blocker, Rules, Traffic

KEPT = "browser.kept"
"""The kind of what is told when a failed page was kept."""


class Tabs:
    """Opens pages, as many at once as the options allow."""

    def __init__(
        self, options: BrowserOptions, clock: Clock, before: BeforeSubrequest | None
    ) -> None:
        spec = options.spec
        self._options = options
        self._clock = clock
        self._rules = Rules(
            Blocker(spec.block),
            tuple(user_pattern(one) for one in spec.capture),
            before,
            options.largest_body,
        )
        self._failures = Failures(options.failures, spec.screenshots, clock)
        self._free = asyncio.Semaphore(spec.tabs)
        self._starting = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._retired: list[Chromium] = []
        self._is_lost = False
        self.subrequests = 0

    async def open(self, request: Request, usage: Usage) -> BrowserPage:
        """Return the page at an address as the browser shows it.

        Raises:
            NoBrowser: there is no browser to start.
            FetchError: the page did not come.
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
                    self._is_lost = True  # it may take a moment to notice that itself
                raise problem_of(request.url, error) from None

    async def close(self) -> None:
        """End the browser."""
        async with self._starting:
            chromium, self._chromium = self._chromium, None
            for one in (chromium, *self._retired):
                if one is not None:
                    await one.close()
            self._retired.clear()

    @asynccontextmanager
    async def _browser(self, request: Request) -> AsyncIterator[Chromium]:
        """Give the browser that runs; one that was replaced meanwhile ends with its last page."""
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
        if self._chromium is not None and self._is_good(self._chromium):
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

    def _is_good(self, chromium: Chromium) -> bool:
        return chromium.is_alive and not self._is_lost and not chromium.is_worn

    async def _retire(self, chromium: Chromium) -> None:
        self._chromium = None
        if chromium.pages:
            self._retired.append(chromium)
        else:
            await chromium.close()

    async def _load(self, tab: Tab, request: Request, usage: Usage) -> BrowserPage:
        seconds = request.timeout or self._options.timeout
        if request.clicks is not None:  # each page has the time of one
            seconds *= request.clicks.skip + request.clicks.most
        patience = Patience()
        traffic = Traffic(tab, self._rules, usage, patience, request.headers, request.permit)
        load = Load(tab, request, traffic, self._options.spec.steps_for(request.url), self._clock)
        try:
            async with asyncio.timeout(seconds) as deadline:
                with patience.counting(deadline):
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
