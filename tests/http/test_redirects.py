"""Redirects: which secrets go along, seen from where the request would leave."""

from __future__ import annotations

import pytest

from longline.core.model import Usage
from longline.http.errors import BadAnswer
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.status import RedirectMiddleware

SECRETS = {"Authorization": "Bearer s", "Cookie": "a=1", "X-Thing": "1"}


class Moved(Middleware):
    """Sends the first request elsewhere, and remembers what comes there."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.arrived: list[Request] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        self.arrived.append(request)
        if len(self.arrived) > 1:
            return Page(request.url, 200, {}, b"")
        return Page(request.url, 302, {"location": self.target}, b"")


@pytest.mark.parametrize(
    ("start", "target", "is_trusted"),
    [
        ("https://x.test/a", "/b", True),
        ("https://x.test/a", "https://X.test/b", True),
        ("http://x.test/a", "https://x.test/b", True),
        ("https://x.test/a", "http://x.test/b", False),
        ("https://x.test/a", "https://y.test/b", False),
        ("https://x.test/a", "//y.test/b", False),
        ("https://x.test/a", "https://x.test.evil.test/b", False),
        ("https://x.test/a", "https://x.test@evil.test/b", False),
        ("http://x.test:1/a", "http://x.test:2/b", False),
    ],
)
async def test_secrets_go_along_only_where_they_are_as_safe(
    start: str, target: str, *, is_trusted: bool
) -> None:
    moved = Moved(target)

    await RedirectMiddleware(moved)(Request(start, headers=SECRETS, hidden={"key": "s"}), Usage())

    arrived = moved.arrived[1]
    assert arrived.headers == (SECRETS if is_trusted else {"X-Thing": "1"})
    assert arrived.hidden == ({"key": "s"} if is_trusted else {})


@pytest.mark.parametrize(
    ("target", "arrived"),
    [
        ("https://user:geheim@x.test/b", "https://x.test/b"),
        ("https://user@y.test/b", "https://y.test/b"),
        ("//user:geheim@y.test/b", "https://y.test/b"),
        (" https://user:geheim@y.test/b", "https://y.test/b"),
        ("ht\ttps://user:geh\teim@y.test/b", "https://y.test/b"),
        ("https:/\t/user:geheim@y.test/b", "https://y.test/b"),
        ("https://user:geheim@evil@y.test/b?c@d", "https://y.test/b?c@d"),
        ("https://y.test/@user:name@b", "https://y.test/@user:name@b"),
    ],
)
async def test_a_user_in_a_target_is_dropped(target: str, arrived: str) -> None:
    moved = Moved(target)

    page = await RedirectMiddleware(moved)(Request("https://x.test/a"), Usage())

    assert moved.arrived[1].url == page.url == arrived


async def test_a_user_that_the_operator_wrote_stays_for_relative_targets() -> None:
    moved = Moved("/b")

    await RedirectMiddleware(moved)(Request("https://me:own@x.test/a"), Usage())

    assert moved.arrived[1].url == "https://me:own@x.test/b"


async def test_the_user_in_a_refused_target_is_not_shown() -> None:
    with pytest.raises(BadAnswer) as caught:
        await RedirectMiddleware(Moved("ftp://user:geheim@y.test/"))(
            Request("https://x.test/"), Usage()
        )

    assert "geheim" not in str(caught.value)


async def test_secrets_left_behind_do_not_come_back_on_the_way_home() -> None:
    class ThereAndBack(Moved):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            del usage
            self.arrived.append(request)
            if len(self.arrived) > 2:
                return Page(request.url, 200, {}, b"")
            target = ["https://y.test/", "https://x.test/"][len(self.arrived) - 1]
            return Page(request.url, 302, {"location": target}, b"")

    moved = ThereAndBack("")

    await RedirectMiddleware(moved)(Request("https://x.test/", headers=SECRETS), Usage())

    assert moved.arrived[2].headers == {"X-Thing": "1"}
