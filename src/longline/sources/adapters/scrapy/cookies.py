"""The cookies of a spider's run: Scrapy's own jars, which survive the process with the items."""

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
    """A jar for each `cookiejar` that requests name in their meta, and one for all others."""

    def __init__(self) -> None:
        self._jars: defaultdict[Any, CookieJar] = defaultdict(CookieJar)

    def dress(self, request: Request) -> None:
        """Give a request its cookies: its own, and those of its jar."""
        if request.meta.get("dont_merge_cookies"):
            return
        jar = self._jar(request)
        is_secure = urlparse_cached(request).scheme == "https"
        said = [one for one in _listed(request.cookies) if _is_whole(one)]
        lines = [_line({"secure": is_secure, **one}) for one in said]
        if lines:
            _take(jar, Response(request.url, headers={"Set-Cookie": lines}), request)
        jar.add_cookie_header(request)

    def take(self, request: Request, response: Response) -> None:
        """Keep the cookies that an answer sets."""
        if not request.meta.get("dont_merge_cookies"):
            _take(self._jar(request), response, request)

    def kept(self, request: Request) -> list[dict[str, Any]]:
        """Return the cookies of a request's jar as JSON, to be kept with its item."""
        return [{name: getattr(one, name) for name in _KEPT} for one in self._jar(request).jar]

    def restore(self, request: Request, kept: list[dict[str, Any]]) -> None:
        """Put back what an earlier process knew; what this one has heard since counts more."""
        jar = self._jar(request)
        known = {(one.domain, one.path, one.name) for one in jar.jar}
        for said in kept:
            if (said["domain"], said["path"], said["name"]) not in known:
                jar.jar.set_cookie(Cookie(**said, rest={}))

    def _jar(self, request: Request) -> CookieJar:
        return self._jars[request.meta.get("cookiejar")]


def _take(jar: CookieJar, response: Response, request: Request) -> None:
    """Keep the cookies of a response, except those for a public suffix, as Scrapy does."""
    host = urlparse_cached(request).hostname or ""
    for cookie in jar.make_cookies(response, request):
        domain = cookie.domain.removeprefix(".")
        if domain and is_public_suffix(domain):
            if domain != host:
                continue
            cookie.domain = host
        jar.set_cookie_if_ok(cookie, request)


def _listed(cookies: Any) -> list[dict[str, Any]]:
    if isinstance(cookies, dict):
        return [{"name": name, "value": value} for name, value in cookies.items()]
    return list(cookies or ())


def _is_whole(cookie: dict[str, Any]) -> bool:
    # Scrapy leaves out the others with a warning.
    return cookie.get("name") is not None and cookie.get("value") is not None


def _line(cookie: dict[str, Any]) -> str:
    extras = [f"{n.capitalize()}={cookie[n]}" for n in ("path", "domain") if cookie.get(n)]
    flags = ["Secure"] if cookie.get("secure") else []
    return "; ".join([f"{_text(cookie['name'])}={_text(cookie['value'])}", *extras, *flags])


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
