"""Headers and cookies of a source, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from longline.config.secrets import SecretRef
from longline.core.model import Usage
from longline.http.errors import AuthFailed
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.identity import IdentityMiddleware
from tests.http.signing_in import SECRET, Door, echo, elsewhere, failure_of
from tests.scripted_site import Answer, ScriptedSite
from tests.virtual import VirtualClock

Make = Callable[..., Door]


@pytest.fixture
async def door(clock: VirtualClock) -> AsyncIterator[Make]:
    async with AsyncExitStack() as closing:

        def make(**values: Any) -> Door:
            made = Door(clock, **values)
            closing.push_async_callback(made.transport.close)
            return made

        yield make


def sets(*cookies: str) -> Answer:
    """Answer with these cookies, each a header of its own."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        response = web.Response(text="ok")
        for cookie in cookies:
            response.headers.add("Set-Cookie", cookie)
        return response

    return answer


async def test_headers_of_the_source_go_with_every_request(site: ScriptedSite, door: Make) -> None:
    site.answers["/a"] = echo("X-Shop")

    assert await door(headers={"X-Shop": "de"}).get(f"{site.url}/a") == "de"


async def test_a_header_of_the_request_wins_in_whatever_case(
    site: ScriptedSite, door: Make
) -> None:
    site.answers["/a"] = echo("X-Shop")
    site.answers["/b"] = echo("X-Other")
    source = door(headers={"X-Shop": "de", "X-Other": "kept"})

    assert await source.get(f"{site.url}/a", headers={"x-shop": "fr"}) == "fr"
    assert await source.get(f"{site.url}/b", headers={"x-shop": "fr"}) == "kept"


async def test_what_an_answer_sets_comes_back_exactly_as_it_was(
    site: ScriptedSite, door: Make
) -> None:
    site.answers["/set"] = sets('a={"x":1,"y":2}', 'b="quoted, too"', "c=1; HttpOnly")
    site.answers["/a"] = echo("Cookie")
    source = door()

    await source.get(f"{site.url}/set")

    assert await source.get(f"{site.url}/a") == 'a={"x":1,"y":2}; b="quoted, too"; c=1'


@pytest.mark.parametrize(
    ("cookie", "path", "sent"),
    [
        ("a=1; Path=/", "/other", "a=1"),
        ("a=1; Path=/shop", "/shop/cart", "a=1"),
        ("a=1; Path=/shop", "/shopping", "none"),
        ("a=1; Path=/shop", "/", "none"),
        ("a=1", "/set/below", "a=1"),
        ("a=1; Secure", "/set", "none"),
        ("a=1; Max-Age=0", "/set", "none"),
        ("a=1; Expires=Thu, 01 Jan 2015 00:00:00 GMT", "/set", "none"),
        ("a=1; Domain=evil.test", "/set", "none"),
        ("a=1; Max-Age=1000", "/set", "a=1"),
    ],
)
async def test_a_cookie_goes_where_it_belongs(
    site: ScriptedSite, door: Make, cookie: str, path: str, sent: str
) -> None:
    site.answers["/set/it"] = sets(cookie)
    site.answers[path] = echo("Cookie")
    source = door()

    await source.get(f"{site.url}/set/it")

    assert await source.get(f"{site.url}{path}") == sent


async def test_a_cookie_stays_with_its_host(site: ScriptedSite, door: Make) -> None:
    site.answers["/set"] = sets("a=1; Path=/")
    site.answers["/a"] = echo("Cookie")
    source = door()

    await source.get(f"{site.url}/set")

    assert await source.get(f"{elsewhere(site)}/a") == "none"


async def test_a_cookie_that_is_taken_away_is_gone(site: ScriptedSite, door: Make) -> None:
    site.answers["/set"] = sets("a=1; Path=/", "b=2; Path=/")
    site.answers["/unset"] = sets("a=; Path=/; Max-Age=0")
    site.answers["/a"] = echo("Cookie")
    source = door()

    await source.get(f"{site.url}/set")
    await source.get(f"{site.url}/unset")

    assert await source.get(f"{site.url}/a") == "b=2"


async def test_a_cookie_set_on_the_way_is_sent_to_the_next_hop(
    site: ScriptedSite, door: Make
) -> None:
    site.says("/go", status=302, headers={"Location": "/a", "Set-Cookie": "a=1"})
    site.answers["/a"] = echo("Cookie")

    assert await door().get(f"{site.url}/go") == "a=1"


async def test_every_run_begins_with_an_empty_jar(site: ScriptedSite, door: Make) -> None:
    site.answers["/set"] = sets("a=1; Path=/")
    site.answers["/a"] = echo("Cookie")

    await door().get(f"{site.url}/set")

    assert await door().get(f"{site.url}/a") == "none"


async def test_a_source_may_go_without_cookies(site: ScriptedSite, door: Make) -> None:
    site.answers["/set"] = sets("a=1; Path=/")
    site.answers["/a"] = echo("Cookie")
    source = door(cookies=False)

    await source.get(f"{site.url}/set")

    assert await source.get(f"{site.url}/a") == "none"


async def test_a_cookie_header_of_the_request_wins(site: ScriptedSite, door: Make) -> None:
    site.answers["/set"] = sets("a=1; Path=/")
    site.answers["/a"] = echo("Cookie")
    source = door()

    await source.get(f"{site.url}/set")

    assert await source.get(f"{site.url}/a", headers={"cookie": "mine=2"}) == "mine=2"


async def test_start_cookies_go_to_their_host_and_may_be_secret(
    site: ScriptedSite, door: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SESSION", SECRET)
    site.answers["/a"] = echo("Cookie")
    cookies = {"127.0.0.1": {"session": SecretRef.parse("env:SHOP_SESSION"), "lang": "en"}}
    source = door(cookies=cookies)

    assert await source.get(f"{site.url}/a") == f"session={SECRET}; lang=en"
    assert await source.get(f"{elsewhere(site)}/a") == "none"
    assert SECRET not in "".join(source.seen.requests)


async def test_a_start_cookie_that_the_site_has_changed_is_not_put_back(
    site: ScriptedSite, door: Make
) -> None:
    site.answers["/set"] = sets("lang=de; Path=/")
    site.answers["/a"] = echo("Cookie")
    source = door(cookies={"127.0.0.1": {"lang": "en"}})

    assert await source.get(f"{site.url}/a") == "lang=en"
    await source.get(f"{site.url}/set")

    assert await source.get(f"{site.url}/a") == "lang=de"


async def test_a_secret_start_cookie_travels_encrypted_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_SESSION", SECRET)
    seen: list[str] = []

    class Far(Middleware):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del usage
            seen.append(request.headers.get("Cookie", "none"))
            return Page(request.url, 200, {}, b"")

    session = SecretRef.parse("env:SHOP_SESSION")
    middleware = IdentityMiddleware(
        Far(), cookies={"shop.test": {"session": session, "lang": "en"}}
    )

    await middleware(Request("http://shop.test/"), Usage())
    await middleware(Request("https://shop.test/"), Usage())

    assert seen == ["lang=en", f"session={SECRET}; lang=en"]


@pytest.mark.parametrize("value", ["", f"{SECRET}; Domain=x"])
async def test_the_error_of_a_missing_start_cookie_has_no_value(
    site: ScriptedSite, door: Make, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SHOP_SESSION", value)
    cookies = {"127.0.0.1": {"session": SecretRef.parse("env:SHOP_SESSION")}}

    error = await failure_of(door(cookies=cookies), f"{site.url}/a", AuthFailed)

    assert "env:SHOP_SESSION" in error
    assert SECRET not in error
    assert site.hits["/a"] == 0


async def test_a_cookie_that_the_cache_repeats_does_not_replace_a_newer_one() -> None:
    sent: list[str] = []
    answers = [
        Page("https://shop.test/", 200, {"set-cookie": "a=new; Path=/"}, b""),
        Page("https://shop.test/", 200, {"set-cookie": "a=old; Path=/"}, b"", is_cached=True),
        Page("https://shop.test/", 200, {}, b""),
    ]

    class Scripted(Middleware):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del usage
            sent.append(request.headers.get("Cookie", "none"))
            return answers.pop(0)

    middleware = IdentityMiddleware(Scripted())
    for _ in range(3):
        await middleware(Request("https://shop.test/"), Usage())

    assert sent == ["none", "a=new", "a=new"]


async def test_a_request_without_anything_to_add_goes_on_as_it_is(clock: VirtualClock) -> None:
    del clock
    passed: list[Request] = []

    class Passing(Middleware):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del usage
            passed.append(request)
            return Page(request.url, 200, {}, b"")

    request = Request("https://shop.test/")
    await IdentityMiddleware(Passing())(request, Usage())

    assert passed[0] is request
