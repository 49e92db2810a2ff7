"""A `requests` session whose requests go through the request chain; needs the extra `requests`."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from longline.limits.retry import RETRIED_STATUSES
from longline.sources.function import ThreadFetch

_CHAIN_HEADERS = frozenset(
    {"user-agent", "accept-encoding", "connection", "content-length", "host"}
)
"""Headers that the request chain sets itself."""
# The caller sees permanent error statuses; the chain retries transient ones.
_RETURNED_STATUSES = frozenset(range(400, 600)) - RETRIED_STATUSES


def chained_session(
    fetch: ThreadFetch,
    *,
    returned: frozenset[int] = _RETURNED_STATUSES,
    rewrite_url: Callable[[str], str] = str,
) -> requests.Session:
    """Return a `requests` session whose requests all go through the request chain.

    It returns the statuses in `returned`; the chain handles other errors.
    """
    session = requests.Session()
    session.trust_env = False  # proxies and passwords are the concern of the chain
    adapter = _ChainAdapter(fetch, returned, rewrite_url)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


class _ChainAdapter(BaseAdapter):
    def __init__(
        self, fetch: ThreadFetch, returned: frozenset[int], rewrite_url: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._fetch = fetch
        self._returned = returned
        self._rewrite_url = rewrite_url

    def send(
        self, request: requests.PreparedRequest, *_args: object, **options: Any
    ) -> requests.Response:
        body = request.body.encode() if isinstance(request.body, str) else request.body
        timeout = options.get("timeout")
        given: Mapping[str, Any] = request.headers
        headers = {
            name: value.decode() if isinstance(value, bytes) else str(value)
            for name, value in given.items()
            if name.lower() not in _CHAIN_HEADERS
        }
        page = self._fetch(
            self._rewrite_url(request.url or ""),
            method=request.method or "GET",
            headers=headers,
            body=body if isinstance(body, bytes) else None,
            accept=self._returned,
            timeout=timeout if isinstance(timeout, int | float) else None,
        )
        response = requests.Response()
        response.status_code = page.status
        response.headers = CaseInsensitiveDict(page.headers)
        response.headers.pop("content-encoding", None)  # the body is decompressed already
        response.raw = io.BytesIO(page.body)
        response.encoding = requests.utils.get_encoding_from_headers(response.headers)
        response.url = page.url
        response.request = request
        return response

    def close(self) -> None:
        """Do nothing: the chain owns the connections."""
