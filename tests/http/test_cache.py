"""The cache middleware over real HTTP: what is stored, and which requests are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from longline.http.messages import Request
from tests.http.cache_given import Browser, shelf
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

FRESH = {"Cache-Control": "max-age=60"}


@pytest.fixture
async def browser(clock: VirtualClock) -> AsyncIterator[Browser]:
    browser = Browser(clock)
    yield browser
    await browser.close()


async def test_a_fresh_answer_costs_no_request(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    shelf(site, "/a", FRESH)
    first = await browser.get(f"{site.url}/a")
    await clock.sleep(59)

    second = await browser.get(f"{site.url}/a#part")

    assert (first.text, first.is_cached) == ("answer 1", False)
    assert (second.text, second.is_cached) == ("answer 1", True)
    assert second.headers["age"] == "59"
    assert (browser.usage.requests, browser.usage.cached) == (1, 1)
    assert site.hits["/a"] == 1


async def test_a_stale_response_without_a_validator_is_fetched_again(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    shelf(site, "/a", FRESH)
    await browser.get(f"{site.url}/a")
    await clock.sleep(60)

    second = await browser.get(f"{site.url}/a")
    third = await browser.get(f"{site.url}/a")

    assert [second.text, third.text] == ["answer 2", "answer 2"]
    assert third.headers["age"] == "0"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cache-Control": "no-store, max-age=60", "ETag": '"1"'},
        {"Cache-Control": "max-age=0"},
        {"Cache-Control": "max-age=60, no-cache"},
        {"Cache-Control": "max-age=60", "Vary": "*"},
        {"Cache-Control": "max-age=60", "Vary": "Accept, *"},
        {"Cache-Control": "public"},
        {"Expires": "0"},
    ],
)
async def test_what_cannot_be_used_is_not_stored(
    site: ScriptedSite, browser: Browser, headers: dict[str, str]
) -> None:
    shelf(site, "/a", headers)

    await browser.get(f"{site.url}/a")

    assert browser.cache.stats().entries == 0


@pytest.mark.parametrize("status", [206, 408, 429, 500, 503])
async def test_parts_and_failures_that_may_pass_are_not_stored(
    site: ScriptedSite, browser: Browser, status: int
) -> None:
    shelf(site, "/a", FRESH, status=status)

    page = await browser.get(f"{site.url}/a")

    assert page.status == status
    assert browser.cache.stats().entries == 0


@pytest.mark.parametrize("status", [200, 203, 301, 404, 410])
async def test_other_answers_are_stored_with_their_status(
    site: ScriptedSite, browser: Browser, status: int
) -> None:
    shelf(site, "/a", FRESH, status=status)
    await browser.get(f"{site.url}/a")

    page = await browser.get(f"{site.url}/a")

    assert (page.status, page.is_cached, browser.usage.status) == (status, True, status)


async def test_headers_of_the_connection_are_not_stored(
    site: ScriptedSite, browser: Browser
) -> None:
    listed = {"Connection": "a, Keep-Alive", "A": "1", "B": "2", "Proxy-Authenticate": "x"}
    shelf(site, "/a", {"Cache-Control": "max-age=60", **listed})
    await browser.get(f"{site.url}/a")

    page = await browser.get(f"{site.url}/a")

    assert page.headers["b"] == "2"
    assert not {"connection", "a", "proxy-authenticate"} & set(page.headers)


async def test_variants_are_kept_apart_and_side_by_side(
    site: ScriptedSite, browser: Browser
) -> None:
    shelf(site, "/a", {**FRESH, "Vary": "Accept-Language"})
    texts = [
        (await browser.get(f"{site.url}/a", {"Accept-Language": language})).text
        for language in ("de, en", "fr", "EN ,de", "fr")
    ]
    without = await browser.get(f"{site.url}/a")

    assert texts == ["answer 1", "answer 2", "answer 1", "answer 2"]
    assert without.text == "answer 3"


async def test_headers_that_vary_does_not_name_do_not_matter(
    site: ScriptedSite, browser: Browser
) -> None:
    shelf(site, "/a", FRESH)
    await browser.get(f"{site.url}/a", {"Cookie": "a=1", "X": "1"})

    page = await browser.get(f"{site.url}/a", {"Cookie": "a=2", "X": "2"})

    assert page.text == "answer 1"


@pytest.mark.parametrize("name", ["Authorization", "authorization", "X-API-Key"])
async def test_an_answer_for_one_login_is_never_given_to_another(
    site: ScriptedSite, browser: Browser, name: str
) -> None:
    shelf(site, "/a", {"Cache-Control": "public, max-age=60"})
    texts = [
        (await browser.get(f"{site.url}/a", headers)).text
        for headers in ({name: "one"}, {name: "two"}, {}, {name: "one"})
    ]

    assert texts == ["answer 1", "answer 2", "answer 3", "answer 1"]


async def test_hidden_parameters_keep_answers_apart(site: ScriptedSite, browser: Browser) -> None:
    shelf(site, "/a", FRESH)
    texts = [
        (await browser.ask(Request(f"{site.url}/a", hidden=hidden))).text
        for hidden in ({"key": "one"}, {"key": "two"}, {"key": "one"})
    ]

    assert texts == ["answer 1", "answer 2", "answer 1"]


async def test_responses_are_separate_for_each_identity(
    site: ScriptedSite, browser: Browser, clock: VirtualClock
) -> None:
    shelf(site, "/a", FRESH)
    another = Browser(clock, browser.cache, mark="another")

    texts = [(await one.get(f"{site.url}/a")).text for one in (browser, another, browser)]

    assert texts == ["answer 1", "answer 2", "answer 1"]
    await another.close()


async def test_a_request_that_wants_no_storing_is_neither_answered_nor_stored(
    site: ScriptedSite, browser: Browser
) -> None:
    shelf(site, "/a", FRESH)
    asking = {"Cache-Control": "no-store"}

    texts = [
        (await browser.get(f"{site.url}/a", headers)).text for headers in (asking, {}, asking, {})
    ]

    assert texts == ["answer 1", "answer 2", "answer 3", "answer 2"]


@pytest.mark.parametrize("name", ["Range", "If-Range", "If-Match", "If-Unmodified-Since"])
async def test_what_only_the_site_can_answer_passes_by(
    site: ScriptedSite, browser: Browser, name: str
) -> None:
    shelf(site, "/a", FRESH)
    await browser.get(f"{site.url}/a")

    page = await browser.get(f"{site.url}/a", {name: "x"})
    again = await browser.get(f"{site.url}/a")

    assert (page.text, again.text) == ("answer 2", "answer 1")


async def test_an_answer_to_head_is_no_answer_to_get(site: ScriptedSite, browser: Browser) -> None:
    shelf(site, "/a", FRESH)
    await browser.ask(Request(f"{site.url}/a", "HEAD"))

    page = await browser.get(f"{site.url}/a")

    assert page.text == "answer 2"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"])
async def test_an_unsafe_request_ends_what_is_stored_of_its_address(
    site: ScriptedSite, browser: Browser, method: str
) -> None:
    shelf(site, "/a", {**FRESH, "Vary": "X"})
    await browser.get(f"{site.url}/a", {"X": "1"})
    await browser.get(f"{site.url}/a", {"Authorization": "another"})

    await browser.ask(Request(f"{site.url}/a", method, body=b"x"))

    assert browser.cache.stats().entries == 0


async def test_an_unsafe_request_ends_the_addresses_it_names_on_its_own_site(
    site: ScriptedSite, browser: Browser
) -> None:
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    for path in ("/b", "/c", "/d"):
        shelf(site, path, FRESH)
    for url in (f"{site.url}/b", f"{site.url}/c", f"{elsewhere}/d"):
        await browser.get(url)
    named = {"Location": "/b", "Content-Location": f"{site.url}/c"}
    site.says("/a", status=201, headers=named)
    site.says("/e", status=201, headers={"Location": f"{elsewhere}/d"})

    await browser.ask(Request(f"{site.url}/a", "POST"))
    await browser.ask(Request(f"{site.url}/e", "POST"))

    assert browser.cache.find(f"{site.url}/b") == []
    assert browser.cache.find(f"{site.url}/c") == []
    assert len(browser.cache.find(f"{elsewhere}/d")) == 1


async def test_an_unsafe_request_that_failed_ends_nothing(
    site: ScriptedSite, browser: Browser
) -> None:
    page = shelf(site, "/a", FRESH)
    await browser.get(f"{site.url}/a")
    page.fails = 500

    await browser.ask(Request(f"{site.url}/a", "POST"))

    assert (await browser.get(f"{site.url}/a")).text == "answer 1"
