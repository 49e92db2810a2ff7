"""Pages of a list that a click brings: the button is clicked, each page is kept as it is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urldefrag

from playwright.async_api import ElementHandle, Page
from playwright.async_api import Error as PlaywrightError

from longline.errors import ConnectFailed, NeverReady, bad_status
from longline.fetching.messages import Clicks
from longline.fetching.transports.browser_page import Clicked, Shown
from longline.fetching.transports.browser_steps import Stage
from longline.fetching.transports.browser_traffic import Traffic

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
