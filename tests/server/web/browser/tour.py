"""A tour of the dashboard: one example of every page, as the links of the pages lead to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Any
from urllib.parse import urljoin, urlsplit

from fastapi.routing import APIRoute
from playwright.async_api import Locator, Page

from longline.server.web import app
from tests.server.web.browser.visitor import Visitor

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
NOT_PAGES = {
    *("/settings/tokens", "/sources/check", "/sources/save"),  # lead back from forms
    *("/live/{name}", "/records/export", "/stored/{place}"),  # a stream and downloads
    "/login",  # who is logged in is not led there
    *("/sources/of", "/jobs/", "/records/{source}/{key}"),  # other addresses of the same pages
}
REPORT = "/jobs/{name}/report"
_AXE_RUN = "options => axe.run(document, options)"
_LINKS = "links => links.map(one => one.getAttribute('href'))"


def routes(method: str) -> Iterator[tuple[str, APIRoute]]:
    """Return the paths and routes of all pages, in the order in which the server tries them."""
    for module in app._PAGES:  # the list of the application itself: no page is forgotten
        for route in module.router.routes:
            if isinstance(route, APIRoute) and method in (route.methods or ()):
                yield route.path.replace(":path}", "}"), route


def route_of(url: str, method: str = "GET") -> str | None:
    """Return the path of the route that responds to a URL of the dashboard."""
    path = urlsplit(url).path
    return next((name for name, one in routes(method) if one.path_regex.match(path)), None)


@dataclass
class Tour:
    """The pages that links lead to, each the first of its route."""

    visitor: Visitor
    seen: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=lambda: ["/"])

    async def pages(self) -> AsyncIterator[str]:
        """Open one page after the other; yield the path of its route."""
        page = self.visitor.page
        while self.waiting:
            url = self.waiting.pop(0)
            route = route_of(url)
            if route is None or route in self.seen or route in NOT_PAGES:
                continue
            self.seen[route] = url
            await self._open(page, route, urljoin(self.visitor.served.url, url))
            links = await page.locator("a[href]").evaluate_all(_LINKS)
            yield route
            self.waiting += [one for one in links if one.startswith("/")]

    @property
    def missed(self) -> set[str]:
        """The pages that no link has led to."""
        return {path for path, _ in routes("GET")} - NOT_PAGES - self.seen.keys()

    async def _open(self, page: Page, route: str, url: str) -> None:
        if route == REPORT:  # a sandbox without scripts, in which axe cannot run
            answer = await page.request.get(url)
            await page.goto("about:blank")
            await page.set_content(await answer.text())
            return
        response = await page.goto(url)
        assert response is not None
        assert response.ok, url


async def violations(page: Page, **options: Any) -> list[str]:
    """Return the serious and critical violations that axe finds on the page."""
    await page.evaluate(AXE)
    found = await page.evaluate(_AXE_RUN, {"resultTypes": ["violations"], **options})
    return [
        f"{urlsplit(page.url).path}: {one['id']} at {node['target'][0]}: {node['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


async def problems_of(page: Page) -> list[str]:
    """Return what axe finds in the light page, and the contrasts of the dark one."""
    found = await violations(page)
    await page.emulate_media(color_scheme="dark")
    found += await violations(page, runOnly=["color-contrast"])
    await page.emulate_media(color_scheme="light")
    return found


# ---------------- Forms

IN_JOURNEYS = {
    *("/login", "/login/out"),
    *("/jobs/{name}/pause", "/jobs/{name}/resume", "/jobs/{name}/cancel"),
    *("/flows/{run}/approve", "/flows/{run}/cancel", "/flows/{run}/retry", "/flows/{run}/undo"),
    *("/sources/new", "/sources/save", "/sources/edit", "/domains/reset"),
    *("/proxies/refresh", "/proxies/check", "/proxies/remove"),
}
"""Actions of which a journey uses every button: they need a page in a certain state."""
VALUES = {
    "name": "tour",
    "runs": "quotes",
    "when": "0 4 * * *",
    "domain": "shop.example",
    "rate": "2",
    "limit": "3",
    "min_score": "1",
    "since": "2d",
    "columns": "title",
    "where": "bids>3",
    "subject": "source/shop*",
    "key": "80",
}
"""What is typed into fields; other fields keep what they have."""
_FORMS = """forms => forms.map((form, place) => ({
  place, method: form.method.toUpperCase(), action: form.getAttribute("action"),
  buttons: [...form.querySelectorAll("button")].map(one => one.textContent.trim()),
}))"""


@dataclass
class FormTour:
    """Uses each form of the pages once, with each of its buttons."""

    tour: Tour
    used: set[tuple[str, str]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    @property
    def missed(self) -> set[str]:
        """The actions that no page has offered."""
        return {path for path, _ in routes("POST")} - IN_JOURNEYS - {one for one, _ in self.used}

    async def use_all(self) -> None:
        """Use the forms of the present page that were not used yet, and of those they lead to."""
        page = self.tour.visitor.page
        url = page.url
        while (found := await self._next(page)) is not None:
            place, route, button = found
            self.used.add((route, button))
            await self._submit(page, page.locator("form").nth(place), route, button)
            await self.use_all()
            if not (await page.request.get(url)).ok:  # the form has removed what the page is about
                return
            await page.goto(url)

    async def _next(self, page: Page) -> tuple[int, str, str] | None:
        for one in await page.locator("form").evaluate_all(_FORMS):
            route = route_of(one["action"], one["method"])
            assert route is not None, one
            for button in one["buttons"]:
                if route not in IN_JOURNEYS and (route, button) not in self.used:
                    return one["place"], route, button
        return None

    async def _submit(self, page: Page, form: Locator, route: str, button: str) -> None:
        for name, text in VALUES.items():
            fields = form.locator(f"input[name='{name}']:not([type=hidden])")
            for one in await fields.all():
                await one.fill(text)
        clicked = form.get_by_role("button", name=button, exact=True)
        if route == "/records/export":
            async with page.expect_download() as download:
                await clicked.click()
            assert await (await download.value).failure() is None
            return
        async with page.expect_navigation() as navigation:
            await clicked.click()
        response = await navigation.value
        if response.status >= 400:  # as HTTP divides them
            text = (await page.locator("main").inner_text())[:300]
            self.failures.append(f"{route} {button!r} at {page.url}: {response.status} {text}")
