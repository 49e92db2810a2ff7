"""Cookies of a spider: Scrapy's own jars, stored with the items."""

from __future__ import annotations

from collections import defaultdict
from http.cookiejar import Cookie
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.http.cookies import CookieJar
from scrapy.utils.httpobj import urlparse_cached

from longline.http.middleware.identity import is_public_suffix

_KEPT = (
    *("version", "name", "value", "port", "port_specified", "domain", "domain_specified"),
    *("domain_initial_dot", "path", "path_specified", "secure", "expires", "discard"),
    *("comment", "comment_url", "rfc2109"),
)


class Jars:
    """One jar for each `cookiejar` in the meta of requests, and one for all others."""

    def __init__(self) -> None:
        self._jars: defaultdict[Any, CookieJar] = defaultdict(CookieJar)

    def dress(self, request: Request) -> None:
        """Add the cookies of a request and of its jar."""
        if request.meta.get("dont_merge_cookies"):
            return
        jar = self._jar(request)
        is_secure = urlparse_cached(request).scheme == "https"
        cookies = [one for one in _cookie_list(request.cookies) if _has_name_and_value(one)]
        lines = [_set_cookie_line({"secure": is_secure, **one}) for one in cookies]
        if lines:
            _store_cookies(jar, Response(request.url, headers={"Set-Cookie": lines}), request)
        jar.add_cookie_header(request)

    def take(self, request: Request, response: Response) -> None:
        """Store the cookies of a response."""
        if not request.meta.get("dont_merge_cookies"):
            _store_cookies(self._jar(request), response, request)

    def kept(self, request: Request) -> list[dict[str, Any]]:
        """Return the cookies of a request's jar as JSON, to be stored with its item."""
        return [{name: getattr(one, name) for name in _KEPT} for one in self._jar(request).jar]

    def restore(self, request: Request, kept: list[dict[str, Any]]) -> None:
        """Restore the cookies of an earlier process, unless newer ones are known."""
        jar = self._jar(request)
        known = {(one.domain, one.path, one.name) for one in jar.jar}
        for cookie in kept:
            if (cookie["domain"], cookie["path"], cookie["name"]) not in known:
                jar.jar.set_cookie(Cookie(**cookie, rest={}))

    def _jar(self, request: Request) -> CookieJar:
        return self._jars[request.meta.get("cookiejar")]


def _store_cookies(jar: CookieJar, response: Response, request: Request) -> None:
    """Store the cookies of a response, except those for a public suffix, as Scrapy does."""
    host = urlparse_cached(request).hostname or ""
    for cookie in jar.make_cookies(response, request):
        domain = cookie.domain.removeprefix(".")
        if domain and is_public_suffix(domain):
            if domain != host:
                continue
            cookie.domain = host
        jar.set_cookie_if_ok(cookie, request)


def _cookie_list(cookies: Any) -> list[dict[str, Any]]:
    if isinstance(cookies, dict):
        return [{"name": name, "value": value} for name, value in cookies.items()]
    return list(cookies or ())


def _has_name_and_value(cookie: dict[str, Any]) -> bool:
    # Scrapy skips others with a warning.
    return cookie.get("name") is not None and cookie.get("value") is not None


def _set_cookie_line(cookie: dict[str, Any]) -> str:
    extras = [f"{n.capitalize()}={cookie[n]}" for n in ("path", "domain") if cookie.get(n)]
    flags = ["Secure"] if cookie.get("secure") else []
    return "; ".join(
        [f"{_decode_text(cookie['name'])}={_decode_text(cookie['value'])}", *extras, *flags]
    )


def _decode_text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
