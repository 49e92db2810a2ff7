"""Load one page in the browser: navigate, wait, perform actions, and read it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy
from playwright.async_api import CDPSession, Page, Response
from playwright.async_api import Error as PlaywrightError
from yarl import URL

from longline.core.clock import Clock, utc_datetime
from longline.core.errors import BadStatus, ConnectFailed, FetchError
from longline.core.files import make_private_file, make_private_folder
from longline.core.model import CUT
from longline.http.errors import BadAnswer, BadCertificate
from longline.http.messages import Request, with_query, without_userinfo, without_userinfo_in
from longline.http.transports.browser.manifest import Steps
from longline.http.transports.browser.page import (
    HTML,
    BrowserPage,
    Clicked,
    with_captured,
    with_clicked,
)
from longline.http.transports.browser.steps import ClickThrough, Stage
from longline.http.transports.browser.traffic import Traffic

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


_FIRST_BAD = 400
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
