"""Secrets that go along as they are: accepted, refused, and sent nowhere else."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import Refused
from longline.http.errors import AuthFailed
from tests.http.signing_in import SECRET, Door, echo, elsewhere, failure_of, host_of
from tests.scripted_site import Answer, ScriptedSite
from tests.virtual import VirtualClock

Make = Callable[..., Door]
BASIC = {"kind": "basic", "user": "me", "password": "env:SHOP_PW"}
BEARER = {"kind": "bearer", "token": "env:SHOP_PW"}
HEADER = {"kind": "header", "name": "X-Api-Key", "value": "env:SHOP_PW"}
PREFIXED = {**HEADER, "name": "Authorization", "prefix": "Token"}
QUERY = {"kind": "query", "name": "key", "value": "env:SHOP_PW"}


@pytest.fixture
async def door(
    site: ScriptedSite, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    monkeypatch.setenv("SHOP_PW", SECRET)
    async with AsyncExitStack() as closing:

        def make(auth: dict[str, Any], **values: Any) -> Door:
            made = Door(clock, {"hosts": [host_of(site)], **auth}, **values)
            closing.push_async_callback(made.transport.close)
            return made

        yield make


def guard(name: str, value: str) -> Answer:
    """Let in who sends this header, or this parameter of the query."""

    async def answer(request: web.Request) -> web.StreamResponse:
        is_known = value in (request.headers.get(name), request.query.get(name))
        return web.Response(text="come in") if is_known else web.Response(status=401)

    return answer


PAIR = base64.b64encode(f"me:{SECRET}".encode()).decode()
KINDS = [
    (BASIC, "Authorization", f"Basic {PAIR}"),
    (BEARER, "Authorization", f"Bearer {SECRET}"),
    (HEADER, "X-Api-Key", SECRET),
    (PREFIXED, "Authorization", f"Token {SECRET}"),
    (QUERY, "key", SECRET),
]


@pytest.mark.parametrize(("auth", "name", "value"), KINDS)
async def test_the_right_secret_is_accepted(
    site: ScriptedSite, door: Make, auth: dict[str, Any], name: str, value: str
) -> None:
    site.answers["/a"] = guard(name, value)
    source = door(auth)

    page = await source.page(f"{site.url}/a?page=2")

    assert page.text == "come in"
    assert page.url == f"{site.url}/a?page=2"
    assert SECRET not in "".join(source.seen.requests)
    assert PAIR not in "".join(source.seen.requests)


@pytest.mark.parametrize(("auth", "name", "value"), KINDS)
async def test_a_wrong_secret_is_refused_once_and_never_shown(
    site: ScriptedSite, door: Make, auth: dict[str, Any], name: str, value: str
) -> None:
    site.answers["/a"] = guard(name, value + "x")
    source = door(auth)

    error = await failure_of(source, f"{site.url}/a", Refused)

    assert (f"{site.url}/a" in error, "401" in error, SECRET in error) == (True, True, False)
    assert site.hits["/a"] == 1
    assert SECRET not in repr(source.usage)


@pytest.mark.parametrize(("auth", "name", "value"), KINDS)
async def test_a_secret_does_not_follow_a_redirect_to_another_host(
    site: ScriptedSite, door: Make, auth: dict[str, Any], name: str, value: str
) -> None:
    site.answers["/a"] = guard(name, value)
    site.says("/away", status=302, headers={"Location": f"{elsewhere(site)}/a"})
    site.says("/here", status=302, headers={"Location": "/a"})
    source = door(auth)

    assert await source.get(f"{site.url}/here") == "come in"
    assert await failure_of(source, f"{site.url}/away", Refused)


async def test_a_host_that_is_not_listed_gets_no_secret_and_one_event(
    site: ScriptedSite, door: Make
) -> None:
    site.answers["/a"] = guard("Authorization", f"Bearer {SECRET}")
    source = door({**BEARER, "hosts": ["api.shop.test"]})

    for _ in range(2):
        await failure_of(source, f"{site.url}/a", Refused)

    assert source.events_of("auth.withheld") == [
        {"host": host_of(site), "hosts": ["api.shop.test"]}
    ]


async def test_an_unencrypted_host_is_not_asked_at_all(door: Make) -> None:
    source = door({**BEARER, "hosts": ["shop.test"]})

    error = await failure_of(source, "http://shop.test/a", AuthFailed)

    assert "shop.test" in error
    assert "https" in error
    assert "allow_http: true" in error
    assert source.seen.urls == []


async def test_robots_are_asked_for_as_anybody_would(site: ScriptedSite, door: Make) -> None:
    site.answers["/robots.txt"] = echo("Authorization")

    assert await door(BEARER).get(f"{site.url}/robots.txt") == "none"


async def test_a_header_that_the_source_sets_itself_wins(site: ScriptedSite, door: Make) -> None:
    site.answers["/a"] = echo("Authorization")

    text = await door(BEARER).get(f"{site.url}/a", headers={"authorization": "mine"})

    assert text == "mine"


async def test_the_proof_wins_over_the_headers_of_the_source(
    site: ScriptedSite, door: Make
) -> None:
    site.answers["/a"] = echo("X-Api-Key")

    assert await door(HEADER, headers={"x-api-key": "none of it"}).get(f"{site.url}/a") == SECRET


async def test_user_and_password_may_have_any_letters(
    site: ScriptedSite, door: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PW", "pä:ß wort")
    site.answers["/a"] = echo("Authorization")

    text = await door({**BASIC, "user": "jürgen"}).get(f"{site.url}/a")

    assert base64.b64decode(text.removeprefix("Basic ")).decode() == "jürgen:pä:ß wort"


async def test_a_secret_in_the_query_is_encoded(
    site: ScriptedSite, door: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PW", "a&b=c d#é")
    site.answers["/a"] = guard("key", "a&b=c d#é")

    assert await door(QUERY).get(f"{site.url}/a") == "come in"


@pytest.mark.parametrize("auth", [BEARER, HEADER])
async def test_a_secret_that_a_header_cannot_hold_is_refused_without_showing_it(
    site: ScriptedSite, door: Make, auth: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PW", f"{SECRET}\r\nX-Evil: 1")

    error = await failure_of(door(auth), f"{site.url}/a", AuthFailed)

    assert "env:SHOP_PW" in error
    assert SECRET not in error


async def test_without_its_secret_nothing_is_requested(
    site: ScriptedSite, door: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_PW")

    error = await failure_of(door(BEARER), f"{site.url}/a", AuthFailed)

    assert "SHOP_PW" in error
    assert site.hits["/a"] == 0
