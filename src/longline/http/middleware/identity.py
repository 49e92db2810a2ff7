"""The link that shows who asks: the source's headers, and the cookies of its run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from multidict import MultiMapping
from yarl import URL

from longline.config.errors import UnknownSecret
from longline.config.identity import COOKIE_VALUE, StartCookies
from longline.config.secrets import SecretRef, is_loopback, plain
from longline.core.errors import BadOption
from longline.core.model import Usage
from longline.http.cookies import CookieJar, checked_set_cookie
from longline.http.errors import AuthFailed
from longline.http.headers import Redacted, has_header, with_header
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware

_MAIL = re.compile(r"[^\s@()<>:/]+@[^\s@()<>:/]+\.[^\s@()<>:/]+")
_PAGE = re.compile(r"https?://[^\s@()<>/]+\.[^\s()<>]+")
_PRODUCT = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(/[!#$%&'*+.^_`|~0-9A-Za-z-]+)?")


def user_agent(version: str, contact: str | None = None, product: str | None = None) -> str:
    """Return the User-Agent that says honestly who asks, and how to reach them.

    Args:
        version: that of longline.
        contact: a mail address or a web page of whoever runs it.
        product: a name of the user's own, such as `prices-of-acme/2.0`; longline stays named.

    Raises:
        BadOption: the contact or the product is not one.
    """
    us = f"longline/{version}"
    if product is not None:
        if not _PRODUCT.fullmatch(product):
            raise BadOption("product", "must be a word, or a word and a version: acme-prices/2.0")
        us = f"{product} {us}"
    return f"{us} ({_reach(contact)})"


def _reach(contact: str | None) -> str:
    if contact is None:
        return "no contact given"
    if not contact.isascii() or not contact.isprintable():
        raise BadOption("contact", "must be plain ASCII: a mail address or a web page")
    if _MAIL.fullmatch(contact.removeprefix("mailto:")):
        return f"+mailto:{contact.removeprefix('mailto:')}"
    if _PAGE.fullmatch(contact):
        return f"+{contact}"
    raise BadOption("contact", "must be a mail address or a web page: me@example.org")


class IdentityMiddleware(Middleware):
    """Adds the source's headers and the cookies that fit; keeps the cookies that answers set.

    What a request has of its own wins. One object serves one run, so no cookie goes from one
    source or job to another. Cookies end by the clock of this machine, as the library has it.

    Args:
        inner: the next link.
        headers: sent with every request, to every host.
        cookies: False keeps none; a mapping holds those to begin with, by host and name.
    """

    def __init__(
        self,
        inner: Middleware,
        *,
        headers: Mapping[str, str] | None = None,
        cookies: bool | StartCookies = True,
    ) -> None:
        self._inner = inner
        self._headers = dict(headers or {})
        self._has_cookies = cookies is not False
        self._start = cookies if isinstance(cookies, Mapping) else {}
        self._jar: CookieJar | None = None

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if self._headers:
            request = self._with_headers(request)
        if self._start:
            self._begin(request)
        if self._jar:  # an empty one is False, and costs nothing
            request = self._with_cookies(request, self._jar)
        page = await self._inner(request, usage)
        # A cache repeats the headers it kept: a cookie among them may be older than ours.
        if self._has_cookies and not page.is_cached and "set-cookie" in page.headers:
            self._take(page)
        return page

    def _with_headers(self, request: Request) -> Request:
        if not request.headers:
            return request.having(self._headers)
        own = {n: v for n, v in self._headers.items() if not has_header(request.headers, n)}
        return request.having(Redacted({**own, **request.headers}))

    def _with_cookies(self, request: Request, jar: CookieJar) -> Request:
        try:
            fitting = jar.fitting(URL(request.url))
        except ValueError:
            return request  # the transport will say what is wrong with the address
        if not fitting:
            return request
        cookies = "; ".join(f"{cookie.key}={cookie.coded_value}" for cookie in fitting)
        return with_header(request, "Cookie", cookies)

    def _take(self, page: Page) -> None:
        if self._jar is None:
            self._jar = CookieJar(unsafe=True)  # unsafe: hosts that are addresses have cookies, too
        url = URL(page.url)
        lines = (checked_set_cookie(line, url.raw_host or "") for line in set_cookies(page))
        self._jar.update_cookies_from_headers([line for line in lines if line is not None], url)

    def _begin(self, request: Request) -> None:
        """Put the start cookies into the jar, before the first request and not earlier."""
        jar = self._jar or CookieJar(unsafe=True)
        try:
            for host, cookies in self._start.items():
                lines = [_line(host, name, value) for name, value in cookies.items()]
                jar.update_cookies_from_headers(lines, URL.build(scheme="https", host=host))
        except UnknownSecret as error:
            raise AuthFailed(request.url, str(error)) from error
        self._jar, self._start = jar, {}


def set_cookies(page: Page) -> list[str]:
    """Return what an answer sets, a text a cookie."""
    if isinstance(page.headers, MultiMapping):
        return page.headers.getall("set-cookie", [])
    return [page.headers["set-cookie"]] if "set-cookie" in page.headers else []


def _line(host: str, name: str, value: SecretRef | str) -> str:
    text = plain(value)
    if not COOKIE_VALUE.fullmatch(text):
        raise UnknownSecret(str(value), "it has signs that a cookie cannot hold")
    # A secret one travels encrypted, as every secret here.
    is_private = isinstance(value, SecretRef) and not is_loopback(host)
    return f"{name}={text}; Path=/{'; Secure' if is_private else ''}"
