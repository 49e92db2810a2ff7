"""The cookie jars of spiders."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.http.request import VerboseCookie

from longline.sources.spider import Jars


def sent_after(setting: str, cookie: str, asking: str) -> str | None:
    jars = Jars()
    jars.take(Request(setting), Response(setting, headers={"Set-Cookie": cookie}))
    request = Request(asking)
    jars.dress(request)
    found = request.headers.get("Cookie")
    return None if found is None else found.decode()


@pytest.mark.parametrize("domain", ["co.uk", ".co.uk", "uk"])
def test_a_cookie_for_a_public_suffix_is_refused(domain: str) -> None:
    cookie = f"a=1; Domain={domain}; Path=/"

    assert sent_after("https://shop.co.uk/", cookie, "https://other.co.uk/") is None


def test_a_cookie_for_the_registered_domain_is_kept() -> None:
    cookie = "a=1; Domain=Shop.CO.uk; Path=/"

    assert sent_after("https://www.shop.co.uk/", cookie, "https://api.shop.co.uk/") == "a=1"


def test_a_request_cannot_bring_a_cookie_for_a_public_suffix() -> None:
    jars = Jars()
    cookie: VerboseCookie = {"name": "a", "value": "1", "domain": "co.uk", "path": "/"}
    jars.dress(Request("https://shop.co.uk/", cookies=[cookie]))
    stranger = Request("https://other.co.uk/")
    jars.dress(stranger)

    assert stranger.headers.get("Cookie") is None


def dressed(url: str, cookies: Any) -> bytes | None:
    request = Request(url, cookies=cookies)
    Jars().dress(request)
    return request.headers.get("Cookie")


def test_a_cookie_of_a_request_without_name_or_value_is_left_out() -> None:
    cookies = [{"value": "x"}, {"name": "a"}, {"name": "b", "value": None}]

    assert dressed("http://shop.test/", [*cookies, {"name": "c", "value": "1"}]) == b"c=1"


def test_bytes_that_are_not_utf_8_are_read_as_latin_1() -> None:
    assert dressed("http://shop.test/", {"a": b"\xe1"}) == "a=\u00e1".encode()


@pytest.mark.parametrize(("said", "sent"), [({}, None), ({"secure": False}, b"a=1")])
def test_a_cookie_of_an_https_request_stays_there_unless_said_otherwise(
    said: dict[str, bool], sent: bytes | None
) -> None:
    jars = Jars()
    cookies: Any = [{"name": "a", "value": "1", **said}]
    jars.dress(Request("https://shop.test/", cookies=cookies))
    plain = Request("http://shop.test/")
    jars.dress(plain)

    assert plain.headers.get("Cookie") == sent
