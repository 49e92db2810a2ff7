"""A requests session whose every request goes through our chain, for libraries that want one."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from longline.fetching.messages import Page, Request
from longline.sources.visit import Visit

YOUTUBE = "https://www.youtube.com"
_OWN_HEADERS = frozenset(
    {"user-agent", "accept", "accept-encoding", "connection", "content-length"}
)
"""Headers that the chain decides on."""

# The library reads meaning from refusals, 429 above all. Failures of the server mean nothing to
# it, and the chain knows how to try those again.
_SEEN_BY_LIBRARY = frozenset(range(400, 600)) - {500, 502, 503, 504}


class ChainAdapter(BaseAdapter):
    """Carries requests from a thread to the chain in the event loop, and answers back."""

    def __init__(self, visit: Visit, loop: asyncio.AbstractEventLoop, youtube_url: str) -> None:
        super().__init__()
        self._visit = visit
        self._loop = loop
        self._youtube_url = youtube_url
        self.is_stopped = threading.Event()
        """Set when nobody waits for the thread any more: it then sends nothing further."""

    def send(
        self, request: requests.PreparedRequest, *_args: object, **_options: object
    ) -> requests.Response:
        """Return the chain's answer; a FetchError of the chain goes through the library."""
        if self.is_stopped.is_set():
            raise requests.ConnectionError("the visit is over", request=request)
        page = self._visit.fetch_from_thread(self._loop, self._translate(request))
        return _answer(page, request)

    def close(self) -> None:
        """Do nothing: the connections are the chain's."""

    def _translate(self, request: requests.PreparedRequest) -> Request:
        url = request.url or ""
        if url.startswith(f"{YOUTUBE}/"):
            url = self._youtube_url + url.removeprefix(YOUTUBE)
        body = request.body.encode() if isinstance(request.body, str) else request.body
        return Request(
            url,
            request.method or "GET",
            _outgoing(request.headers),
            body if isinstance(body, bytes) else None,
            accept=_SEEN_BY_LIBRARY,
        )


def chained_session(adapter: ChainAdapter) -> requests.Session:
    """Return a session that has no other way out than the adapter."""
    session = requests.Session()
    session.trust_env = False  # proxies and passwords of the environment are the chain's matter
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _outgoing(headers: Mapping[str, Any]) -> dict[str, str]:
    pairs = ((name, v.decode() if isinstance(v, bytes) else v) for name, v in headers.items())
    return {name: value for name, value in pairs if name.lower() not in _OWN_HEADERS}


def _answer(page: Page, request: requests.PreparedRequest) -> requests.Response:
    response = requests.Response()
    response.status_code = page.status
    response.headers = CaseInsensitiveDict(page.headers)
    response.raw = io.BytesIO(page.text.encode())
    response.encoding = "utf-8"
    response.url = request.url or page.url
    response.request = request
    return response
