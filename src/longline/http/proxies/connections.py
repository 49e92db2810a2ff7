"""Connections to proxies: a session of aiohttp for each kind, and what their errors mean."""

from __future__ import annotations

import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler

from longline.core.errors import FetchError, MissingExtra, UnknownSecret
from longline.http.errors import BadCertificate, ProxyFailed
from longline.http.messages import FIRST_ERROR, Page, joined_header
from longline.http.proxies.proxy import Proxy

_MOST_SESSIONS = 64  # of SOCKS proxies, each with its idle connections
_OK = 200
_PROXY_AUTH_REQUIRED = 407
_GATEWAY = frozenset({502, 503, 504})
_CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to a proxy, including its tunnel to the site."""

Verification = ssl.SSLContext | bool
MakeSession = Callable[[aiohttp.BaseConnector, aiohttp.ClientTimeout], aiohttp.ClientSession]


@dataclass(slots=True)
class _Open:
    """The session of a SOCKS proxy, and its requests in flight."""

    session: aiohttp.ClientSession
    in_flight: int = 0


class ProxySessions:
    """Sessions of aiohttp: one for all HTTP proxies, and one for each SOCKS proxy.

    Idle sessions of SOCKS proxies that were not used for longest are closed. Addresses of proxies
    are the operator's own choice, so they may be private.

    Args:
        make_session: opens a session with a connector.
        make_connection: makes a connection.
        resolver: resolves the host names of proxies.
        tls: how certificates of sites are verified.
    """

    def __init__(
        self,
        make_session: MakeSession,
        make_connection: Callable[[], ResponseHandler],
        resolver: AbstractResolver,
        tls: Verification,
    ) -> None:
        self._make_session = make_session
        self._make_connection = make_connection
        self._resolver = resolver
        self._tls = tls
        self._http: aiohttp.ClientSession | None = None
        self._socks: OrderedDict[tuple[str, tuple[str, str] | None], _Open] = OrderedDict()

    @asynccontextmanager
    async def use(
        self, url: str, proxy: Proxy
    ) -> AsyncIterator[tuple[aiohttp.ClientSession, Mapping[str, Any]]]:
        """Yield the session for a proxy, and the arguments that its requests need.

        Raises:
            ProxyFailed: its credentials cannot be read.
            MissingExtra: it is a SOCKS proxy, and aiohttp-socks is not installed.
        """
        credentials = read_credentials(url, proxy)
        if proxy.scheme in {"http", "https"}:
            options: dict[str, Any] = {"proxy": proxy.address}
            if credentials is not None:
                # aiohttp makes it Proxy-Authorization, for a tunnel and for a plain request.
                login = aiohttp.encode_basic_auth(*credentials)
                options["proxy_headers"] = {"Authorization": login}
            yield self._http_session(), options
            return
        opened = self._socks_session(proxy, credentials)
        opened.in_flight += 1
        try:
            yield opened.session, {}
        finally:
            opened.in_flight -= 1
            await self._close_idle()

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()
        for opened in self._socks.values():
            await opened.session.close()
        self._socks.clear()

    def _http_session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls, resolver=self._resolver)
            # aiohttp has no public way to choose the class of its connections.
            connector._factory = self._make_connection  # type: ignore[assignment]  # noqa: SLF001
            self._http = self._make_session(connector, _timeout())
        return self._http

    def _socks_session(self, proxy: Proxy, credentials: tuple[str, str] | None) -> _Open:
        key = (proxy.address, credentials)  # what they refer to may change
        if key not in self._socks:
            try:
                from longline.http.proxies.socks import SocksConnector  # noqa: PLC0415  # an extra
            except ImportError as error:
                raise MissingExtra("proxies", f"the proxy {proxy.address}") from error
            connector = SocksConnector(
                proxy, credentials, self._make_connection, limit=0, ssl=self._tls
            )
            self._socks[key] = _Open(self._make_session(connector, _timeout()))
        self._socks.move_to_end(key)
        return self._socks[key]

    async def _close_idle(self) -> None:
        excess = len(self._socks) - _MOST_SESSIONS
        idle = [key for key, one in self._socks.items() if not one.in_flight]
        for key in idle[: max(excess, 0)]:
            await self._socks.pop(key).session.close()


def read_credentials(url: str, proxy: Proxy) -> tuple[str, str] | None:
    """Return user name and password of a proxy for a request to a URL; None if it needs none.

    Raises:
        ProxyFailed: they cannot be read.
    """
    try:
        return proxy.read_credentials()
    except UnknownSecret as error:
        raise ProxyFailed(url, proxy.address, str(error), is_certain=True) from None


def _timeout() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None, connect=_CONNECT_TIMEOUT, sock_connect=_CONNECT_TIMEOUT
    )


# ---------------- Whose fault is it?


def proxy_fault(url: str, proxy: Proxy, error: Exception) -> FetchError | None:
    """Return our error for one of a request through a proxy; None for one of another kind.

    No error is quoted that may contain the URL with hidden parameters, or credentials.
    """
    problem, is_certain = _problem_of(url, error)
    if not problem:
        return None
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        text = getattr(error.certificate_error, "verify_message", "")
        return BadCertificate(url, text or "it is not valid for this host")
    return ProxyFailed(url, proxy.address, problem, is_certain=is_certain)


def _problem_of(url: str, error: Exception) -> tuple[str, bool]:
    """Return what an error says, empty if it is not about the proxy, and if it is its own fault."""
    found = "", False
    match error:
        case aiohttp.ClientHttpProxyError(status=int(status)):
            found = f"it answered CONNECT with status {status}", status == _PROXY_AUTH_REQUIRED
        case aiohttp.ClientProxyConnectionError():
            found = f"no connection to it: {_reason_of(error)}", True
        case aiohttp.ConnectionTimeoutError():
            # A tunnel may wait for the site.
            is_own = not url.startswith("https")
            found = f"no connection within {_CONNECT_TIMEOUT:g} s", is_own
        case aiohttp.ClientConnectorDNSError():  # the site's name is resolved by the proxy
            found = f"its host was not found: {_reason_of(error)}", True
        case aiohttp.ClientSSLError():
            found = "TLS failed in its tunnel", False
        case aiohttp.ServerDisconnectedError() | ConnectionError() | aiohttp.ClientOSError():
            found = f"the connection broke: {_reason_of(error)}", False
        case EOFError():  # python-socks does not translate it
            found = "it closed the connection", False
        case aiohttp.ClientResponseError() if not url.startswith("https"):
            # Not quoted: its text has the URL with hidden parameters.
            found = "its response is not valid HTTP", False
        case _ if type(error).__module__.partition(".")[0] == "aiohttp_socks":
            from longline.http.proxies.socks import socks_problem  # noqa: PLC0415  # an extra

            found = socks_problem(error)
    return found


def _reason_of(error: Exception) -> str:
    cause = getattr(error, "os_error", None)
    text = getattr(cause, "strerror", None) or type(cause or error).__name__
    return str(text)[:100]


_PROGRAMS = ("tinyproxy", "squid", "privoxy", "polipo", "3proxy", "proxy.py", "mitmproxy", "mubeng")
_MUBENG_ERROR = b"Proxy server error"  # with status 502, for whatever failed behind it
_ORIGIN = ("date", "server", "content-type", "set-cookie", "etag", "last-modified")


def find_proxy_error(page: Page, method: str) -> tuple[str, bool] | None:
    """Return why a response over plain HTTP is the proxy's own, and whether for certain.

    None is a response of the site.
    """
    status, headers = page.status, page.headers
    if status == _PROXY_AUTH_REQUIRED:
        return "it refused the credentials (status 407)", True
    names = f"{headers.get('server', '')} {headers.get('proxy-agent', '')}".lower()
    program = next((one for one in _PROGRAMS if one in names), None)
    is_bare = not any(name in headers for name in _ORIGIN)
    found = None
    if method == "GET" and status == _OK and is_bare and not page.size:
        found = "an empty response without the headers of a site"
    elif status < FIRST_ERROR:
        pass
    elif page.body.strip() == _MUBENG_ERROR:
        found = "mubeng could not reach the site through the proxy that it chose"
    elif "x-squid-error" in headers:
        found = f"it answered with {headers['x-squid-error'][:60]}"
    elif "error=" in joined_header(headers, "proxy-status"):
        found = f"it answered with status {status} and Proxy-Status"
    elif program is not None:
        found = f"{program} answered with status {status}"
    elif status in _GATEWAY and is_bare:
        found = f"status {status} without the headers of a site"
    return None if found is None else (found, False)
