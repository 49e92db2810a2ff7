"""Logging in with a form, against a site that checks the form and keeps sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import Refused, ServerFailed
from longline.http.errors import AuthFailed
from tests.http.signing_in import SECRET, Door, elsewhere, failure_of, host_of
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

Make = Callable[..., Door]
FORM = (
    '<form action="/check" method="post"><input type="hidden" name="csrf" value="{}">'
    '<input name="user"><input type="password" name="password"></form>'
)


class Club:
    """A site for members: a form with a one-time token, sessions in cookies."""

    def __init__(self, site: ScriptedSite) -> None:
        self.site = site
        self.tokens = 0
        self.members: set[str] = set()
        self.sent: list[dict[str, Any]] = []
        self.turns_away_with = 302
        site.answers["/login"] = self._show
        site.answers["/check"] = self._check
        site.answers["/home"] = self._guarded
        site.answers["/a"] = self._guarded

    async def _show(self, _request: web.Request) -> web.StreamResponse:
        self.tokens += 1
        response = web.Response(text=FORM.format(f"once{self.tokens}"), content_type="text/html")
        response.set_cookie("visitor", str(self.tokens))
        return response

    async def _check(self, request: web.Request) -> web.StreamResponse:
        fields = dict(await request.post())
        self.sent.append(fields)
        await asyncio.sleep(1)
        is_right = fields.get("password") == SECRET and fields.get("csrf") == f"once{self.tokens}"
        if not is_right or request.cookies.get("visitor") != str(self.tokens):
            return await self._show(request)
        session = f"s{len(self.sent)}"
        self.members.add(session)
        response = web.Response(status=302, headers={"Location": "/home"})
        response.set_cookie("session", session)
        return response

    async def _guarded(self, request: web.Request) -> web.StreamResponse:
        if request.cookies.get("session") in self.members:
            return web.Response(text="<p id=hello>hello member", content_type="text/html")
        if self.turns_away_with == 302:
            return web.Response(status=302, headers={"Location": "/login?next=/a"})
        text = "<p class=members-only>for members"
        return web.Response(text=text, status=self.turns_away_with, content_type="text/html")


@pytest.fixture
def club(site: ScriptedSite) -> Club:
    return Club(site)


@pytest.fixture
async def door(
    site: ScriptedSite, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    monkeypatch.setenv("SHOP_PW", SECRET)
    async with AsyncExitStack() as closing:

        def make(**values: Any) -> Door:
            fields = {"user": "me", "password": "env:SHOP_PW"}
            auth = {"kind": "login", "url": f"{site.url}/login", "fields": fields}
            made = Door(clock, {**auth, **values})
            closing.push_async_callback(made.transport.close)
            return made

        yield make


async def test_a_form_is_read_filled_in_and_sent_and_its_cookie_opens_the_site(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    source = door()

    assert "hello member" in await source.get(f"{site.url}/a")

    assert club.sent == [{"csrf": "once1", "user": "me", "password": SECRET}]
    assert source.events_of("auth.login") == [{"host": host_of(site)}]
    assert SECRET not in "".join(source.seen.requests) + repr(source.usage)


async def test_concurrent_requests_log_in_once(site: ScriptedSite, club: Club, door: Make) -> None:
    texts = await door().get_all(*[f"{site.url}/a"] * 6)

    assert all("hello member" in text for text in texts)
    assert len(club.sent) == 1


@pytest.mark.parametrize(
    ("away", "logged_out"),
    [
        (302, None),
        (302, {"redirect": "/login"}),
        (401, None),
        (403, {"status": 403}),
        (200, {"selector": "p.members-only"}),
    ],
)
async def test_a_lost_session_is_noticed_and_begun_again_once_for_all(
    site: ScriptedSite, club: Club, door: Make, away: int, logged_out: Any
) -> None:
    club.turns_away_with = away
    source = door(logged_out=logged_out)
    await source.get(f"{site.url}/a")

    club.members.clear()
    texts = await source.get_all(*[f"{site.url}/a"] * 4)

    assert all("hello member" in text for text in texts)
    assert len(club.sent) == 2
    assert {one["host"] for one in source.events_of("auth.ended")} == {host_of(site)}


@pytest.mark.parametrize("away", [302, 200])
async def test_a_login_that_does_not_last_is_not_tried_for_ever(
    site: ScriptedSite, club: Club, door: Make, away: int
) -> None:
    async def nobody(_request: web.Request) -> web.StreamResponse:
        headers = {"Location": "/login?again"} if away == 302 else {}
        text = "<p class=members-only>"
        return web.Response(status=away, text=text, content_type="text/html", headers=headers)

    site.answers["/closed"] = nobody
    source = door(logged_out=None if away == 302 else {"selector": "p.members-only"})
    sign = f"{site.url}/login" if away == 302 else "p.members-only"

    for _ in range(3):
        error = await failure_of(source, f"{site.url}/closed", AuthFailed)
        assert error.startswith(host_of(site))
        assert sign in error

    assert (len(club.sent), site.hits["/closed"]) == (2, 4)
    assert "hello member" in await source.get(f"{site.url}/a")


async def test_a_401_after_a_new_login_is_returned(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    site.says("/closed", status=401)
    source = door()

    assert "401" in await failure_of(source, f"{site.url}/closed", Refused)
    assert len(club.sent) == 2


async def test_a_wrong_password_is_sent_once_in_a_run(
    site: ScriptedSite, club: Club, door: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PW", SECRET + "x")
    source = door()

    error = await failure_of(source, f"{site.url}/a", AuthFailed)
    again = await failure_of(source, f"{site.url}/b", AuthFailed)

    assert error == again
    assert error.startswith(host_of(site))
    assert "password" in error
    assert "200" in error
    assert (len(club.sent), site.hits["/a"], site.hits["/b"]) == (1, 0, 0)
    assert SECRET not in repr(source.usage)


@pytest.mark.parametrize(
    ("success", "problem"),
    [
        ({"status": 302}, "form"),
        ({"selector": "#hello"}, "#hello"),
        ({"cookie": "session"}, "cookie"),
    ],
)
async def test_success_is_judged_as_it_was_declared(
    site: ScriptedSite,
    club: Club,
    door: Make,
    monkeypatch: pytest.MonkeyPatch,
    *,
    success: dict[str, Any],
    problem: str,
) -> None:
    assert "hello member" in await door(success=success).get(f"{site.url}/a")
    monkeypatch.setenv("SHOP_PW", "wrong")

    error = await failure_of(door(success=success), f"{site.url}/a", AuthFailed)

    assert problem in error
    assert "200" in error
    assert len(club.sent) == 2


async def test_a_cookie_that_is_taken_away_is_no_success(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    del club
    site.says("/check", "no", headers={"Set-Cookie": "session=; Max-Age=0"})

    error = await failure_of(door(success={"cookie": "session"}), f"{site.url}/a", AuthFailed)

    assert re.search("cookie.*session", error)
    assert "200" in error


@pytest.mark.parametrize(("status", "problem"), [(403, "403"), (200, "cookie")])
async def test_without_a_form_to_read_the_fields_are_sent_to_the_address(
    site: ScriptedSite, door: Make, status: int, problem: str
) -> None:
    site.says("/login", "ok", status=status)

    error = await failure_of(door(form=False), f"{site.url}/a", AuthFailed)

    assert problem in error
    assert site.hits["/login"] == 1


async def test_a_page_without_the_form_fails_the_login(site: ScriptedSite, door: Make) -> None:
    site.says("/login", "<form><input name=q></form>", headers={"Content-Type": "text/html"})

    error = await failure_of(door(), f"{site.url}/a", AuthFailed)
    named = await failure_of(door(form="form.in"), f"{site.url}/a", AuthFailed)

    assert "200" in error
    assert "password" in error
    assert "200" in named
    assert "'form.in'" in named


async def test_a_form_without_the_fields_is_reported_with_those_it_has(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    del club
    fields = {"name": "me", "pass": "env:SHOP_PW"}

    error = await failure_of(door(fields=fields), f"{site.url}/a", AuthFailed)

    assert re.search(r"\bname, pass\b.*\bcsrf, user, password\b", error)
    assert site.hits["/check"] == 1


async def test_a_form_that_would_show_the_password_in_the_address_is_not_sent(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    site.says("/login", "<form action=/check><input type=password name=password></form>")

    error = await failure_of(door(), f"{site.url}/a", AuthFailed)

    assert "password" in error
    assert (club.sent, site.hits["/check"]) == ([], 0)


async def test_a_form_that_leads_to_another_host_is_not_sent(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    action = f"{elsewhere(site)}/check"
    site.says("/login", FORM.replace("/check", action))

    error = await failure_of(door(), f"{site.url}/a", AuthFailed)

    assert "localhost" in error
    assert club.sent == []


async def test_a_filled_form_does_not_follow_a_redirect_to_another_host(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    site.says("/turn", status=307, headers={"Location": f"{elsewhere(site)}/check"})
    site.says("/login", FORM.replace("/check", "/turn"))

    error = await failure_of(door(), f"{site.url}/a", AuthFailed)

    assert "localhost" in error
    assert club.sent == []


@pytest.mark.parametrize("path", ["/login", "/check"])
async def test_a_site_in_trouble_is_no_refusal(
    site: ScriptedSite, club: Club, door: Make, path: str
) -> None:
    works = site.answers[path]
    site.says(path, status=500)
    source = door()

    await failure_of(source, f"{site.url}/a", ServerFailed)
    site.answers[path] = works

    assert "hello member" in await source.get(f"{site.url}/a")
    assert len(club.sent) == 1


async def test_other_hosts_and_robots_need_no_login(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    site.says("/robots.txt", "User-agent: *")
    site.says("/open", "open")
    source = door()

    await source.get(f"{site.url}/robots.txt")
    await source.get(f"{elsewhere(site)}/open")

    assert club.sent == []


async def test_the_cookies_of_a_login_stay_with_their_host(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    club.turns_away_with = 403
    site.says("/away", status=302, headers={"Location": f"{elsewhere(site)}/a"})

    assert " 403" in await failure_of(door(), f"{site.url}/away", Refused)


async def test_a_login_page_that_moved_is_recognised(
    site: ScriptedSite, club: Club, door: Make
) -> None:
    site.says("/enter", status=302, headers={"Location": "/login"})
    source = door(url=f"{site.url}/enter")
    await source.get(f"{site.url}/a")

    club.members.clear()

    assert "hello member" in await source.get(f"{site.url}/a")
    assert len(club.sent) == 2


async def test_every_run_logs_in_for_itself(site: ScriptedSite, club: Club, door: Make) -> None:
    await door().get(f"{site.url}/a")
    await door().get(f"{site.url}/a")

    assert len(club.sent) == 2
