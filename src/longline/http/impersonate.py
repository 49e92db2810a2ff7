"""Transport that looks like a browser: its TLS, HTTP/2 and headers are those of Chrome (curl_cffi).

It keeps the promises of `HttpTransport` with three differences, since libcurl owns the connection:
`before_write` is awaited before a connection is opened and not on the open one; the addresses of a
host are checked and pinned before the request; and libcurl sends a request again by itself if a
connection that it kept was closed before any byte of the response.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from curl_cffi import AsyncSession, CurlECode, CurlHttpVersion, CurlOpt, Headers
from curl_cffi.requests.exceptions import RequestException
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.clock import Clock
from longline.core.errors import ConnectFailed, FetchError
from longline.core.model import Usage
from longline.http.address_policy import AddressPolicy
from longline.http.errors import (
    BadAnswer,
    BadCertificate,
    BodyCut,
    PrivateAddress,
    ProxyFailed,
    TimedOut,
    UnknownHost,
)
from longline.http.messages import (
    Middleware,
    Page,
    Request,
    with_query,
    without_userinfo_in,
)
from longline.http.proxies.connections import find_proxy_error, read_credentials
from longline.http.proxies.proxy import Proxy
from longline.http.transport import HttpOptions

BROWSER = "chrome"
"""What is imitated: the newest Chrome that curl_cffi knows."""
_MOST = 1024  # transfers at the same time; RateLimitMiddleware limits connections
_MOST_PINS = 100  # hosts whose addresses libcurl is given; each request adds its own
_WITH_FILE = frozenset({200, 206})
_PROXY_AUTH_REQUIRED = 407
_PROXY_CODES = frozenset(
    {CurlECode.COULDNT_RESOLVE_PROXY, CurlECode.PROXY, CurlECode.COULDNT_CONNECT}
)
_ON_THE_WAY = ("complete SOCKS", "closed connection")
"""In texts of libcurl: the proxy was reached, but perhaps the site was not."""
_CONNECT_STATUS = re.compile(r"CONNECT tunnel failed, response ([0-9]+)")
_BAD_ANSWERS = {
    CurlECode.URL_MALFORMAT: "not a valid URL",
    CurlECode.UNSUPPORTED_PROTOCOL: "not a valid URL",
    CurlECode.BAD_CONTENT_ENCODING: "its body does not match its Content-Encoding",
    CurlECode.WEIRD_SERVER_REPLY: "it is not valid HTTP",
}


class ImpersonatingTransport(Middleware):
    """Sends requests as a browser does, over HTTP/2 where the site has it.

    `addresses` checks the addresses of each host; by default all are allowed.
    """

    def __init__(
        self, options: HttpOptions, clock: Clock, addresses: AddressPolicy | None = None
    ) -> None:
        self._options = options
        self._clock = clock
        self._addresses = addresses
        self._session: AsyncSession[Any] | None = None
        self._answered: set[str] = set()
        self._pins: dict[str, str] = {}
        # Not empty, since the session would replace an empty one.
        self._curl_options: dict[Any, Any] = {CurlOpt.RESOLVE: []}

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if request.before_write is not None:
            await request.before_write()
        usage.requests += 1
        seconds = request.timeout or self._options.timeout
        try:
            async with asyncio.timeout(seconds):
                page = await self._exchange(request, seconds)
        except TimeoutError as error:
            raise TimedOut(request.url, seconds) from error
        self._answered.add(request.domain)
        usage.add_response(page.status, page.size, page.seconds)
        return page

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(self, request: Request, seconds: float) -> Page:
        if self._session is None:
            ca_file = self._options.ca_file
            self._session = AsyncSession(
                impersonate=BROWSER,
                max_clients=_MOST,
                verify=cast("bool", ca_file is None or str(ca_file)),  # or a file
                trust_env=False,
                curl_options=self._curl_options,
            )
        started, received = self._clock.now(), 0
        try:
            async with self._response(self._session, request, seconds) as response:
                headers = _headers_of(response)
                streamed, pieces = 0, []
                sink = request.sink if response.status_code in _WITH_FILE else None
                if sink is not None:
                    await sink.begin(response.status_code, headers)
                async for piece in response.aiter_content():
                    received += len(piece)
                    if sink is not None:
                        await sink.write(piece)
                        streamed = received
                        continue
                    pieces.append(piece)
                    if request.enough is not None and received >= request.enough:
                        break
                    if received > self._options.largest_body:
                        limit = self._options.largest_body
                        problem = f"its body is larger than {limit} bytes once decompressed"
                        raise BadAnswer(request.url, problem)
        except RequestException as error:
            # Not chained, and not quoted: its text may have hidden parameters or credentials.
            raise self._error_of(request, error, seconds, received) from None
        except (UnicodeError, ValueError):
            raise BadAnswer(request.url, "not a valid URL") from None
        body = b"".join(pieces)[: request.enough]
        took = self._clock.now() - started
        cleaned = without_userinfo_in(headers)
        page = Page(request.url, response.status_code, cleaned, body, took, streamed=streamed)
        if request.proxy is not None and request.url.startswith("http:"):
            _check_proxy(request, request.proxy, page)
        return page

    @contextlib.asynccontextmanager
    async def _response(
        self, session: AsyncSession[Any], request: Request, seconds: float
    ) -> AsyncIterator[Any]:
        how: dict[str, Any] = {}
        if request.proxy is not None:
            how["proxy"] = _proxy_url(request.proxy, urlsplit(request.url).hostname or "")
            if (credentials := read_credentials(request.url, request.proxy)) is not None:
                how["proxy_auth"] = credentials
        elif self._addresses is not None:
            await self._pin(request, self._addresses)
        response: Any = await session.request(
            request.method,  # type: ignore[arg-type]  # a Literal of known methods
            with_query(request.url, request.hidden),
            headers=_encoded(request.headers),
            data=request.body,
            allow_redirects=False,
            discard_cookies=True,
            stream=True,
            timeout=seconds,
            http_version=CurlHttpVersion.V2TLS,
            **how,
        )
        try:
            yield response
        finally:
            # `aclose` would wait for the rest of the body; this drops the transfer.
            response.astream_task.cancel()
            await asyncio.wait([response.astream_task])

    async def _pin(self, request: Request, addresses: AddressPolicy) -> None:
        """Check the addresses of the host, and let libcurl connect to no others.

        Raises:
            PrivateAddress: none of them may be connected to.
            UnknownHost: there is none.
        """
        parts = urlsplit(request.url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        found = await addresses.addresses_of(host)
        if not found:
            raise self._unknown_host(request, "unknown host")
        allowed = []
        for one in found:
            try:
                addresses.check(request.url, one)
            except PrivateAddress as error:
                refusal = error
            else:
                allowed.append(one)
        if not allowed:
            raise refusal
        if host in allowed:
            return  # the host is an address
        listed = ",".join(f"[{one}]" if ":" in one else one for one in allowed)
        self._pins.pop(f"{host}:{port}", None)
        self._pins[f"{host}:{port}"] = listed
        if len(self._pins) > _MOST_PINS:
            del self._pins[next(iter(self._pins))]
        # The options of a session count for all its requests. With +, an entry can be replaced.
        self._curl_options[CurlOpt.RESOLVE] = [f"+{name}:{at}" for name, at in self._pins.items()]

    def _unknown_host(self, request: Request, problem: str) -> FetchError:
        # For a host that responded before, the failure is temporary.
        kind = ConnectFailed if request.domain in self._answered else UnknownHost
        return kind(request.url, problem)

    def _error_of(self, request: Request, error: Any, seconds: float, received: int) -> FetchError:
        code = CurlECode(int(error.code)) if error.code else CurlECode.FAILED_INIT
        name = code.name.lower().replace("_", " ")
        if request.proxy is not None and (fault := _proxy_fault(code, str(error))):
            return ProxyFailed(request.url, request.proxy.address, fault[0], is_certain=fault[1])
        if code is CurlECode.COULDNT_RESOLVE_HOST:
            return self._unknown_host(request, "unknown host")
        found: FetchError = ConnectFailed(request.url, f"libcurl: {name}")
        if code is CurlECode.OPERATION_TIMEDOUT:
            found = TimedOut(request.url, seconds)
        elif code is CurlECode.PEER_FAILED_VERIFICATION:
            found = BadCertificate(request.url, "it is not valid for this host")
        elif code in _BAD_ANSWERS:
            found = BadAnswer(request.url, _BAD_ANSWERS[code])
        elif received or code is CurlECode.PARTIAL_FILE:
            found = BodyCut(request.url, received)
        return found


def _proxy_fault(code: CurlECode, text: str) -> tuple[str, bool] | None:
    """Return what an error says about a proxy, and if it is its own fault; None if it does not."""
    if code is CurlECode.WEIRD_SERVER_REPLY or "HTTP/0.9" in text:
        return "its response is not valid HTTP", False
    if code not in _PROXY_CODES:
        return None
    if (status := _CONNECT_STATUS.search(text)) is not None:
        return f"it answered CONNECT with status {status[1]}", int(
            status[1]
        ) == _PROXY_AUTH_REQUIRED
    name = code.name.lower().replace("_", " ")
    return f"libcurl: {name}", not any(one in text for one in _ON_THE_WAY)


def _proxy_url(proxy: Proxy, host: str) -> str:
    """Return the address of a proxy in the words of libcurl; the proxy resolves names."""
    scheme: str = proxy.scheme
    if scheme == "socks5":
        scheme = "socks5h"
    elif scheme == "socks4" and not host.replace(".", "").isdecimal():
        scheme = "socks4a"
    return f"{scheme}://{proxy.host}:{proxy.port}"


def _check_proxy(request: Request, proxy: Proxy, page: Page) -> None:
    if (found := find_proxy_error(page, request.method)) is not None:
        problem, is_certain = found
        raise ProxyFailed(request.url, proxy.address, problem, is_certain=is_certain)


def _headers_of(response: Any) -> CIMultiDictProxy[str]:
    """Return the headers as `HttpTransport` does; the body is decompressed already."""
    pairs = ((name, value or "") for name, value in response.headers.multi_items())
    return CIMultiDictProxy(CIMultiDict(pairs))


def _encoded(headers: Mapping[str, str]) -> Headers:
    """Return the headers as UTF-8; raise ValueError if one could start another one."""
    for name, value in headers.items():
        if any(one in name + value for one in "\r\n\0"):
            raise ValueError(name)
    return Headers(dict(headers), encoding="utf-8")
