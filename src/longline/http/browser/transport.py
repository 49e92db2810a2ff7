"""Browser transport: rendered pages by Chromium, driven by Playwright; the rest over HTTP.

Playwright is an extra, so this module imports it only when the first page is opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from longline.core.clock import Clock
from longline.core.errors import CircuitOpen, FailureKind, MissingExtra
from longline.core.model import Usage
from longline.http.address_policy import AddressPolicy
from longline.http.browser.manifest import BrowserOptions, is_remote
from longline.http.errors import BadAnswer
from longline.http.messages import Middleware, Page, Request, origin_of
from longline.limits.breaker import CircuitBreaker, Phase
from longline.limits.budget import Budgets
from longline.limits.limiter import RateLimiter

if TYPE_CHECKING:
    from longline.http.browser.chromium import Tabs

_SCHEMES = ("http://", "https://")


class BrowserTransport(Middleware):
    """Opens rendered requests in a browser, which is started by the first of them.

    All other requests go to `http`: robots.txt, sitemaps, logins and JSON need no browser. A
    redirect of the page itself is returned, and the chain follows it. Requests that a page makes
    are counted in `usage`. `before_subrequest` is awaited with the URL of each of them; an error
    that it raises fails the page.
    """

    def __init__(
        self,
        http: Middleware,
        options: BrowserOptions,
        clock: Clock,
        before_subrequest: Callable[[str], Awaitable[Any]] | None = None,
    ) -> None:
        self._http = http
        self._options = options
        self._clock = clock
        self._before = before_subrequest
        self._tabs: Tabs | None = None

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if not request.is_rendered:
            return await self._http(request, usage)
        if request.method != "GET" or request.body is not None:
            problem = f"a browser opens pages with GET only, not {request.method}"
            raise BadAnswer(request.url, problem)
        if not request.url.startswith(_SCHEMES):
            raise BadAnswer(request.url, "not an http or https URL")
        if self._tabs is None:
            try:
                from longline.http.browser.chromium import Tabs  # noqa: PLC0415  # an extra
            except ModuleNotFoundError as error:
                raise MissingExtra("browser", "opening pages in a browser") from error
            self._tabs = Tabs(self._options, self._clock, self._before)
        if self._options.addresses is not None and is_remote(self._options.chromium):
            await self._options.addresses.check_host(request.url)
        usage.requests += 1
        page = await self._tabs.open(request, usage)
        usage.add_response(page.status, len(page.body), page.seconds)
        return page

    async def close(self) -> None:
        """Close the browser and end its processes."""
        if self._tabs is not None:
            tabs, self._tabs = self._tabs, None
            await tabs.close()


class Subrequests:
    """Applies address policy, budget, breaker and rate limit to requests that pages make.

    robots.txt does not apply to them: browsers do not check it for the parts of a page, and without
    them the page would not be the one that was allowed.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        breaker: CircuitBreaker,
        budgets: Budgets | None = None,
        addresses: AddressPolicy | None = None,
        *,
        is_remote: bool = False,
    ) -> None:
        self._limiter = limiter
        self._breaker = breaker
        self._budgets = budgets
        self._addresses = addresses
        self._is_remote = is_remote

    async def __call__(self, url: str) -> None:
        """Return when the request may go; it is then charged to the budgets.

        Raises:
            BudgetSpent: no request, or no time, is left.
            CircuitOpen: the breaker of the host is open.
            Deferred: the host asked for a long pause.
            PrivateAddress: the policy refuses the address.
        """
        if self._addresses is not None and self._is_remote:
            await self._addresses.check_host(url)
        elif self._addresses is not None:
            self._addresses.check_literal(url)  # host names are checked when the browser connects
        domain = origin_of(url)[1]
        if self._budgets is not None:
            self._budgets.check(domain, url)
        if not self._breaker.is_healthy(domain):
            # Only read: the result of the request is not recorded, so it cannot be a probe.
            status = await self._breaker.state(domain)
            if status.phase is Phase.OPEN and status.until is not None:
                kind = FailureKind.BLOCKED if status.is_ban else FailureKind.NETWORK
                raise CircuitOpen(url, status.until, status.reason, kind)
        await self._limiter.acquire(domain, url)
        if self._budgets is not None and not self._budgets.try_spend(domain):
            await self._budgets.spend(domain, url)


# ---------------- Rendered pages

HTML = "text/html; charset=utf-8"
"""The content type of rendered pages."""
CLICKS = "data-longline-clicks"
"""The attribute of the script element with the pages of a list."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One rendered page of a list."""

    url: str
    html: str


@dataclass(frozen=True, slots=True)
class Clicked:
    """Pages of a list, loaded by clicks.

    `end` is `more` when there are further pages, `last` when there is no more button, `same` when a
    click changed nothing; otherwise it says why the next page failed. With `has_address`, the last
    page can be opened again by its URL.
    """

    shown: tuple[Shown, ...]
    end: str
    has_address: bool = False


@dataclass(frozen=True)
class BrowserPage(Page):
    """A page as a browser renders it.

    `before` is the page before the actions, None without actions: what they do not replace should
    still be there. `led_away` names the action that led the browser to another URL.
    """

    before: Page | None = None
    led_away: str | None = None
    clicked: Clicked | None = None
    captures: Mapping[str, bytes | str] = field(default_factory=dict)


def clicked_in(page: Page) -> Clicked:
    """Return the pages of a list of a page, also of an archived one."""
    if isinstance(page, BrowserPage) and page.clicked is not None:
        return page.clicked
    found = page.first(f"script[{CLICKS}]")
    if found is None:
        return Clicked((Shown(page.url, page.text),), "last")
    values = orjson.loads(found.text())
    shown = tuple(Shown(url, html) for url, html in values["shown"])
    return Clicked(shown, values["end"], values["has_address"])


def with_clicked(html: str, clicked: Clicked) -> str:
    """Return the HTML with the pages of its list appended."""
    values = {
        "shown": [(one.url, one.html) for one in clicked.shown],
        "end": clicked.end,
        "has_address": clicked.has_address,
    }
    # Inside a script element, "<" is the one character that could end it.
    text = orjson.dumps(values).decode().replace("<", "\\u003c")
    return f'{html}<script type="application/json" {CLICKS}>{text}</script>'
