"""The link that follows redirects; every hop goes through the rest of the chain."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urljoin

from longline.errors import BadAnswer
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.model import Account

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD = frozenset({307, 308})
_MOST_HOPS = 10
_PRIVATE = frozenset({"authorization", "cookie", "proxy-authorization"})


class Redirects(Link):
    """Follows up to ten redirects; secrets do not travel to another host."""

    def __init__(self, inner: Link) -> None:
        self._inner = inner

    async def __call__(self, request: Request, account: Account) -> Page:
        current = request
        for _ in range(_MOST_HOPS + 1):
            page = await self._inner(current, account)
            target = page.headers.get("location")
            if page.status not in _REDIRECTS or not target:
                return page
            current = _onward(current, urljoin(current.url, target), page.status)
        raise BadAnswer(request.url, f"more than {_MOST_HOPS} redirects")


def _onward(request: Request, url: str, status: int) -> Request:
    if not url.startswith(("http://", "https://")):
        raise BadAnswer(request.url, f"redirected to {url[:100]!r}, which is not http")
    onward = replace(request, url=url)
    if status not in _KEEPS_METHOD and request.method not in {"GET", "HEAD"}:
        onward = replace(onward, method="GET", body=None)
    if onward.domain != request.domain:
        kept = {k: v for k, v in request.headers.items() if k.lower() not in _PRIVATE}
        onward = replace(onward, headers=kept)
    return onward
