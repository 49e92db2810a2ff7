"""Asking whether a stored answer still holds, and what a 304 changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from email.utils import formatdate

import pytest
from aiohttp import web
from multidict import CIMultiDict

from longline.http.messages import Page
from longline.http.middleware.cache import refreshed
from tests.http.cache_given import Browser, entry, shelf
from tests.scripted_site import ScriptedSite
from tests.virtual import EPOCH, VirtualClock

TAGGED = {"ETag": '"1"', "Cache-Control": "max-age=10"}


@pytest.fixture
async def browser(clock: VirtualClock) -> AsyncIterator[Browser]:
    browser = Browser(clock)
    yield browser
    await browser.close()


async def test_a_304_costs_one_request_and_brings_the_stored_body(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    page = shelf(site, "/a", {**TAGGED, "X": "old"}, later={**TAGGED, "X": "new"})
    await browser.get(f"{site.url}/a")
    await clock.sleep(11)

    validated = await browser.get(f"{site.url}/a")
    again = await browser.get(f"{site.url}/a")

    assert page.asked[1]["If-None-Match"] == '"1"'
    assert (validated.text, validated.status, validated.is_cached) == ("answer 1", 200, True)
    assert (validated.headers["x"], again.headers["x"]) == ("new", "new")
    usage = browser.usage
    assert (usage.requests, usage.revalidated, usage.cached) == (2, 1, 1)
    assert usage.status == 200


async def test_the_date_of_the_last_change_validates_too(
    site: ScriptedSite, browser: Browser
) -> None:
    changed = formatdate(EPOCH - 500, usegmt=True)

    async def answer(request: web.Request) -> web.StreamResponse:
        is_same = request.headers.get("If-Modified-Since") == changed
        return web.Response(status=304 if is_same else 200, headers={"Last-Modified": changed})

    site.answers["/a"] = answer
    await browser.get(f"{site.url}/a")

    page = await browser.get(f"{site.url}/a")

    assert (page.status, page.is_cached, browser.usage.revalidated) == (200, True, 1)


async def test_a_new_version_takes_the_place_of_the_old(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    shelf(site, "/a", TAGGED, later={**TAGGED, "ETag": '"2"'})
    await browser.get(f"{site.url}/a")
    await clock.sleep(11)

    second = await browser.get(f"{site.url}/a")
    third = await browser.get(f"{site.url}/a")

    assert (second.text, second.is_cached) == ("answer 2", False)
    assert (third.text, third.is_cached) == ("answer 2", True)
    assert browser.cache.stats().entries == 1


async def test_a_new_version_that_must_not_be_stored_ends_the_old(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    shelf(site, "/a", TAGGED, later={"Cache-Control": "no-store"})
    await browser.get(f"{site.url}/a")
    await clock.sleep(11)

    await browser.get(f"{site.url}/a")

    assert browser.cache.stats().entries == 0


async def test_a_failure_of_the_site_is_shown_and_does_not_end_what_is_stored(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    page = shelf(site, "/a", TAGGED)
    await browser.get(f"{site.url}/a")
    await clock.sleep(11)
    page.fails = 503

    failed = await browser.get(f"{site.url}/a")
    page.fails = False
    after = await browser.get(f"{site.url}/a")

    assert (failed.status, failed.is_cached) == (503, False)
    assert (after.text, after.is_cached) == ("answer 1", True)


async def test_a_validated_answer_that_was_given_up_meanwhile_is_asked_for_whole(
    site: ScriptedSite, browser: Browser
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        browser.cache.clear()
        is_same = request.headers.get("If-None-Match") == '"1"'
        return web.Response(status=304 if is_same else 200, text="whole", headers={"ETag": '"1"'})

    site.answers["/a"] = answer
    await browser.get(f"{site.url}/a")

    page = await browser.get(f"{site.url}/a")

    assert (page.status, page.text, page.is_cached) == (200, "whole", False)
    assert browser.usage.revalidated == 0


async def test_a_callers_own_condition_goes_to_the_site_unchanged(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    page = shelf(site, "/a", TAGGED)
    await browser.get(f"{site.url}/a")
    await clock.sleep(11)

    answer = await browser.get(f"{site.url}/a", {"If-None-Match": '"1"'})
    fresh_again = await browser.get(f"{site.url}/a")

    assert page.asked[1]["If-None-Match"] == '"1"'
    assert (answer.status, answer.is_cached) == (304, False)
    assert (fresh_again.text, site.hits["/a"]) == ("answer 1", 3)


def test_a_304_brings_all_headers_but_those_of_the_body() -> None:
    whole = {"ETag": '"1"', "Content-Length": "5", "Content-Encoding": "gzip"}
    stored = entry({**whole, "Age": "99", "X": "old", "Kept": "1", "Content-Type": "text/plain"})
    of_another = {"ETag": '"2"', "Content-Length": "0", "Content-Encoding": "br"}
    news = {"X": "new", "Content-Type": "text/html", "Connection": "B", "B": "1"}
    reported = CIMultiDict({**of_another, **news})

    renewed = refreshed(stored, Page("", 304, reported, b"", seconds=2.0), EPOCH + 50)

    expected = {**whole, "X": "new", "Kept": "1", "Content-Type": "text/html"}
    assert dict(renewed.headers) == expected
    assert (renewed.requested_at, renewed.responded_at) == (EPOCH + 48, EPOCH + 50)
    assert renewed.saved_at == stored.saved_at


def test_cookies_stay_apart_when_a_304_comes() -> None:
    stored = entry({"ETag": '"1"'})
    page = Page("", 304, {"set-cookie": "a=1; Expires=Fri, 15 Jan 2027 08:00:00 GMT"}, b"")

    renewed = refreshed(stored, page, EPOCH)

    assert renewed.headers.getall("set-cookie") == [page.headers["set-cookie"]]
