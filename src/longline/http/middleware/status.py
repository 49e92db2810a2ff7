"""Status middlewares: follow redirects, and raise an error for a status of 400 and more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urljoin, urlsplit

from longline.core.clock import Clock
from longline.core.errors import bad_status
from longline.core.model import Usage
from longline.http.errors import BadAnswer
from longline.http.messages import (
    FIRST_ERROR,
    Middleware,
    Page,
    Request,
    origin_of,
    without_userinfo,
)


class StatusMiddleware(Middleware):
    """Raises the error of a status.

    It is outside cache, breaker and rate limit: those see the response itself.
    """

    def __init__(self, inner: Middleware, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        if page.status < FIRST_ERROR or page.status in request.accept:
            return page
        raise bad_status(request.url, page.status, page.retry_after(self._clock.now()))


# ---------------- Redirects

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_HISTORICAL = frozenset({301, 302})
_FINAL = frozenset(range(200, 301)) | frozenset(range(400, 1000))
_NOT_MODIFIED = 304
_CONDITIONS = frozenset({"if-none-match", "if-modified-since"})
_MOST_HOPS = 10
_PRIVATE = frozenset({"authorization", "cookie", "proxy-authorization"})
_BODY_HEADERS = frozenset(
    {"content-type", "content-length", "content-encoding", "content-language", "content-location"}
)


class RedirectMiddleware(Middleware):
    """Follows up to ten redirects; secrets are not sent to another host, nor from https to http."""

    def __init__(self, inner: Middleware) -> None:
        self._inner = inner

    async def __call__(self, request: Request, usage: Usage) -> Page:
        current = request
        for _ in range(_MOST_HOPS + 1):
            page = await self._inner(current, usage)
            if page.status in request.accept or page.status in _FINAL:
                return page
            is_conditional = any(name.lower() in _CONDITIONS for name in request.headers)
            if page.status == _NOT_MODIFIED and is_conditional:
                return page
            if page.status not in REDIRECTS:
                raise BadAnswer(current.url, f"unexpected status {page.status}")
            target = _resolve_location(current.url, page.headers.get("location"))
            current = _next_request(current, target, page.status)
        raise BadAnswer(request.url, f"more than {_MOST_HOPS} redirects")


def _resolve_location(url: str, location: str | None) -> str:
    """Return the absolute URL of a Location header.

    Raises:
        BadAnswer: there is none, or it is not a URL of http or https.
    """
    if not location or not location.strip():
        raise BadAnswer(url, "a redirect without a Location header")
    try:
        target = urljoin(url, without_userinfo(location))
        _ = urlsplit(target).port  # raises ValueError when it is not a number
    except ValueError as error:
        problem = f"it redirects to {location[:100]!r}, which is not a URL ({error})"
        raise BadAnswer(url, problem) from error
    if not target.startswith(("http://", "https://")):
        raise BadAnswer(url, f"it redirects to {target[:100]!r}, which is not http")
    return target


def _next_request(request: Request, url: str, status: int) -> Request:
    hop = replace(request, url=url)
    # As browsers do: 301 and 302 change only a POST, for historical reasons (RFC 9110 15.4).
    if (status == _SEE_OTHER and request.method not in {"GET", "HEAD"}) or (
        status in _HISTORICAL and request.method == "POST"
    ):
        headers = _without(request.headers, _BODY_HEADERS)
        hop = replace(hop, method="GET", body=None, headers=headers)
    (scheme, host), (next_scheme, next_host) = origin_of(request.url), origin_of(url)
    if host != next_host or next_scheme not in {scheme, "https"}:
        hop = replace(hop, headers=_without(hop.headers, _PRIVATE), hidden={})
    return hop


def _without(headers: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}
