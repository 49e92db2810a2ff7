"""Whatever goes wrong, no text that anybody could read has the secret in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed, FetchError, ServerFailed
from longline.http.errors import BadAnswer, BodyCut, TimedOut
from longline.http.messages import Redacted, RedactedBody
from tests.http.signing_in import SECRET, Door, failure_of, host_of
from tests.scripted_site import Answer, ScriptedSite, drop
from tests.virtual import VirtualClock

Make = Callable[..., Door]


async def stay_silent(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def cut_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"half")
    assert request.transport is not None
    request.transport.abort()
    return response


async def speak_nonsense(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(b"HTTP/1.1 what\r\n\r\n")
    request.transport.close()
    return web.Response()


async def fail(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


async def go_in_circles(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": request.path})


WAYS_TO_FAIL: list[tuple[Answer, type[FetchError]]] = [
    (drop, ConnectFailed),
    (stay_silent, TimedOut),
    (cut_off, BodyCut),
    (speak_nonsense, BadAnswer),
    (fail, ServerFailed),
    (go_in_circles, BadAnswer),
]
QUERY = {"kind": "query", "name": "key", "value": "env:SHOP_PW"}
HEADER = {"kind": "header", "name": "X-Api-Key", "value": "env:SHOP_PW"}
OAUTH2 = {"kind": "oauth2", "client_id": "us", "client_secret": "env:SHOP_PW", "how": "body"}
LOGIN = {"kind": "login", "fields": {"user": "me", "password": "env:SHOP_PW"}, "form": False}


@pytest.fixture
async def door(
    site: ScriptedSite, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    monkeypatch.setenv("SHOP_PW", SECRET)
    async with AsyncExitStack() as closing:

        def make(auth: dict[str, Any]) -> Door:
            made = Door(clock, {"hosts": [host_of(site)], **auth})
            closing.push_async_callback(made.transport.close)
            return made

        yield make


def shown_by(source: Door) -> str:
    """Return every text that a program could print of what took part."""
    parts = [repr(one) + str(one) for one in source.parts]
    return "\n".join([*parts, *source.seen.requests, *source.seen.urls, repr(source.usage)])


@pytest.mark.parametrize(("answer", "kind"), WAYS_TO_FAIL)
@pytest.mark.parametrize("auth", [QUERY, HEADER], ids=["query", "header"])
async def test_a_request_that_fails_does_not_tell_the_secret(
    site: ScriptedSite, door: Make, auth: dict[str, Any], answer: Answer, kind: type[FetchError]
) -> None:
    site.answers["/a"] = answer
    source = door(auth)

    error = await failure_of(source, f"{site.url}/a", kind)

    assert "/a" in error
    assert SECRET not in shown_by(source)


@pytest.mark.parametrize(("answer", "kind"), WAYS_TO_FAIL[:5])
@pytest.mark.parametrize("name", ["token_url", "url"])
async def test_a_login_that_fails_does_not_tell_the_secret(
    site: ScriptedSite, door: Make, name: str, answer: Answer, kind: type[FetchError]
) -> None:
    site.answers["/in"] = answer
    source = door({**(OAUTH2 if name == "token_url" else LOGIN), name: f"{site.url}/in"})

    error = await failure_of(source, f"{site.url}/a", kind)

    assert "/in" in error
    assert SECRET not in shown_by(source)


async def test_the_error_of_an_unknown_host_has_no_secret(door: Make) -> None:
    source = door({**QUERY, "hosts": ["127.0.0.1:1"]})

    error = await failure_of(source, "http://127.0.0.1:1/a", ConnectFailed)

    assert "http://127.0.0.1:1/a" in error
    assert SECRET not in shown_by(source)


def test_redacted_values_show_names_and_sizes() -> None:
    headers = Redacted({"X-Api-Key": SECRET})

    assert (str(headers), repr(headers)) == ("Redacted(X-Api-Key)", "Redacted(X-Api-Key)")
    assert repr(RedactedBody(SECRET.encode())) == "RedactedBody(12 bytes)"
    assert headers == {"X-Api-Key": SECRET}
