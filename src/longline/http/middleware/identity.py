"""Identity middleware: send the source's headers and the cookies of its run (RFC 6265)."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from http.cookies import Morsel
from typing import TYPE_CHECKING, Any

import aiohttp
from multidict import MultiMapping
from yarl import URL

from longline.config.identity import COOKIE_VALUE, StartCookies, merge_headers
from longline.config.secrets import SecretRef, is_loopback, reveal
from longline.core.errors import BadOption, UnknownSecret
from longline.core.model import Usage
from longline.http.errors import AuthFailed
from longline.http.messages import Middleware, Page, Redacted, Request, has_header, with_header
from longline.http.proxies.sessions import SessionPool

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_MAIL = re.compile(r"[^\s@()<>:/]+@[^\s@()<>:/]+\.[^\s@()<>:/]+")
_PAGE = re.compile(r"https?://[^\s@()<>/]+\.[^\s()<>]+")
_PRODUCT = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(/[!#$%&'*+.^_`|~0-9A-Za-z-]+)?")


def user_agent(version: str, contact: str | None = None, product: str | None = None) -> str:
    """Return a User-Agent that names longline and how to contact its operator.

    `product` is the operator's own product, such as `prices-of-acme/2.0`; it is named first.

    Raises:
        BadOption: the contact or the product is not valid.
    """
    us = f"longline/{version}"
    if product is not None:
        if not _PRODUCT.fullmatch(product):
            raise BadOption(
                "product", "must be a product name, optionally with a version: acme-prices/2.0"
            )
        us = f"{product} {us}"
    if contact is None:
        return f"{us} (no contact given)"
    if not contact.isascii() or not contact.isprintable():
        raise BadOption("contact", "must be plain ASCII: an e-mail address or a web page")
    if _MAIL.fullmatch(contact.removeprefix("mailto:")):
        return f"{us} (+mailto:{contact.removeprefix('mailto:')})"
    if _PAGE.fullmatch(contact):
        return f"{us} (+{contact})"
    raise BadOption("contact", "must be an e-mail address or a web page: me@example.org")


class IdentityMiddleware(Middleware):
    """Adds the source's headers and matching cookies; stores the cookies that responses set.

    Headers of the request itself win. One object serves one run, so no cookie passes from one
    source or job to another. Cookies expire by the clock of this machine.

    `headers` go to every host. `cookies` False stores none; a mapping has initial ones by host.
    With `sessions`, the cookies of a request are those of its session.
    """

    def __init__(
        self,
        inner: Middleware,
        *,
        headers: Mapping[str, str] | None = None,
        cookies: bool | StartCookies = True,
        sessions: SessionPool | None = None,
    ) -> None:
        self._inner = inner
        self._sessions = sessions
        self._headers = dict(headers or {})
        self._cookies = cookies
        self._has_cookies = cookies is not False
        self._start = cookies if isinstance(cookies, Mapping) else {}
        self._jar: CookieJar | None = None

    def __call__(self, request: Request, usage: Usage) -> Coroutine[Any, Any, Page]:
        if self._sessions is None and request.session is None:
            return self.send(request, usage)
        return self._identity_of(request).send(request, usage)

    def _identity_of(self, request: Request) -> IdentityMiddleware:
        """Return the object with the headers and cookies of the session of a request."""
        session = None if self._sessions is None else self._sessions.find(request.session)
        if session is not None:
            if session.identity is None:
                headers = merge_headers(self._headers, session.headers)
                session.identity = IdentityMiddleware(
                    self._inner, headers=headers, cookies=self._cookies
                )
            identity: IdentityMiddleware = session.identity
            return identity
        if request.session is not None:
            raise BadOption("session", "the source has no sessions; add `sessions: item`, for one")
        return self

    async def send(self, request: Request, usage: Usage) -> Page:
        """Send a request with the headers and cookies of this object."""
        if self._headers:
            own = {n: v for n, v in self._headers.items() if not has_header(request.headers, n)}
            request = replace(request, headers=Redacted({**own, **request.headers}))
        if self._start:
            self._add_start_cookies(request)
        if self._jar:  # an empty jar is false
            request = self._with_cookies(request, self._jar)
        page = await self._inner(request, usage)
        # A cached response repeats old headers: a cookie in them may be older than ours.
        if self._has_cookies and not page.is_cached and "set-cookie" in page.headers:
            self._store_cookies(page)
        return page

    def _with_cookies(self, request: Request, jar: CookieJar) -> Request:
        try:
            matching = jar.filter_cookies(URL(request.url)).values()
        except ValueError:
            return request  # the transport raises the error
        if not matching:
            return request
        cookies = "; ".join(f"{cookie.key}={cookie.coded_value}" for cookie in matching)
        return with_header(request, "Cookie", cookies)

    def _store_cookies(self, page: Page) -> None:
        if self._jar is None:
            self._jar = CookieJar(unsafe=True)  # hosts that are IP addresses have cookies, too
        url = URL(page.url)
        lines = (checked_set_cookie(line, url.raw_host or "") for line in set_cookies(page))
        self._jar.update_cookies_from_headers([line for line in lines if line is not None], url)

    def _add_start_cookies(self, request: Request) -> None:
        """Add the initial cookies to the jar, just before the first request."""
        jar = self._jar or CookieJar(unsafe=True)
        try:
            for host, cookies in self._start.items():
                lines = [_cookie_line(host, name, value) for name, value in cookies.items()]
                jar.update_cookies_from_headers(lines, URL.build(scheme="https", host=host))
        except UnknownSecret as error:
            raise AuthFailed(request.url, str(error)) from error
        self._jar, self._start = jar, {}


def set_cookies(page: Page) -> list[str]:
    """Return the Set-Cookie lines of a response."""
    if isinstance(page.headers, MultiMapping):
        return page.headers.getall("set-cookie", [])
    return [page.headers["set-cookie"]] if "set-cookie" in page.headers else []


def _cookie_line(host: str, name: str, value: SecretRef | str) -> str:
    text = reveal(value)
    if not COOKIE_VALUE.fullmatch(text):
        raise UnknownSecret(
            str(value), "it contains characters that RFC 6265 does not allow in a cookie"
        )
    # A secret cookie is sent over https only.
    is_private = isinstance(value, SecretRef) and not is_loopback(host)
    return f"{name}={text}; Path=/{'; Secure' if is_private else ''}"


# ---------------- Cookies

_DOMAIN = re.compile(r";\s*domain\s*(?:=\s*([^;]*))?(?=;|$)", re.IGNORECASE)


class CookieJar(aiohttp.CookieJar):
    """A cookie jar that sends each value unchanged; of one name, the most specific cookie."""

    def _build_morsel(self, cookie: Morsel[str]) -> Morsel[str]:
        # The library would quote unusual values, which no browser does.
        return cookie


def checked_set_cookie(line: str, host: str) -> str | None:
    """Return a Set-Cookie line with a canonical Domain, or None if it is not allowed.

    A cookie for a public suffix (`org`, `co.uk`, `github.io`) would go to unrelated sites. It is
    refused, unless the host itself is that suffix: then the cookie is for this host only.
    """
    given = [(found[1] or "").strip() for found in _DOMAIN.finditer(line)]
    if not given:
        return line
    line = _DOMAIN.sub("", line)
    domain = given[-1].strip('"').removeprefix(".").lower()  # of several, the last counts
    if not domain.isascii():
        with suppress(ValueError):
            domain = URL.build(scheme="http", host=domain).raw_host or ""
    if not domain:
        return line
    if is_public_suffix(domain) or _is_ip_address(domain):
        return line if domain == host.lower() else None
    return f"{line}; Domain={domain}"


def is_public_suffix(domain: str) -> bool:
    """Whether unrelated parties register names below a domain, by the public suffix list.

    A domain with one label is always a public suffix, in the list or not.
    """
    return _public_suffixes().is_public(domain)


@cache
def _public_suffixes() -> PublicSuffixList:
    # Reading the list takes about 0.1 s; most runs never need it.
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415

    return PublicSuffixList()


def _is_ip_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()
