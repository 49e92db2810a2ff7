"""Load one page in the browser: navigate, wait, perform actions, and read it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
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
from longline.http.browser.traffic import Traffic
from longline.http.browser.transport import HTML, BrowserPage, Clicked, Shown, with_clicked
from longline.http.errors import BadAnswer, BadCertificate, NeverReady
from longline.http.messages import (
    FIRST_ERROR,
    Capture,
    Clicks,
    Request,
    with_query,
    without_userinfo,
    without_userinfo_in,
)
from longline.http.messages import Page as HtmlPage
from longline.http.middleware.status import REDIRECTS

# ---------------- Steps on a loaded page

_QUIET = 0.5  # seconds without a request in flight
_ACTION = 10.0  # seconds for an element to appear
_OPTIONAL = 1.0  # seconds for an optional element to appear
_SETTLING = 5.0  # seconds for a page without a `wait` to become idle
_HEIGHT = "document.scrollingElement ? document.scrollingElement.scrollHeight : 0"
_TO_THE_END = f"window.scrollTo(0, {_HEIGHT})"
_DOWN = "window.scrollBy(0, window.innerHeight)"


class Stage:
    """Performs steps on one page; `url` is its requested URL, for errors."""

    def __init__(self, page: Page, url: str, traffic: Traffic, clock: Clock) -> None:
        self._page = page
        self._url = url
        self._traffic = traffic
        self._clock = clock
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
            with suppress(NeverReady):  # a page that is never idle is read as it is
                async with self._within(_SETTLING, "network idle"):
                    await self._page.wait_for_load_state("load", timeout=0)
                    await self._traffic.idle(_QUIET)
        else:
            await self._wait_until_ready(steps.wait)
        is_form = False
        for action in steps.actions:
            if isinstance(action, WaitFor):
                await self._act(action)
                continue
            if self.before is None:
                self.before = await self._snapshot()
            url = self._page.url
            await self._act(action)
            is_form = is_form or isinstance(action, Fill | Select)
            if isinstance(action, Replacing) and action.replaces:
                self.before = await self._snapshot()
            elif not is_form and urldefrag(self._page.url).url != urldefrag(url).url:
                self.led_away = self.led_away or action_text(action)

    async def _snapshot(self) -> HtmlPage | None:
        try:
            html = await self._page.content()
        except PlaywrightError:
            return None  # the page is navigating
        return HtmlPage(self._page.url, 200, {"content-type": HTML}, html.encode(errors="replace"))

    async def _wait_until_ready(self, wait: Wait) -> None:
        if wait.selector:
            await self._wait_for_element(wait.selector, wait.timeout)
        if wait.script:
            async with self._within(wait.timeout, "the condition of the script"):
                await self._page.wait_for_function(_repeatable(wait.script), timeout=0)
        if wait.idle:
            async with self._within(wait.timeout, "network idle"):
                await self._traffic.idle(_QUIET)

    async def _wait_for_element(self, selector: str, seconds: float) -> None:
        async with self._within(seconds, selector):
            await self._page.wait_for_selector(selector, state="attached", timeout=0)

    async def _act(self, action: Action) -> None:
        match action:
            case Click():
                await self._click(action)
            case Fill(fill=selector, value=value):
                async with self._within(_ACTION, selector):
                    await self._page.fill(selector, value, timeout=0)
            case Press(press=key, at=None):
                await self._page.keyboard.press(key)
                await self.quiet()
            case Press(press=key, at=str(selector)):
                async with self._within(_ACTION, selector):
                    await self._page.press(selector, key, timeout=0)
                await self.quiet()
            case Select(select=selector, value=value):
                async with self._within(_ACTION, f"{value!r} in {selector}"):
                    # Plain text is the value or the label.
                    await self._page.select_option(selector, value, timeout=0)
            case Scroll():
                await self._scroll(action)
            case WaitFor(wait=str(selector)):
                await self._wait_for_element(selector, _ACTION)
            case WaitFor(wait=seconds):
                await self._clock.sleep(float(seconds))

    async def _click(self, action: Click) -> None:
        try:
            async with self._within(_OPTIONAL if action.optional else _ACTION, action.click):
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
            self.cuts.append(
                f"the page still grew after it was scrolled {action.most} times (most)"
            )

    async def click(self, button: ElementHandle, name: str) -> None:
        """Click an element and wait until the page is idle.

        Raises:
            NeverReady: it cannot be clicked.
        """
        async with self._within(_ACTION, name):
            await button.click(timeout=0)
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until the page is idle, if it becomes so."""
        with suppress(NeverReady):
            async with self._within(_ACTION, "network idle"):
                await self._traffic.idle(_QUIET / 2)

    @asynccontextmanager
    async def _within(self, seconds: float, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds) as deadline:
                with self._traffic.timeouts.pausing(deadline):
                    yield
        except TimeoutError:
            raise NeverReady(self._url, what, seconds) from None


# ---------------- Lists whose next page is loaded by a button

_MOST_BYTES = 10_000_000
"""Bytes of pages that are kept in one visit; the rest is for the next visit."""
_CHANGE = 5.0  # seconds for a list to change once the page is idle
_GONE = frozenset({404, 410})
_IS_OFF = """button => button.disabled || button.getAttribute("aria-disabled") === "true"
    || [button, button.parentElement].some(one => one && one.classList.contains("disabled"))"""
# In a new window the next page would be lost.
_STAY = """button => {
    const link = button.closest("a"); if (link) link.removeAttribute("target"); }"""
# The browser may not support the selector.
_LIST_CONTENT = """css => {
    let found = null;
    try { found = css && [...document.querySelectorAll(css)]; } catch { found = null; }
    return found ? found.map(one => `${one.href || ""} ${one.outerHTML}`).join()
        : document.body.innerText; }"""


class ClickThrough:
    """Clicks from page to page in one tab, which shows the first page of the list."""

    def __init__(self, load: Load, stage: Stage, clicks: Clicks) -> None:
        self._load = load
        self._page = load.page
        self._traffic = load.traffic
        self._stage = stage
        self._clicks = clicks
        self._is_fresh = False  # whether the last click has loaded a document
        self._shown: list[Shown] = []

    async def run(self) -> Clicked:
        """Return the pages after the first `skip` ones, at most `most`, and why there are no more.

        Raises:
            BadStatus: a click led to an error status.
            FetchError: a click led to no response.
        """
        kept_bytes = 0
        for number in range(self._clicks.skip + self._clicks.most):
            if number and (end := await self._advance()):
                return self._clicked(end, reached=number)
            if number >= self._clicks.skip:
                html = (await self._page.content()).encode(errors="replace")
                kept_bytes += len(html)
                self._shown.append(Shown(self._load.address(), html.decode()))
            if kept_bytes >= _MOST_BYTES:
                break
        button = await self._button()
        return self._clicked("more" if button else "last", reached=len(self._shown))

    def _clicked(self, end: str, *, reached: int) -> Clicked:
        if not self._shown and end in ("last", "same"):
            end = f"the list had only {reached} pages this time"
        response = self._traffic.main
        has_address = (
            self._is_fresh
            and response is not None
            and response.request.method == "GET"
            and urldefrag(response.url).url == urldefrag(self._page.url).url
        )
        return Clicked(tuple(self._shown), end, has_address)

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
        is_changed = await self._changes(before)
        self._is_fresh = self._traffic.documents > documents
        if self._is_fresh:
            response = self._traffic.main
            if response is not None and response.status in _GONE:
                return f"{response.url} returned {response.status}"
            if response is not None and response.status >= FIRST_ERROR:
                raise bad_status(response.url, response.status)
            await self._load.perform_steps(self._stage)
            is_changed = await self._list_content() != before
        # A list whose next page failed would look complete.
        for url, status in self._traffic.failed:
            if status is None:
                raise ConnectFailed(url, "a request of the page failed")
            if status not in _GONE:  # an API may end a list like this
                raise bad_status(url, status)
        return None if is_changed else "same"

    async def _button(self) -> ElementHandle | None:
        """Return the button if it can be clicked."""
        with suppress(PlaywrightError):  # it was removed meanwhile
            for button in await self._page.query_selector_all(self._clicks.button):
                if not await button.is_visible():
                    continue
                if await button.evaluate(_IS_OFF):
                    return None
                await button.evaluate(_STAY)
                return button
        return None

    async def _changes(self, before: str) -> bool:
        """Wait until the list has changed and is stable; return False when it does not change."""
        last = before
        loop = asyncio.get_running_loop()
        until = loop.time() + _CHANGE
        while True:
            await self._stage.quiet()
            now = await self._list_content()
            if now not in ("", before) and now == last:
                return True
            if loop.time() >= until:
                return now != before
            last = now

    async def _list_content(self) -> str:
        """Return the content of the list; empty during a navigation."""
        try:
            return str(await self._page.evaluate(_LIST_CONTENT, self._clicks.watch))
        except PlaywrightError:
            return ""


# ---------------- Redirects of the page itself are returned to the chain, which checks each hop

_DOCUMENT_RESPONSES = {"urlPattern": "*", "resourceType": "Document", "requestStage": "Response"}


class RedirectStop:
    """Stops a page at its first redirect; later ones, of forms and scripts, are followed."""

    def __init__(self, session: CDPSession, frame: str, url: str) -> None:
        self._session = session
        self._frame = frame
        self._url = url
        self._is_looking = True
        self.found: BrowserPage | None = None

    @classmethod
    async def watch(cls, page: Page, url: str) -> RedirectStop:
        """Start to inspect the responses of a page's documents."""
        session = await page.context.new_cdp_session(page)
        tree = await session.send("Page.getFrameTree")
        hops = cls(session, tree["frameTree"]["frame"]["id"], url)
        session.on("Fetch.requestPaused", hops._inspect)
        await session.send("Fetch.enable", {"patterns": [_DOCUMENT_RESPONSES]})
        return hops

    async def stop(self) -> None:
        """Stop inspecting."""
        self._is_looking = False
        with suppress(PlaywrightError):
            await self._session.send("Fetch.disable")

    async def _inspect(self, event: dict[str, Any]) -> None:
        # A failed connection has neither status nor headers.
        status = event.get("responseStatusCode", 0)
        headers = CIMultiDict(
            (one["name"], one["value"]) for one in event.get("responseHeaders", ())
        )
        is_redirect = status in REDIRECTS and "location" in headers
        if self._is_looking and is_redirect and event["frameId"] == self._frame:
            safe_headers = without_userinfo_in(CIMultiDictProxy(headers))
            self.found = BrowserPage(self._url, status, safe_headers, b"")
            command, parameters = "Fetch.failRequest", {"errorReason": "Aborted"}
        else:
            command, parameters = "Fetch.continueRequest", {}
        with suppress(PlaywrightError):  # the page may be closed
            await self._session.send(command, {"requestId": event["requestId"], **parameters})


# ---------------- One page

_CAPTURE = 30.0  # seconds for a screenshot or a PDF
_EMPTY = frozenset({204, 205})
_CODE = re.compile(r"net::ERR_([A-Z_0-9]+)")
_INVALID_URL = frozenset({"INVALID_URL", "UNKNOWN_URL_SCHEME", "DISALLOWED_URL_SCHEME"})
_OLD_BODY_HEADERS = ("content-encoding", "content-length", "transfer-encoding", "etag", "digest")
"""Headers that do not apply to a rendered body."""
_HTML_TYPES = frozenset({"", "text/html", "application/xhtml+xml"})


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
        started, request = self.clock.now(), self.request
        await self._set_cookies()
        await self.traffic.watch()
        hops = await RedirectStop.watch(self.page, request.url)
        try:
            url = with_query(request.url, request.hidden)
            await self.page.goto(url, wait_until="domcontentloaded")
        except PlaywrightError as error:
            return hops.found or await self._empty_page(error)
        await hops.stop()
        stage = Stage(self.page, request.url, self.traffic, self.clock)
        await self.perform_steps(stage)
        for cut in dict.fromkeys(stage.cuts):
            self.traffic.usage.add_event(
                CUT, reason=f"{request.url} was not rendered completely: {cut}"
            )
        # A click may navigate: the response is that of the requested page.
        response, address = self.traffic.main, self.address()
        clicked = None
        try:
            if request.clicks is not None:
                async with self._whole_page():
                    clicked = await ClickThrough(self, stage, request.clicks).run()
        except BadStatus as error:  # the chain handles it
            return BrowserPage(error.url, error.status, CIMultiDict(), b"")
        page = await self._read_page(response, stage, clicked)
        captures: dict[str, bytes | str] = {
            name: await self._capture(name) for name in self.request.captures
        }
        seconds = self.clock.now() - started
        return replace(page, url=address, seconds=seconds, captures=captures)

    async def _capture(self, name: Capture) -> bytes | str:
        """Return a screenshot or a PDF of the page; in words, why there is none."""
        try:
            async with asyncio.timeout(_CAPTURE):
                if name == "pdf":
                    taken = await self.page.pdf(print_background=True)
                else:
                    taken = await self.page.screenshot(full_page=True, timeout=0)
        except TimeoutError:
            return f"the browser took longer than {_CAPTURE:g} s for the {name}"
        except PlaywrightError as error:
            first = (error.message or type(error).__name__).splitlines()[0]
            return f"the browser could not take the {name}: {first[:200]}"
        limit = self.traffic.rules.largest_body
        return taken if len(taken) <= limit else f"the {name} is larger than {limit:,} bytes"

    async def perform_steps(self, stage: Stage) -> None:
        """Wait and perform the actions on the current document."""
        async with self._whole_page():
            await stage.run(self.steps)

    @asynccontextmanager
    async def _whole_page(self) -> AsyncIterator[None]:
        """Raise, instead of another error, that of the part that could not be loaded."""
        try:
            yield
            await self.traffic.settle()
        except FetchError as error:
            raise self.traffic.failure or error from None
        if self.traffic.failure is not None:
            raise self.traffic.failure

    async def _read_page(
        self, response: Response | None, stage: Stage, clicked: Clicked | None
    ) -> BrowserPage:
        if response is None:
            raise BadAnswer(self.request.url, "the browser shows a page without a response")
        headers = await _read_headers(response)
        kind = headers.get("content-type", "text/html").partition(";")[0].strip().lower()
        if kind in _HTML_TYPES:
            html = await self.page.content()
            body = (html if clicked is None else with_clicked(html, clicked)).encode(
                errors="replace"
            )
            for name in _OLD_BODY_HEADERS:
                headers.popall(name, None)
            headers["content-type"] = HTML
        else:
            body = await response.body()
        limit = self.traffic.rules.largest_body
        if len(body) > limit:
            raise BadAnswer(
                self.request.url, f"its body is larger than {limit} bytes once rendered"
            )
        return BrowserPage(
            self.request.url,
            response.status,
            headers,
            body,
            before=stage.before,
            led_away=stage.led_away,
            clicked=clicked,
        )

    async def _empty_page(self, error: PlaywrightError) -> BrowserPage:
        """Return a response without a body, which a browser does not render."""
        response = self.traffic.main
        if response is not None:
            if response.status >= FIRST_ERROR or response.status in _EMPTY:
                headers = await _read_headers(response)
                return BrowserPage(self.request.url, response.status, headers, b"")
            if "Download" in error.message:
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

    def address(self) -> str:
        """Return the current URL, without hidden parameters."""
        url = without_userinfo(self.page.url)
        hidden = self.request.hidden
        if url == with_query(self.request.url, hidden):
            return self.request.url
        return str(URL(url).without_query_params(*hidden)) if hidden else url


def _repeatable(expression: str) -> str:
    """A JavaScript expression, or function, as a function that Playwright compiles only once.

    It would compile an expression at each look, which the policy of many sites forbids to all but
    the first.
    """
    value = re.sub(r"[;\s]+\Z", "", expression)
    return f"() => {{ const value = ({value}\n); return value?.call ? value() : value; }}"


async def _read_headers(response: Response) -> CIMultiDict[str]:
    return CIMultiDict((one["name"], one["value"]) for one in await response.headers_array())


def translate_browser_error(url: str, error: PlaywrightError) -> FetchError:
    """Return longline's error for one of Playwright, whose text may contain secrets."""
    found = _CODE.search(error.message)
    code = found[1] if found else ""
    if code in _INVALID_URL or "invalid URL" in error.message:
        return BadAnswer(url, "not a valid URL")
    if code:
        kind = BadCertificate if code.startswith("CERT_") else ConnectFailed
        return kind(url, code.replace("_", " ").lower())
    if is_lost(error):
        return ConnectFailed(url, "the browser crashed")
    first = (error.message or type(error).__name__).splitlines()[0]
    return ConnectFailed(url, f"the browser failed: {first.partition(' at http')[0][:200]}")


def is_lost(error: PlaywrightError) -> bool:
    """Return whether an error means that the browser has ended."""
    return "has been closed" in error.message or "crashed" in error.message


# ---------------- Failed pages, kept as screenshot and HTML

_SCREENSHOT = 5.0  # seconds; a page that hangs may not render
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")


async def keep_failed_page(
    folder: Path, page: Page, url: str, *, most: int, now: float
) -> Path | None:
    """Keep a page as it is now, and at most `most` pages; return its HTML file, if any."""
    make_private_folder(folder)
    address = _UNSAFE.sub("-", url.partition("://")[2].partition("?")[0])
    name = f"{utc_datetime(now):%Y%m%dT%H%M%S%f}-{address[:60].strip('-')}"
    html, picture = folder / f"{name}.html", folder / f"{name}.png"
    with suppress(PlaywrightError, TimeoutError, OSError):
        async with asyncio.timeout(_SCREENSHOT):
            content = await page.content()
            make_private_file(html)
            make_private_file(picture)
            html.write_text(content, "utf-8")
            await page.screenshot(path=picture, timeout=0)
    _remove_oldest(folder, most)
    return html if html.exists() else None


def _remove_oldest(folder: Path, most: int) -> None:
    kept = sorted(folder.glob("*.html"))
    for old in kept[: max(0, len(kept) - most)]:
        old.unlink(missing_ok=True)
        old.with_suffix(".png").unlink(missing_ok=True)
