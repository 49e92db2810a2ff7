"""The link that follows redirects; every hop goes through the rest of the chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urljoin, urlsplit

from longline.core.clock import Clock
from longline.core.errors import bad_status
from longline.core.model import Usage
from longline.http.errors import BadAnswer
from longline.http.headers import retry_after
from longline.http.messages import Page, Request, origin_of, without_userinfo
from longline.http.middleware.base import Middleware

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_HISTORICAL = frozenset({301, 302})
_FINAL = frozenset(range(200, 301)) | frozenset(range(400, 1000))
_NOT_MODIFIED = 304
_CONDITIONS = frozenset({"if-none-match", "if-modified-since"})
_MOST_HOPS = 10
_PRIVATE = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_THE_BODY = frozenset(
    {"content-type", "content-length", "content-encoding", "content-language", "content-location"}
)


class RedirectMiddleware(Middleware):
    """Follows up to ten redirects; secrets travel to no other host, and not out of https."""

    def __init__(self, inner: Middleware) -> None:
        self._inner = inner

    async def __call__(self, request: Request, usage: Usage) -> Page:
        current = request
        for _ in range(_MOST_HOPS + 1):
            page = await self._inner(current, usage)
            target = page.headers.get("location")
            if page.status in request.accept or page.status in _FINAL:
                return page
            if page.status == _NOT_MODIFIED and _is_conditional(request):
                return page
            if page.status not in _REDIRECTS:
                raise BadAnswer(current.url, f"it answered {page.status}, which was not asked for")
            current = _onward(current, _target(current.url, target), page.status)
        raise BadAnswer(request.url, f"more than {_MOST_HOPS} redirects")


def _is_conditional(request: Request) -> bool:
    return any(name.lower() in _CONDITIONS for name in request.headers)


def _target(url: str, location: str | None) -> str:
    """Return the whole address that a Location leads to.

    Raises:
        BadAnswer: there is none, or it is not an address.
    """
    if not location or not location.strip():
        raise BadAnswer(url, "it redirects without saying where to")
    try:
        target = urljoin(url, without_userinfo(location))
        _ = urlsplit(target).port  # raises where it is not a port
    except ValueError as error:
        problem = f"it redirects to {location[:100]!r}, which is not an address ({error})"
        raise BadAnswer(url, problem) from error
    return target


def _onward(request: Request, url: str, status: int) -> Request:
    if not url.startswith(("http://", "https://")):
        raise BadAnswer(request.url, f"redirected to {url[:100]!r}, which is not http")
    onward = replace(request, url=url)
    if _becomes_get(request.method, status):
        headers = _without(request.headers, _OF_THE_BODY)
        onward = replace(onward, method="GET", body=None, headers=headers)
    if not _is_as_safe(request.url, url):
        onward = replace(onward, headers=_without(onward.headers, _PRIVATE), hidden={})
    return onward


def _becomes_get(method: str, status: int) -> bool:
    # As browsers do: 301 and 302 change a POST only, for historical reasons (RFC 9110 15.4).
    return (status == _SEE_OTHER and method not in {"GET", "HEAD"}) or (
        status in _HISTORICAL and method == "POST"
    )


def _is_as_safe(url: str, onward: str) -> bool:
    (scheme, host), (next_scheme, next_host) = origin_of(url), origin_of(onward)
    return host == next_host and next_scheme in {scheme, "https"}


def _without(headers: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


# ---------------- The link that turns a status of 400 or more into an error, unless the caller

FIRST_BAD = 400


class StatusMiddleware(Middleware):
    """Raises what a status means.

    It stands outside the links that judge answers (cache, breaker, pace): those see the answer
    itself, whatever the caller thinks of it.
    """

    def __init__(self, inner: Middleware, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        if page.status < FIRST_BAD or page.status in request.accept:
            return page
        pause = retry_after(page.headers, self._clock.now())
        raise bad_status(request.url, page.status, pause)
