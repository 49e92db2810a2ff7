"""Our answers and errors as Scrapy has them, and what a Scrapy request says about its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import scrapy.exceptions
from multidict import MultiMapping
from scrapy import Request, Spider
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import Settings
from scrapy.spidermiddlewares.httperror import HttpError

from longline.errors import (
    BadStatus,
    BodyCut,
    ConnectFailed,
    RobotsDisallowed,
    RobotsUnreachable,
    TimedOut,
)
from longline.fetching.messages import Page
from longline.resilience.retry import RETRIED_STATUSES

_ALL = frozenset(range(400, 600))
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NAMES: dict[type[BaseException], str] = {
    TimedOut: "DownloadTimeoutError",
    BodyCut: "ResponseDataLossError",
    ConnectFailed: "DownloadConnectionRefusedError",
}
_CHAINS_OWN = frozenset({"accept-encoding", "connection", "content-length", "host"})


def accepted(request: Request, spider: Spider, settings: Settings) -> frozenset[int]:
    """Return the statuses that come back as answers; the chain tries the others again, or raises.

    Redirects are among them: Scrapy sends each hop through its filter of duplicates.
    """
    meta = request.meta
    if meta.get("handle_httpstatus_all") or meta.get("dont_retry"):
        return _ALL | _REDIRECTS
    wanted = settings.getlist("HTTPERROR_ALLOWED_CODES")
    wanted = meta.get("handle_httpstatus_list", getattr(spider, "handle_httpstatus_list", wanted))
    return (_ALL - RETRIED_STATUSES) | _REDIRECTS | frozenset(int(one) for one in wanted)


def outgoing(request: Request) -> dict[str, str]:
    """Return the headers of a request, without those that the chain decides on."""
    pairs = ((name.decode("latin-1"), values) for name, values in request.headers.items())
    return {
        name: b", ".join(values).decode("latin-1")
        for name, values in pairs
        if name.lower() not in _CHAINS_OWN
    }


def response_of(page: Page, request: Request) -> Response:
    """Return an answer as the kind of response that Scrapy would make of it."""
    headers = Headers(_listed(page.headers))
    headers.pop("Content-Encoding", None)  # the body is unpacked already
    kind = responsetypes.from_args(headers=headers, url=page.url, body=page.body)
    request.meta["download_latency"] = page.seconds
    return kind(url=page.url, status=page.status, headers=headers, body=page.body, request=request)


def told_as_scrapy(error: Exception) -> Exception:
    """Return the error that an errback expects in place of ours; ours is its cause."""
    told: Exception
    if isinstance(error, BadStatus):
        told = HttpError(Response(error.url, status=error.status), str(error))
    elif isinstance(error, RobotsDisallowed):
        told = IgnoreRequest(str(error))
    else:
        cause = error.__cause__ if isinstance(error, RobotsUnreachable) else error
        name = _NAMES.get(type(cause or error), "DownloadFailedError")
        # These came with Scrapy 2.14.
        kind: type[Exception] = getattr(scrapy.exceptions, name, IgnoreRequest)
        told = kind(str(error))
    told.__cause__ = error
    return told


def _listed(headers: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(headers, MultiMapping):
        return {name: headers.getall(name) for name in headers}
    return {name: [value] for name, value in headers.items()}
