"""Stale responses that may be used while the site fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from longline.core.errors import BudgetSpent, CircuitOpen, ConnectFailed, FetchError
from longline.core.model import Usage
from longline.http.errors import TimedOut
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.cache import CacheMiddleware
from tests.http.cache_given import Browser, TemporaryCache, shelf
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

IN_NEED = {"Cache-Control": "max-age=10, stale-if-error=100"}


@pytest.fixture
def cache() -> Iterator[TemporaryCache]:
    cache = TemporaryCache()
    yield cache
    cache.close()


@pytest.fixture
async def browser(clock: VirtualClock) -> AsyncIterator[Browser]:
    browser = Browser(clock)
    yield browser
    await browser.close()


class Failing(Middleware):
    """Responds once, then fails as configured."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._is_first = True

    async def __call__(self, request: Request, usage: Usage) -> Page:
        usage.requests += 1
        if not self._is_first:
            raise self._error
        self._is_first = False
        headers = {name.lower(): value for name, value in IN_NEED.items()}
        return Page(request.url, 200, headers, b"kept")


@pytest.mark.parametrize("fails", [True, 500, 502, 503, 504])
async def test_a_stale_response_replaces_that_of_a_failing_site(
    site: ScriptedSite, browser: Browser, clock: VirtualClock, *, fails: bool | int
) -> None:
    page = shelf(site, "/a", IN_NEED)
    await browser.get(f"{site.url}/a")
    await clock.sleep(50)
    page.fails = fails

    answer = await browser.get(f"{site.url}/a")

    assert (answer.text, answer.status, answer.is_cached) == ("answer 1", 200, True)
    assert answer.headers["age"] == "50"
    assert [one.type for one in browser.usage.events] == ["cache.stale_if_error"]
    assert (browser.usage.requests, browser.usage.cached) == (2, 1)


async def test_a_stale_response_is_used_no_longer_than_allowed(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    page = shelf(site, "/a", IN_NEED)
    await browser.get(f"{site.url}/a")
    await clock.sleep(111)
    page.fails = True

    with pytest.raises(ConnectFailed):
        await browser.get(f"{site.url}/a")


async def test_a_page_that_is_gone_is_no_failure_of_the_site(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    page = shelf(site, "/a", IN_NEED)
    await browser.get(f"{site.url}/a")
    await clock.sleep(50)
    page.fails = 404

    assert (await browser.get(f"{site.url}/a")).status == 404


@pytest.mark.parametrize("error", [TimedOut("u", 9), CircuitOpen("u", 9.0)])
async def test_every_way_of_not_being_reached_counts(
    clock: VirtualClock, cache: TemporaryCache, error: FetchError
) -> None:
    middleware = CacheMiddleware(Failing(error), cache, clock)
    await middleware(Request("http://site.test/a"), Usage())
    await clock.sleep(50)

    page = await middleware(Request("http://site.test/a"), Usage())

    assert (page.body, page.is_cached) == (b"kept", True)


async def test_a_limit_of_the_users_own_is_no_failure_of_the_site(
    clock: VirtualClock, cache: TemporaryCache
) -> None:
    error = BudgetSpent("http://site.test/a", "10 requests")
    middleware = CacheMiddleware(Failing(error), cache, clock)
    await middleware(Request("http://site.test/a"), Usage())
    await clock.sleep(50)

    with pytest.raises(BudgetSpent):
        await middleware(Request("http://site.test/a"), Usage())
