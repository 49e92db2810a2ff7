"""A person with a browser: opens pages, clicks, and notices every error of a page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.async_api import Browser, ConsoleMessage, Locator, Page, Request, expect

from tests.server.web.browser.served import Served

PATIENCE = 30_000.0  # milliseconds for what a busy machine does in a second
_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
});
"""


@dataclass
class Visitor:
    """A window of the browser, logged in; `problems` are the errors of its pages."""

    page: Page
    served: Served
    problems: list[str] = field(default_factory=list)
    clicks: int = 0
    expected: tuple[str, ...] = ()  # parts of errors that the test is about

    async def go(self, path: str) -> None:
        """Open a page of the dashboard."""
        await self.page.goto(self.served.url + path)

    async def click(self, where: Locator) -> None:
        """Click, as soon as there is something to click on."""
        self.clicks += 1
        await where.click()

    def link(self, name: str) -> Locator:
        return self.page.get_by_role("link", name=name)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    async def sees(self, text: str | re.Pattern[str], *, patience: float = PATIENCE) -> None:
        """Wait until the content of the page has a text."""
        await expect(self.page.locator("main")).to_contain_text(text, timeout=patience)


@asynccontextmanager
async def visiting(browser: Browser, served: Served) -> AsyncIterator[Visitor]:
    """Open a window that is logged in; at its end, fail if a page had an error."""
    context = await browser.new_context(accept_downloads=True, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    context.on("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await context.add_init_script(_VIOLATIONS)
    visitor = Visitor(await context.new_page(), served)
    _watch(visitor)
    if served.cookies:
        await context.add_cookies(served.cookies)  # type: ignore[arg-type]  # as it returned them
        await visitor.go("/")
    else:
        await visitor.page.goto(served.link)
        served.cookies[:] = await context.cookies()
    try:
        yield visitor
    finally:
        await context.close()
    assert not visitor.problems, "\n".join(dict.fromkeys(visitor.problems))


def _watch(visitor: Visitor) -> None:
    page = visitor.page

    def on_console(message: ConsoleMessage) -> None:
        is_expected = any(one in message.text for one in visitor.expected)
        if message.type in ("error", "warning") and not is_expected:
            visitor.problems.append(f"{urlsplit(page.url).path}: {message.text}")

    def on_request(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https") and f"http://{parts.netloc}" != visitor.served.url:
            visitor.problems.append(f"{urlsplit(page.url).path}: request to {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: visitor.problems.append(f"{page.url}: {error}"))
    page.on("request", on_request)
