"""Load one page in the browser: navigate, wait, perform actions, and read it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from multidict import CIMultiDict, CIMultiDictProxy
from playwright.async_api import CDPSession, ElementHandle, Page, Response
from playwright.async_api import Error as PlaywrightError
from yarl import URL

from longline.core.clock import Clock, utc_datetime
from longline.core.errors import BadStatus, ConnectFailed, FetchError, bad_status
from longline.core.files import make_private_file, make_private_folder
from longline.core.model import CUT
from longline.http.browser.manifest import (
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
    action_text,
)
from longline.http.browser.traffic import PausableTimeouts, Traffic
from longline.http.browser.transport import (
    HTML,
    BrowserPage,
    Clicked,
    Shown,
    with_captured,
    with_clicked,
)
from longline.http.errors import BadAnswer, BadCertificate, NeverReady
from longline.http.messages import (
    Clicks,
    Request,
    with_query,
    without_userinfo,
    without_userinfo_in,
)
from longline.http.messages import Page as HtmlPage

# ---------------- Steps on a loaded page

Idle = Callable[[float], Awaitable[None]]
_QUIET = 0.5  # seconds without a request under way
_ACTION = 10.0  # seconds for an element to appear
_GLANCE = 1.0  # seconds that an optional element is given
_SETTLING = 5.0  # seconds that a page may take to become quiet, when nobody said what to wait for
_HEIGHT = "document.scrollingElement ? document.scrollingElement.scrollHeight : 0"
_TO_THE_END = f"window.scrollTo(0, {_HEIGHT})"
_DOWN = "window.scrollBy(0, window.innerHeight)"


class Stage:
    """Performs steps on one page.

    Args:
        page: the browser's page.
        url: its requested URL, for errors.
        clock: the clock.
        timeouts: the page's timeouts.
        idle: returns when no request was in flight for this many seconds.
    """

    def __init__(
        self, page: Any, url: str, *, clock: Clock, timeouts: PausableTimeouts, idle: Idle
    ) -> None:
        self._page = page
        self._url = url
        self._clock = clock
        self._timeouts = timeouts
        self._idle = idle
        self.before: HtmlPage | None = None
        """The page before the actions, or after the last replacing one."""
        self.led_away: str | None = None
        """The first action that unexpectedly led to another URL."""
        self.cuts: list[str] = []
        """Actions that reached their limit while the page had more to show."""

    async def run(self, steps: Steps) -> None:
        """Wait, then perform the actions.

        Raises:
            NeverReady: the awaited condition did not occur.
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
                self.led_away = self.led_away or action_text(action)

    async def _now(self) -> HtmlPage | None:
        try:
            html: str = await self._page.content()
        except PlaywrightError:
            return None  # the page is navigating
        return HtmlPage(self._page.url, 200, {"content-type": HTML}, html.encode(errors="replace"))

    async def click(self, button: Any, name: str) -> None:
        """Click an element and wait until the page is idle.

        Raises:
            NeverReady: it cannot be clicked.
        """
        async with self._within(_ACTION, name):
            await button.click(timeout=0)
        await self.quiet()

    async def _wait(self, wait: Wait) -> None:
        if wait.selector:
            async with self._within(wait.timeout, wait.selector):
                await self._page.wait_for_selector(wait.selector, state="attached", timeout=0)
        if wait.script:
            async with self._within(wait.timeout, "the condition of the script"):
                await self._page.wait_for_function(wait.script, timeout=0)
        if wait.idle:
            async with self._within(wait.timeout, "network idle"):
                await self._idle(_QUIET)

    async def _settle(self) -> None:
        try:
            async with self._within(_SETTLING, "network idle"):
                await self._page.wait_for_load_state("load", timeout=0)
                await self._idle(_QUIET)
        except NeverReady:
            return  # not requested: a page that is never idle is taken as it is

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
                    # Plain text is the value or the label.
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
        """Wait until the page is idle, if it becomes so."""
        try:
            async with self._within(_ACTION, "network idle"):
                await self._idle(_QUIET / 2)
        except NeverReady:
            return

    @asynccontextmanager
    async def _within(self, seconds: float, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds) as deadline:
                with self._timeouts.pausing(deadline):
                    yield
        except TimeoutError:
            raise NeverReady(self._url, what, seconds) from None


def _without_fragment(url: str) -> str:
    return urldefrag(url).url


# ---------------- Lists whose next page is loaded by a button

_MOST_BYTES = 10_000_000
"""Bytes of pages that are kept in one visit; the rest is for the next visit."""
_CHANGE = 5.0  # seconds for a list to change once the page is idle
_FIRST_BAD = 400
_GONE = frozenset({404, 410})
_IS_OFF = """button => button.disabled || button.getAttribute("aria-disabled") === "true"
    || [button, button.parentElement].some(one => one && one.classList.contains("disabled"))"""
# In a new window the next page would be lost.
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
        stage: performs steps on it.
        traffic: its requests.
        clicks: which button, how often.
        prepare: performs the steps of a document that a click has loaded.
        address: returns the current URL, without secrets.
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
            BadStatus: a click led to an error status.
            FetchError: a click led to no response.
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
        """Whether the current page can be opened again by its URL."""
        answer = self._traffic.main
        if answer is None or not self._is_fresh or answer.request.method != "GET":
            return False
        return urldefrag(answer.url).url == urldefrag(self._page.url).url

    async def _keep(self) -> None:
        html = (await self._page.content()).encode(errors="replace")
        self._bytes += len(html)
        self._shown.append(Shown(self._address(), html.decode()))

    async def _advance(self) -> str | None:
        """Click once; return why there is no other page, None when there is."""
        button = await self._button()
        if button is None:
            return "last"
        before, documents = await self._list_content(), self._traffic.documents
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
            is_other = await self._list_content() != before
        self._check_requests()
        return None if is_other else "same"

    async def _button(self) -> ElementHandle | None:
        """Return the button if it can be clicked."""
        try:
            for button in await self._page.query_selector_all(self._clicks.button):
                if await button.is_visible():
                    return None if await button.evaluate(_IS_OFF) else await _without_target(button)
        except PlaywrightError:
            return None  # it was removed meanwhile
        return None

    async def _changes(self, before: str) -> bool:
        """Wait until the list has changed and is stable; return False when it does not change."""
        last = before
        clock = asyncio.get_running_loop()
        until = clock.time() + _CHANGE
        while True:
            await self._stage.quiet()
            now = await self._list_content()
            if now not in ("", before) and now == last:
                return True
            if clock.time() >= until:
                return now != before
            last = now

    async def _list_content(self) -> str:
        """Return the content of the list; empty during a navigation."""
        try:
            found: Any = await self._page.evaluate(_SHOWN, self._clicks.watch)
        except PlaywrightError:
            if self._clicks.watch is None:
                return ""
            return await self._page_content()  # the browser may not support the selector
        return str(found)

    async def _page_content(self) -> str:
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
        """Raise the failure of a request of the list.

        Otherwise a list whose next page failed would look complete.
        """
        for url, status in self._traffic.failed:
            if status is None:
                raise ConnectFailed(url, "a request of the page failed")
            if status not in _GONE:  # an API may end a list like this
                raise bad_status(url, status)


async def _without_target(button: ElementHandle) -> ElementHandle:
    await button.evaluate(_STAY)
    return button


# ---------------- Redirects of the page itself are returned to the chain, which checks each hop

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PAGES_ANSWER = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Response"}


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect response."""

    status: int
    headers: CIMultiDict[str]


class RedirectStop:
    """Stops a page at its first redirect; later ones, of forms and scripts, are followed."""

    def __init__(self, session: CDPSession, frame: str) -> None:
        self._session = session
        self._frame = frame
        self._is_looking = True
        self.found: Redirect | None = None

    @classmethod
    async def watch(cls, page: Page) -> RedirectStop:
        """Start to inspect the responses of a page's documents."""
        session = await page.context.new_cdp_session(page)
        tree = await session.send("Page.getFrameTree")
        hops = cls(session, tree["frameTree"]["frame"]["id"])
        session.on("Fetch.requestPaused", hops._paused)
        await session.send("Fetch.enable", {"patterns": [_PAGES_ANSWER]})
        return hops

    async def stop(self) -> None:
        """Stop inspecting."""
        self._is_looking = False
        with suppress(PlaywrightError):
            await self._session.send("Fetch.disable")

    async def _paused(self, event: dict[str, Any]) -> None:
        with suppress(PlaywrightError):  # the page may be closed
            await self._judge(event)

    async def _judge(self, event: dict[str, Any]) -> None:
        status = event.get("responseStatusCode", 0)
        # A failed connection has neither.
        headers = CIMultiDict(
            (one["name"], one["value"]) for one in event.get("responseHeaders", ())
        )
        is_hop = status in _REDIRECTS and "location" in headers
        if self._is_looking and is_hop and event["frameId"] == self._frame:
            self.found = Redirect(status, headers)
            order, more = "Fetch.failRequest", {"errorReason": "Aborted"}
        else:
            order, more = "Fetch.continueRequest", {}
        await self._session.send(order, {"requestId": event["requestId"], **more})


_EMPTY = frozenset({204, 205})
_CODE = re.compile(r"net::(ERR_[A-Z_0-9]+)")
_NO_ADDRESS = frozenset({"ERR_INVALID_URL", "ERR_UNKNOWN_URL_SCHEME", "ERR_DISALLOWED_URL_SCHEME"})
_OF_THE_OLD_BODY = ("content-encoding", "content-length", "transfer-encoding", "etag", "digest")
"""Headers that do not apply to a rendered body."""


@dataclass(frozen=True, slots=True)
class Load:
    """One request for a page, in a tab of its own."""

    page: Page
    request: Request
    traffic: Traffic
    steps: Steps
    clock: Clock

    async def run(self) -> BrowserPage:
        """Return the rendered page.

        Raises:
            FetchError: it could not be loaded, or never became ready.
        """
        started = self.clock.now()
        await self._set_cookies()
        await self.traffic.watch()
        hops = await RedirectStop.watch(self.page)
        try:
            await self.page.goto(
                with_query(self.request.url, self.request.hidden), wait_until="domcontentloaded"
            )
        except PlaywrightError as error:
            if hops.found is not None:
                found = hops.found
                headers = without_userinfo_in(CIMultiDictProxy(found.headers))
                return BrowserPage(self.request.url, found.status, headers, b"")
            return await self._empty_page(error)
        await hops.stop()
        stage = Stage(
            self.page,
            self.request.url,
            clock=self.clock,
            timeouts=self.traffic.timeouts,
            idle=self.traffic.idle,
        )
        await self._act(stage)
        for cut in dict.fromkeys(stage.cuts):
            self.traffic.usage.add_event(
                CUT, reason=f"{self.request.url} was not shown whole: {cut}"
            )
        # A click may navigate: the response is that of the requested page.
        answer, address = self.traffic.main, self._address()
        try:
            clicked = await self._click_through(stage)
        except BadStatus as error:  # the chain handles it
            return BrowserPage(error.url, error.status, CIMultiDict(), b"")
        page = await self._read(answer, stage, clicked)
        return replace(page, url=address, seconds=self.clock.now() - started)

    async def _click_through(self, stage: Stage) -> Clicked | None:
        clicks = self.request.clicks
        if clicks is None:
            return None
        try:
            clicked = await ClickThrough(
                self.page,
                stage,
                self.traffic,
                clicks,
                prepare=lambda: self._act(stage),
                address=self._address,
            ).run()
            await self.traffic.settle()
        except FetchError as error:
            raise self.traffic.failure or error from None
        if self.traffic.failure is not None:
            raise self.traffic.failure
        return clicked

    async def _act(self, stage: Stage) -> None:
        try:
            await stage.run(self.steps)
            await self.traffic.settle()
        except FetchError as error:
            # The cause is the part of the page that could not be loaded.
            raise self.traffic.failure or error from None
        if self.traffic.failure is not None:
            raise self.traffic.failure

    async def _read(
        self, answer: Response | None, stage: Stage, clicked: Clicked | None
    ) -> BrowserPage:
        if answer is None:
            raise BadAnswer(self.request.url, "the browser shows a page without a response")
        headers = await _headers(answer)
        captured = await self.traffic.captured()
        if _is_html(headers):
            html = with_captured(await self.page.content(), captured)
            body = (html if clicked is None else with_clicked(html, clicked)).encode(
                errors="replace"
            )
            for name in _OF_THE_OLD_BODY:
                headers.popall(name, None)
            headers["content-type"] = HTML
        else:
            body = await answer.body()
        self._check_size(body)
        return BrowserPage(
            self.request.url,
            answer.status,
            headers,
            body,
            captured=captured,
            before=stage.before,
            led_away=stage.led_away,
            clicked=clicked,
        )

    def _check_size(self, body: bytes) -> None:
        limit = self.traffic.rules.largest_body
        if len(body) > limit:
            raise BadAnswer(self.request.url, f"its body is larger than {limit} bytes once shown")

    async def _empty_page(self, error: PlaywrightError) -> BrowserPage:
        """Return a response without a body, which a browser does not render."""
        answer = self.traffic.main
        if answer is not None and (answer.status >= _FIRST_BAD or answer.status in _EMPTY):
            return BrowserPage(self.request.url, answer.status, await _headers(answer), b"")
        if answer is not None and "Download" in error.message:
            raise BadAnswer(self.request.url, "it is a download, not a page") from None
        raise translate_browser_error(self.request.url, error) from None

    async def _set_cookies(self) -> None:
        """Pass the cookies of the chain to the browser."""
        lines = [v for name, v in self.request.headers.items() if name.lower() == "cookie"]
        pairs = [one.strip().partition("=") for line in lines for one in line.split(";")]
        # All get the path of this URL: of one name the first, most specific, counts.
        values = {name: value for name, _, value in reversed(pairs)}
        cookies: list[Any] = [
            {"name": name, "value": value, "url": self.request.url}
            for name, value in reversed(values.items())
        ]
        if cookies:
            await self.page.context.add_cookies(cookies)

    def _address(self) -> str:
        """Return the current URL, without hidden parameters."""
        url = without_userinfo(self.page.url)
        if url == with_query(self.request.url, self.request.hidden):
            return self.request.url
        return (
            str(URL(url).without_query_params(*self.request.hidden)) if self.request.hidden else url
        )


def translate_browser_error(url: str, error: PlaywrightError) -> FetchError:
    """Return longline's error for one of Playwright, whose text may contain secrets."""
    found = _CODE.search(error.message)
    code = found[1] if found else ""
    if code in _NO_ADDRESS or "invalid URL" in error.message:
        return BadAnswer(url, "not a valid URL")
    if code.startswith("ERR_CERT_"):
        return BadCertificate(url, code.removeprefix("ERR_").replace("_", " ").lower())
    if code:
        return ConnectFailed(url, code.removeprefix("ERR_").replace("_", " ").lower())
    if is_lost(error):
        return ConnectFailed(url, "the browser crashed")
    first = error.message.splitlines()[0] if error.message else type(error).__name__
    return ConnectFailed(url, f"the browser failed: {first.partition(' at http')[0][:200]}")


def is_lost(error: PlaywrightError) -> bool:
    """Return whether an error means that the browser has ended."""
    return "has been closed" in error.message or "crashed" in error.message


async def _headers(answer: Response) -> CIMultiDict[str]:
    return CIMultiDict((one["name"], one["value"]) for one in await answer.headers_array())


def _is_html(headers: Mapping[str, str]) -> bool:
    kind = headers.get("content-type", "text/html").partition(";")[0].strip().lower()
    return kind in {"", "text/html", "application/xhtml+xml"}


# ---------------- Failed pages, kept as screenshot and HTML

_LONGEST = 5.0  # seconds; a page that hangs may not render
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_MOST_LETTERS = 60


class FailedPages:
    """A folder with the latest failed pages, up to a number."""

    def __init__(self, folder: Path | None, most: int, clock: Clock) -> None:
        self._folder = folder if most else None
        self._most = most
        self._clock = clock

    async def keep(self, page: Page, url: str) -> Path | None:
        """Keep a page as it is now; return the path without its suffix, None if that failed."""
        if self._folder is None:
            return None
        make_private_folder(self._folder)
        stem = self._folder / self._name(url)
        with suppress(PlaywrightError, TimeoutError, OSError):
            async with asyncio.timeout(_LONGEST):
                html = await page.content()
                for ending in (".html", ".png"):
                    make_private_file(stem.with_suffix(ending))
                stem.with_suffix(".html").write_text(html, "utf-8")
                await page.screenshot(path=stem.with_suffix(".png"), timeout=0)
        self._forget_old(self._folder)
        return stem if stem.with_suffix(".html").exists() else None

    def _name(self, url: str) -> str:
        when = utc_datetime(self._clock.now()).strftime("%Y%m%dT%H%M%S%f")
        address = _UNSAFE.sub("-", url.partition("://")[2].partition("?")[0])
        return f"{when}-{address[:_MOST_LETTERS].strip('-')}"

    def _forget_old(self, folder: Path) -> None:
        pages = sorted(folder.glob("*.html"))
        for old in pages[: max(0, len(pages) - self._most)]:
            old.unlink(missing_ok=True)
            old.with_suffix(".png").unlink(missing_ok=True)
