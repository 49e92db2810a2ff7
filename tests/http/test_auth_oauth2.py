"""OAuth 2 with client credentials, against a token server that checks what it is sent."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed, Refused, ServerFailed, Throttled
from longline.http.errors import AuthFailed, BadAnswer
from tests.http.signing_in import SECRET, Door, elsewhere, failure_of, host_of
from tests.scripted_site import Answer, ScriptedSite, drop
from tests.virtual import VirtualClock

Make = Callable[..., Door]


class TokenServer:
    """Issues t1, t2, …; accepts the newest and those in a list."""

    def __init__(self, site: ScriptedSite) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.lifetime: Any = 3600
        self.is_strict = True
        site.answers["/token"] = self._give
        site.answers["/a"] = self._check

    async def _give(self, request: web.Request) -> web.StreamResponse:
        fields = dict(await request.post())
        self.asked.append((request.headers.get("Authorization", ""), fields))
        await asyncio.sleep(1)
        token = {"access_token": f"t{len(self.asked)}", "token_type": "Bearer"}
        more = {} if self.lifetime is None else {"expires_in": self.lifetime}
        return web.json_response({**token, **more})

    async def _check(self, request: web.Request) -> web.StreamResponse:
        shown = request.headers.get("Authorization", "")
        is_known = shown == f"Bearer t{len(self.asked)}" or not self.is_strict
        return web.Response(text=shown, status=200 if is_known else 401)


@pytest.fixture
def server(site: ScriptedSite) -> TokenServer:
    return TokenServer(site)


@pytest.fixture
async def door(
    site: ScriptedSite, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    monkeypatch.setenv("SHOP_PW", SECRET)
    async with AsyncExitStack() as closing:

        def make(**values: Any) -> Door:
            auth = {
                "kind": "oauth2",
                "hosts": [host_of(site)],
                "token_url": f"{site.url}/token",
                "client_id": "u s",
                "client_secret": "env:SHOP_PW",
            }
            made = Door(clock, {**auth, **values})
            closing.push_async_callback(made.transport.close)
            return made

        yield make


async def test_a_token_is_fetched_once_and_used_by_all(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    source = door()

    texts = await source.get_all(*[f"{site.url}/a"] * 5)

    assert texts == ["Bearer t1"] * 5
    assert len(server.asked) == 1
    assert source.usage.requests == 6
    assert source.events_of("auth.token") == [{"host": host_of(site), "seconds": 3600}]


async def test_id_and_secret_go_as_basic_authentication_each_encoded(
    site: ScriptedSite, server: TokenServer, door: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PW", "a:b/ö")

    await door(scope="read write", audience="shop").get(f"{site.url}/a")

    header, fields = server.asked[0]
    assert base64.b64decode(header.removeprefix("Basic ")) == b"u+s:a%3Ab%2F%C3%B6"
    wanted = {"grant_type": "client_credentials", "scope": "read write", "audience": "shop"}
    assert fields == wanted


async def test_id_and_secret_go_in_the_body_where_that_is_wanted(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    source = door(how="body", extra={"tenant": "env:SHOP_PW", "v": 2})

    await source.get(f"{site.url}/a")

    assert server.asked[0] == (
        "",
        {
            "grant_type": "client_credentials",
            "client_id": "u s",
            "client_secret": SECRET,
            "tenant": SECRET,
            "v": "2",
        },
    )
    assert SECRET not in "".join(source.seen.requests)


@pytest.mark.parametrize(
    ("lifetime", "age", "tokens"),
    [(3600, 3500, 1), (3600, 3575, 2), (20, 15, 1), (20, 19, 2), ("60", 70, 2), (None, 9999, 1)],
)
async def test_a_token_is_renewed_shortly_before_it_ends(
    site: ScriptedSite,
    server: TokenServer,
    door: Make,
    clock: VirtualClock,
    *,
    lifetime: Any,
    age: float,
    tokens: int,
) -> None:
    server.lifetime = lifetime
    source = door()
    started = clock.now()

    await source.get(f"{site.url}/a")
    await clock.sleep(started + age - clock.now())
    await source.get(f"{site.url}/a")

    assert len(server.asked) == tokens


async def test_a_token_that_lives_no_time_is_used_once(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    server.lifetime = 0
    source = door()

    assert [await source.get(f"{site.url}/a") for _ in range(2)] == ["Bearer t1", "Bearer t2"]


async def test_a_401_renews_the_token_once_for_all_and_asks_again_once(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    source = door()
    await source.get(f"{site.url}/a")
    server.asked.append(("", {}))  # another client got t2, which ends ours

    texts = await source.get_all(*[f"{site.url}/a"] * 4)

    assert texts == ["Bearer t3"] * 4
    assert len(server.asked) == 3
    assert site.hits["/a"] == 1 + 4 + 4


async def test_what_is_asked_again_is_not_answered_by_a_cache_that_kept_the_refusal(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    asked: list[str | None] = []

    async def note(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Cache-Control"))
        return web.Response(status=200 if len(asked) == 2 else 401)

    site.answers["/a"] = note

    await door().get(f"{site.url}/a")

    assert asked == [None, "no-cache"]
    assert len(server.asked) == 2


async def test_a_new_token_that_does_not_help_is_the_last_until_one_does(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    site.says("/mine", status=401)
    source = door()

    for _ in range(3):
        assert " 401" in await failure_of(source, f"{site.url}/mine", Refused)
    assert (len(server.asked), site.hits["/mine"]) == (2, 4)

    assert await source.get(f"{site.url}/a") == "Bearer t2"
    await failure_of(source, f"{site.url}/mine", Refused)
    assert len(server.asked) == 3


async def test_a_refusal_quotes_the_server_and_is_not_tried_again(
    site: ScriptedSite, door: Make
) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        error = {"error": "invalid_client", "error_description": f"{SECRET} is\nnot known"}
        return web.json_response(error, status=401)

    site.answers["/token"] = refuse
    source = door()

    error = await failure_of(source, f"{site.url}/a", AuthFailed)
    again = await failure_of(source, f"{site.url}/b", AuthFailed)

    assert error == again
    assert error.startswith(host_of(site))
    assert "401" in error
    assert "invalid_client: *** is not known" in error  # the words of the server, redacted
    assert (site.hits["/token"], site.hits["/a"], site.hits["/b"]) == (1, 0, 0)
    assert SECRET not in repr(source.usage)
    assert len(source.events_of("auth.failed")) == 1


def answers(body: str, status: int = 200, **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=status, headers=headers)

    return answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (answers("<html>"), "200"),
        (answers("[]"), "200"),
        (answers('{"access_token": 7}'), "200"),
        (answers('{"access_token": "a\\nb"}'), "200"),
        (answers('{"access_token": "a", "token_type": "mac"}'), "mac"),
        (answers("", 400), "400"),
        (answers("", 302, Location="https://evil.test/token"), "302"),
        (answers('{"error": "' + "x" * 999 + '"}', 400), "xxx"),
    ],
)
async def test_an_answer_without_a_token_is_a_refusal(
    site: ScriptedSite, door: Make, answer: Answer, problem: str
) -> None:
    site.answers["/token"] = answer

    error = await failure_of(door(), f"{site.url}/a", AuthFailed)

    assert problem in error
    assert len(error) < 400
    assert site.hits["/a"] == 0


@pytest.mark.parametrize(
    ("status", "kind"), [(500, ServerFailed), (503, Throttled), (429, Throttled)]
)
async def test_a_token_server_in_trouble_is_no_refusal(
    site: ScriptedSite, server: TokenServer, door: Make, status: int, kind: Any
) -> None:
    give = site.answers["/token"]
    site.answers["/token"] = answers("", status, **{"Retry-After": "7"})
    source = door()

    error = await failure_of(source, f"{site.url}/a", kind)
    site.answers["/token"] = give

    assert "7 s" in error
    assert await source.get(f"{site.url}/a") == "Bearer t1"
    assert len(server.asked) == 1


async def test_a_token_server_that_hangs_up_is_no_refusal(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    give = site.answers["/token"]
    site.answers["/token"] = drop
    source = door(how="body")

    await failure_of(source, f"{site.url}/a", ConnectFailed)
    site.answers["/token"] = give

    assert await source.get(f"{site.url}/a") == "Bearer t1"
    assert len(server.asked) == 1


async def test_the_token_stays_with_its_hosts(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    server.is_strict = False
    site.says("/away", status=307, headers={"Location": f"{elsewhere(site)}/a"})
    source = door()

    assert await source.get(f"{site.url}/away") == ""
    assert await source.get(f"{elsewhere(site)}/a") == ""
    assert await source.get(f"{site.url}/a") == "Bearer t1"


async def test_a_cancelled_waiter_does_not_cancel_the_token_request(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    source = door()
    first = asyncio.create_task(source.get(f"{site.url}/a"))
    second = asyncio.create_task(source.get(f"{site.url}/a"))
    await asyncio.sleep(0.5)

    first.cancel()

    assert await second == "Bearer t2"
    assert len(server.asked) == 2
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_redirect_in_circles_still_ends(
    site: ScriptedSite, server: TokenServer, door: Make
) -> None:
    site.says("/round", status=302, headers={"Location": "/round"})

    with pytest.raises(BadAnswer):
        await door().get(f"{site.url}/round")

    assert len(server.asked) == 1
