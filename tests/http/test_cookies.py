"""Cookies by RFC 6265: whose they are, and in which order they are sent."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.identity import IdentityMiddleware, is_public_suffix


class Sites(Middleware):
    """Sets cookies at one address, and remembers what each request sent."""

    def __init__(self, url: str, cookies: list[str]) -> None:
        self._url = url
        self._cookies = cookies
        self.sent: list[str] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        self.sent.append(request.headers.get("Cookie", "none"))
        lines = self._cookies if request.url == self._url else []
        return Page(request.url, 200, CIMultiDict(("Set-Cookie", line) for line in lines), b"")


async def sent_after(setting: str, cookies: list[str], asking: str) -> str:
    sites = Sites(setting, cookies)
    identity = IdentityMiddleware(sites)
    await identity(Request(setting), Usage())
    await identity(Request(asking), Usage())
    return sites.sent[-1]


@pytest.mark.parametrize(
    "domain",
    ["Shop.Example.COM", ".Shop.Example.COM", "EXAMPLE.com", '"Example.com"', "  example.com  "],
)
async def test_the_case_of_a_domain_does_not_matter(domain: str) -> None:
    cookies = [f"session=1; DOMAIN={domain}; Path=/"]

    sent = await sent_after("https://shop.example.com/login", cookies, "https://shop.example.com/")

    assert sent == "session=1"


async def test_an_international_domain_is_compared_in_its_ascii_form() -> None:
    cookies = ["session=1; Domain=Bücher.example.com; Path=/"]

    sent = await sent_after(
        "https://xn--bcher-kva.example.com/", cookies, "https://www.bücher.example.com/"
    )

    assert sent == "session=1"


@pytest.mark.parametrize(
    ("host", "domain", "stranger"),
    [
        ("shop.org", ".org", "other.org"),
        ("shop.org", "ORG", "other.org"),
        ("shop.co.uk", "co.uk", "other.co.uk"),
        ("a.github.io", "github.io", "b.github.io"),
        ("a.intranet", "intranet", "b.intranet"),
    ],
)
async def test_a_cookie_for_a_public_suffix_is_refused(
    host: str, domain: str, stranger: str
) -> None:
    cookies = [f"a=1; Domain={domain}; Path=/"]

    assert await sent_after(f"https://{host}/", cookies, f"https://{stranger}/") == "none"
    assert await sent_after(f"https://{host}/", cookies, f"https://{host}/") == "none"


@pytest.mark.parametrize("host", ["github.io", "localhost", "127.0.0.1"])
async def test_a_host_that_is_a_public_suffix_keeps_its_own_cookie(host: str) -> None:
    cookies = [f"a=1; Domain={host}; Path=/"]

    assert await sent_after(f"http://{host}/", cookies, f"http://{host}/x") == "a=1"
    assert await sent_after(f"http://{host}/", cookies, f"http://sub.{host}/x") == "none"


async def test_of_several_domains_the_last_counts() -> None:
    cookies = ["a=1; Domain=evil.com; Domain=example.com; Path=/"]

    assert await sent_after("https://example.com/", cookies, "https://www.example.com/") == "a=1"


async def test_an_empty_domain_means_this_host_only() -> None:
    cookies = ["a=1; Domain=; Path=/"]

    assert await sent_after("https://example.com/", cookies, "https://example.com/") == "a=1"
    assert await sent_after("https://example.com/", cookies, "https://www.example.com/") == "none"


async def test_a_secure_cookie_of_the_same_name_stays_out_of_plain_http() -> None:
    cookies = ["a=open; Path=/", "a=closed; Path=/x; Secure"]

    assert await sent_after("https://example.com/", cookies, "http://example.com/x") == "a=open"


async def test_more_cookies_than_a_header_holds_are_limited() -> None:
    cookies = [f"c{n}={'x' * 200}; Path=/" for n in range(100)]

    sent = await sent_after("https://example.com/", cookies, "https://example.com/")

    assert 0 < len(sent) <= 8190


def test_the_list_is_bundled() -> None:
    assert is_public_suffix("co.uk")
    assert not is_public_suffix("example.co.uk")
