"""The browser itself: started when it is needed, its contexts recycled, ended without a trace."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from playwright.async_api import Browser, BrowserContext, Page, Playwright, Route, async_playwright
from playwright.async_api import Error as PlaywrightError

from longline.clock import Clock
from longline.errors import PrivateAddress
from longline.fetching.addresses import hostname_of
from longline.fetching.transports.browser_options import BrowserOptions, find_chromium, is_remote
from longline.fetching.transports.browser_orphans import Note, sweep
from longline.fetching.transports.browser_proxy import BrowserProxy

_STARTING = 60.0  # seconds
_CLOSING = 10.0
_MOST_CONTEXTS = 10  # the library's own process grows, too; a new one begins small
_FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",  # /dev/shm is tiny in containers, and a full one crashes tabs
    "--disk-cache-size=1",  # intercepted requests are never cached; this keeps the profile small
)


@dataclass(slots=True)
class _Room:
    """One context: a browser as good as new, with cookies of its own."""

    context: BrowserContext
    opened_at: float
    pages: int = 0
    in_use: int = 0


class Chromium:
    """A running browser. `pages` open one tab each, in a context that is changed now and then."""

    def __init__(
        self,
        browser: Browser,
        options: BrowserOptions,
        clock: Clock,
        ends: AsyncExitStack,
        proxy: BrowserProxy | None = None,
    ) -> None:
        self._browser = browser
        self._proxy = proxy
        self._options = options
        self._clock = clock
        self._ends = ends
        self._room: _Room | None = None
        self._moving = asyncio.Lock()
        self._contexts = 0
        self.pages = 0
        """How many pages are open now."""

    @classmethod
    async def start(cls, options: BrowserOptions, clock: Clock) -> Chromium:
        """Start a browser, or connect to the one that was named.

        Raises:
            NoBrowser: there is none.
            PlaywrightError: it did not start.
            TimeoutError: the same.
        """
        async with AsyncExitStack() as ends, asyncio.timeout(_STARTING):
            proxy = None
            if options.addresses is not None and not is_remote(options.chromium):
                proxy = BrowserProxy(options.addresses)
                await proxy.start()
                ends.push_async_callback(proxy.close)
            playwright = await async_playwright().start()
            ends.push_async_callback(_patiently, playwright.stop)
            browser = await _browser(playwright, options, ends, proxy.flags if proxy else ())
            ends.push_async_callback(_patiently, browser.close)
            return cls(browser, options, clock, ends.pop_all(), proxy)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs and listens."""
        return self._browser.is_connected()

    @property
    def is_worn(self) -> bool:
        """Whether it has had so many contexts that a new browser should follow."""
        room = self._room
        return self._contexts >= _MOST_CONTEXTS and room is not None and self._is_full(room)

    def refusal(self, url: str) -> PrivateAddress | None:
        """Return why the browser may not connect to the host of an address; None when it may."""
        return self._proxy.refusal(hostname_of(url)) if self._proxy else None

    async def close(self) -> None:
        """End it, and whatever it started."""
        await self._ends.aclose()

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """Open a tab for the time of a block."""
        room = await self._enter()
        try:
            page = await room.context.new_page()
            try:
                yield page
            finally:
                await _patiently(page.close)
        finally:
            room.in_use -= 1
            await self._leave(room)

    async def _enter(self) -> _Room:
        async with self._moving:
            if self._room is None or self._is_full(self._room):
                full, self._room = self._room, await self._furnish()
                if full is not None:
                    await self._leave(full)
            self._room.pages += 1
            self._room.in_use += 1
            return self._room

    async def _leave(self, room: _Room) -> None:
        """Close a context that is no longer ours once nobody is in it."""
        if room is not self._room and room.in_use == 0:
            await _patiently(room.context.close)

    def _is_full(self, room: _Room) -> bool:
        spec = self._options.spec
        age = self._clock.now() - room.opened_at
        return room.pages >= spec.recycle_pages or age >= spec.recycle_seconds

    async def _furnish(self) -> _Room:
        context = await self._browser.new_context(
            user_agent=self._options.user_agent,
            locale=self._options.spec.locale,
            service_workers="block",  # what they fetch could be neither paced nor blocked
            accept_downloads=False,
        )
        context.set_default_timeout(0)  # every wait has a deadline of our own, which can pause
        # A tab routes its own requests; this is for windows that a page opens by itself.
        await context.route("**/*", _refuse)
        self._contexts += 1
        return _Room(context, self._clock.now())


async def _browser(
    playwright: Playwright,
    options: BrowserOptions,
    ends: AsyncExitStack,
    flags: tuple[str, ...] = (),
) -> Browser:
    if options.chromium is not None and is_remote(options.chromium):
        return await playwright.chromium.connect_over_cdp(options.chromium)
    await asyncio.to_thread(sweep, options.folder)
    note = Note(options.folder)
    ends.push_async_callback(asyncio.to_thread, note.remove)
    browser = await playwright.chromium.launch(
        executable_path=find_chromium(options.chromium),
        args=[*_FLAGS, *flags, note.argument],
        chromium_sandbox=os.geteuid() != 0,  # root cannot have one
        # The run decides when to end: at the first ctrl-c, pages under way are still finished.
        handle_sigint=False,
        handle_sigterm=False,
        handle_sighup=False,
    )
    await asyncio.to_thread(note.note_profile)
    return browser


async def _refuse(route: Route) -> None:
    with contextlib.suppress(PlaywrightError):
        await route.abort("blockedbyclient")


async def _patiently(close: Callable[[], Awaitable[None]]) -> None:
    """Close something that may be broken already; what does not close ends with the browser."""
    with contextlib.suppress(PlaywrightError, TimeoutError):
        async with asyncio.timeout(_CLOSING):
            await close()
