"""What is done with a page that has loaded: wait until it is ready, then act in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urldefrag

from playwright.async_api import ElementHandle, Page
from playwright.async_api import Error as PlaywrightError

from longline.core.clock import Clock
from longline.core.errors import ConnectFailed, bad_status
from longline.http.errors import NeverReady
from longline.http.messages import Clicks
from longline.http.messages import Page as HtmlPage
from longline.http.transports.browser.deadlines import Patience
from longline.http.transports.browser.manifest import (
    Action,
    Click,
    Fill,
    Press,
    Replacing,
    Scroll,
    Select,
    Steps,
    Wait,
    WaitFor,
    named,
)
from longline.http.transports.browser.page import HTML, Clicked, Shown
from longline.http.transports.browser.traffic import Traffic

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


# ---------------- Pages of a list that a click brings: the button is clicked, each page is kept

_MOST_BYTES = 10_000_000
"""Pages of one visit that are kept together; the rest is for the next visit."""
_CHANGE = 5.0  # seconds for a list to change once nothing is under way any more
_FIRST_BAD = 400
_GONE = frozenset({404, 410})
_IS_OFF = """button => button.disabled || button.getAttribute("aria-disabled") === "true"
    || [button, button.parentElement].some(one => one && one.classList.contains("disabled"))"""
# In a window of its own the next page would be of no use.
_STAY = """button => {
    const link = button.closest("a"); if (link) link.removeAttribute("target"); }"""
_SHOWN = """css => css
    ? [...document.querySelectorAll(css)].map(one => `${one.href || ""} ${one.outerHTML}`).join()
    : document.body.innerText"""
Prepare = Callable[[], Awaitable[None]]


class ClickThrough:
    """Clicks from page to page in one tab.

    Args:
        page: the browser's page, with the first page of the list.
        stage: what waits and acts on it.
        traffic: its requests.
        clicks: which button, how often.
        prepare: makes a document ready that a click has loaded.
        address: returns where the page is now, without secrets.
    """

    def __init__(
        self,
        page: Page,
        stage: Stage,
        traffic: Traffic,
        clicks: Clicks,
        *,
        prepare: Prepare,
        address: Callable[[], str],
    ) -> None:
        self._page = page
        self._stage = stage
        self._traffic = traffic
        self._clicks = clicks
        self._prepare = prepare
        self._address = address
        self._is_fresh = False  # whether the last click has loaded a document
        self._shown: list[Shown] = []
        self._bytes = 0

    async def run(self) -> Clicked:
        """Return the pages after the first `skip` ones, at most `most`, and why there are no more.

        Raises:
            BadStatus: a click led to an answer that says no.
            FetchError: a click led to no answer.
        """
        for number in range(self._clicks.skip + self._clicks.most):
            if number and (end := await self._advance()):
                return self._clicked(end, reached=number)
            if number >= self._clicks.skip:
                await self._keep()
            if self._bytes >= _MOST_BYTES:
                break
        button = await self._button()
        return self._clicked("more" if button else "last", reached=len(self._shown))

    def _clicked(self, end: str, *, reached: int) -> Clicked:
        if not self._shown and end in ("last", "same"):
            end = f"there were only {reached} pages this time"
        return Clicked(tuple(self._shown), end, self._has_address())

    def _has_address(self) -> bool:
        """Whether the page that is shown can be had again by its address alone."""
        answer = self._traffic.main
        if answer is None or not self._is_fresh or answer.request.method != "GET":
            return False
        return urldefrag(answer.url).url == urldefrag(self._page.url).url

    async def _keep(self) -> None:
        html = (await self._page.content()).encode(errors="replace")
        self._bytes += len(html)
        self._shown.append(Shown(self._address(), html.decode()))

    async def _advance(self) -> str | None:
        """Click once; return why that brought no other page, None when it did."""
        button = await self._button()
        if button is None:
            return "last"
        before, documents = await self._look(), self._traffic.documents
        self._traffic.failed.clear()
        try:
            await self._stage.click(button, self._clicks.button)
        except PlaywrightError as error:
            return f"the button could not be clicked: {error.message.splitlines()[0]}"
        except NeverReady as error:
            return f"{self._clicks.button} could not be clicked within {error.seconds:g} s"
        is_other = await self._changes(before)
        self._is_fresh = self._traffic.documents > documents
        if self._is_fresh:
            if problem := self._bad_document():
                return problem
            await self._prepare()
            is_other = await self._look() != before
        self._check_requests()
        return None if is_other else "same"

    async def _button(self) -> ElementHandle | None:
        """Return the button if there is one that can be clicked."""
        try:
            for button in await self._page.query_selector_all(self._clicks.button):
                if await button.is_visible():
                    return None if await button.evaluate(_IS_OFF) else await _staying(button)
        except PlaywrightError:
            return None  # it went away while it was looked at
        return None

    async def _changes(self, before: str) -> bool:
        """Wait until the list is another one and stays so; False when it does not change."""
        last = before
        clock = asyncio.get_running_loop()
        until = clock.time() + _CHANGE
        while True:
            await self._stage.quiet()
            now = await self._look()
            if now not in ("", before) and now == last:
                return True
            if clock.time() >= until:
                return now != before
            last = now

    async def _look(self) -> str:
        """Return what the list shows; nothing while another document is on its way."""
        try:
            found: Any = await self._page.evaluate(_SHOWN, self._clicks.watch)
        except PlaywrightError:
            if self._clicks.watch is None:
                return ""
            return await self._look_at_all()  # the selector may be none that a browser knows
        return str(found)

    async def _look_at_all(self) -> str:
        try:
            return str(await self._page.evaluate(_SHOWN, None))
        except PlaywrightError:
            return ""

    def _bad_document(self) -> str | None:
        answer = self._traffic.main
        if answer is None or answer.status < _FIRST_BAD:
            return None
        if answer.status in _GONE:
            return f"{answer.url} answered {answer.status}"
        raise bad_status(answer.url, answer.status)

    def _check_requests(self) -> None:
        """Raise the failure of a request that the list was waiting for.

        Without it, a list whose next page could not be had would look as if it had ended.
        """
        for url, status in self._traffic.failed:
            if status is None:
                raise ConnectFailed(url, "a request of the page failed")
            if status not in _GONE:  # an API may say in this way that there is no such page
                raise bad_status(url, status)


async def _staying(button: ElementHandle) -> ElementHandle:
    await button.evaluate(_STAY)
    return button
