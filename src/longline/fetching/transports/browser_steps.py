"""What is done with a page that has loaded: wait until it is ready, then act in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urldefrag

from playwright.async_api import Error as PlaywrightError

from longline.clock import Clock
from longline.config.manifests.browser import Steps, Wait
from longline.config.manifests.browser_actions import (
    Action,
    Click,
    Fill,
    Press,
    Replacing,
    Scroll,
    Select,
    WaitFor,
    named,
)
from longline.errors import NeverReady
from longline.fetching.messages import Page as HtmlPage
from longline.fetching.transports.browser_page import HTML
from longline.fetching.transports.browser_patience import Patience

Idle = Callable[[float], Awaitable[None]]
_QUIET = 0.5  # seconds without a request under way
_ACTION = 10.0  # seconds for an element to appear
_GLANCE = 1.0  # seconds that an optional element is given
_SETTLING = 5.0  # seconds that a page may take to become quiet, when nobody said what to wait for
_HEIGHT = "document.scrollingElement ? document.scrollingElement.scrollHeight : 0"
_TO_THE_END = f"window.scrollTo(0, {_HEIGHT})"
_DOWN = "window.scrollBy(0, window.innerHeight)"


class Stage:
    """One page and what may be done with it.

    Args:
        page: the browser's page.
        url: where it was asked for, for errors.
        clock: to pause by.
        patience: the page's deadlines.
        idle: returns when no request was under way for so many seconds.
    """

    def __init__(
        self, page: Any, url: str, *, clock: Clock, patience: Patience, idle: Idle
    ) -> None:
        self._page = page
        self._url = url
        self._clock = clock
        self._patience = patience
        self._idle = idle
        self.before: HtmlPage | None = None
        """The page that the actions began with, or that the last one was meant to show."""
        self.led_away: str | None = None
        """The first action that led to another address without being meant to."""
        self.cuts: list[str] = []
        """Actions that reached their limit while the page still had more to show."""

    async def run(self, steps: Steps) -> None:
        """Wait, then act.

        Raises:
            NeverReady: what was waited for did not come.
        """
        if steps.wait is None:
            await self._settle()
        else:
            await self._wait(steps.wait)
        is_form = False
        for action in steps.actions:
            if isinstance(action, WaitFor):
                await self._act(action)
                continue
            if self.before is None:
                self.before = await self._now()
            url = self._page.url
            await self._act(action)
            is_form = is_form or isinstance(action, Fill | Select)
            if isinstance(action, Replacing) and action.replaces:
                self.before = await self._now()
            elif not is_form and _without_fragment(self._page.url) != _without_fragment(url):
                self.led_away = self.led_away or named(action)

    async def _now(self) -> HtmlPage | None:
        try:
            html: str = await self._page.content()
        except PlaywrightError:
            return None  # the page is on its way to another address
        return HtmlPage(self._page.url, 200, {"content-type": HTML}, html.encode(errors="replace"))

    async def click(self, button: Any, name: str) -> None:
        """Click on an element and let what that begins come to its end.

        Raises:
            NeverReady: something is in its way.
        """
        async with self._within(_ACTION, name):
            await button.click(timeout=0)
        await self.quiet()

    async def _wait(self, wait: Wait) -> None:
        if wait.selector:
            async with self._within(wait.timeout, wait.selector):
                await self._page.wait_for_selector(wait.selector, state="attached", timeout=0)
        if wait.script:
            async with self._within(wait.timeout, "what the script waits for"):
                await self._page.wait_for_function(wait.script, timeout=0)
        if wait.idle:
            async with self._within(wait.timeout, "silence"):
                await self._idle(_QUIET)

    async def _settle(self) -> None:
        try:
            async with self._within(_SETTLING, "silence"):
                await self._page.wait_for_load_state("load", timeout=0)
                await self._idle(_QUIET)
        except NeverReady:
            return  # nobody asked for silence: a page that never is quiet is taken as it is

    async def _act(self, action: Action) -> None:
        match action:
            case Click():
                await self._click(action)
            case Fill(fill=selector, value=value):
                async with self._within(_ACTION, selector):
                    await self._page.fill(selector, value, timeout=0)
            case Press(press=key, at=selector):
                await self._press(key, selector)
            case Select(select=selector, value=value):
                async with self._within(_ACTION, f"{value!r} in {selector}"):
                    # Plain text means the value or what is shown, whichever fits.
                    await self._page.select_option(selector, value, timeout=0)
            case Scroll():
                await self._scroll(action)
            case WaitFor(wait=str(selector)):
                async with self._within(_ACTION, selector):
                    await self._page.wait_for_selector(selector, state="attached", timeout=0)
            case WaitFor(wait=seconds):
                await self._clock.sleep(float(seconds))

    async def _click(self, action: Click) -> None:
        seconds = _GLANCE if action.optional else _ACTION
        try:
            async with self._within(seconds, action.click):
                await self._page.click(action.click, timeout=0)
        except NeverReady:
            if action.optional:
                return
            raise
        for _ in range(action.repeat - 1):
            await self.quiet()
            if not await self._page.is_visible(action.click):
                return
            async with self._within(_ACTION, action.click):
                await self._page.click(action.click, timeout=0)
        await self.quiet()
        if action.repeat > 1 and await self._page.is_visible(action.click):
            self.cuts.append(f"{action.click} is still there after {action.repeat} clicks (repeat)")

    async def _press(self, key: str, selector: str | None) -> None:
        async with self._within(_ACTION, selector or "the keyboard"):
            if selector:
                await self._page.press(selector, key, timeout=0)
            else:
                await self._page.keyboard.press(key)
        await self.quiet()

    async def _scroll(self, action: Scroll) -> None:
        if action.scroll != "end":
            for _ in range(action.scroll):
                await self._page.evaluate(_DOWN)
                await self.quiet()
            return
        height = -1
        for _ in range(action.most):
            await self._page.evaluate(_TO_THE_END)
            await self.quiet()
            grown = await self._page.evaluate(_HEIGHT)
            if grown <= height:
                return
            height = grown
        if action.most > 1:
            self.cuts.append(f"it still grew after it was scrolled {action.most} times (most)")

    async def quiet(self) -> None:
        """Let what an action began come to its end, as far as it does."""
        try:
            async with self._within(_ACTION, "silence"):
                await self._idle(_QUIET / 2)
        except NeverReady:
            return

    @asynccontextmanager
    async def _within(self, seconds: float, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds) as deadline:
                with self._patience.counting(deadline):
                    yield
        except TimeoutError:
            raise NeverReady(self._url, what, seconds) from None


def _without_fragment(url: str) -> str:
    return urldefrag(url).url
