"""HTTP transport: one request with aiohttp, with a timeout and a maximum size."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import string
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.clock import Clock
from longline.core.errors import BadOption, ConnectFailed, FetchError
from longline.core.model import Usage
from longline.core.threads import Threads
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
    BodySink,
    Middleware,
    Page,
    Request,
    origin_of,
    with_query,
    without_userinfo_in,
)
from longline.http.proxies.connections import ProxySessions, find_proxy_error, proxy_fault
from longline.http.proxies.proxy import Proxy
from longline.limits.limiter import wait_for_turn

# ---------------- A connection that limits the processor time of a response

_SECONDS = 0.4  # of processor time for any response; a page of 1 MB takes some milliseconds
_SECONDS_PER_BYTE = 15e-9  # received; gzip takes a quarter of both together, plain text far less


@dataclass(slots=True)
class CurrentRequest:
    """The request that a connection serves, and why it was refused, if it was."""

    url: str
    refusal: FetchError | None = None
    proxy: Proxy | None = None


current_request: ContextVar[CurrentRequest] = ContextVar("current_request")
"""The request of the current task."""


class BudgetedConnection(ResponseHandler):
    """A connection of aiohttp that closes when a response takes too much processor time."""

    _request: CurrentRequest | None = None
    _clock = staticmethod(time.perf_counter)
    _spent = 0.0
    _received = 0

    def set_response_params(self, **how: Any) -> None:
        """Start another response."""
        self._request, self._clock = current_request.get(), time.perf_counter
        self._spent, self._received = 0.0, 0
        super().set_response_params(**how)

    def data_received(self, data: bytes) -> None:
        """Parse received data, and close if the response has taken too long."""
        began = self._clock()
        super().data_received(data)
        self._spent += self._clock() - began
        self._received += len(data)
        if self._spent <= _SECONDS + self._received * _SECONDS_PER_BYTE:
            return
        if self._clock is time.perf_counter:
            # It counts the pauses of this process, too, but costs far less than the processor time.
            self._clock, self._spent, self._received = time.thread_time, 0.0, 0
            return
        request = self._request
        if request is not None and request.refusal is None and self.transport is not None:
            cost = f"{self._received} bytes took {self._spent:.1f} s of CPU time"
            request.refusal = BadAnswer(request.url, f"it takes too long to parse: {cost}")
            self.transport.abort()  # the waiting task gets the error


# ---------------- DNS: in daemon threads, so that a slow name server delays nothing else

_THREADS = 64  # lookups at the same time; aiohttp makes one for each host and port
_FLAGS = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Resolver(AbstractResolver):
    """Resolves host names with the system's resolver, in daemon threads."""

    def __init__(self) -> None:
        self._threads = Threads(_THREADS, "longline-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            OSError: the name is unknown, or the name server does not respond.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _lookup, host, port, family)

    async def close(self) -> None:
        """End the threads after their current lookup, without waiting."""
        self._threads.shutdown()


def _lookup(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=int(address[1]),
            family=kind,
            proto=proto,
            flags=_FLAGS,
        )
        for kind, _, proto, _, address in found
    ]


_LONGEST_PROBLEM = 200
_DECODED = frozenset({"gzip", "deflate", "br", "zstd"})
_ENCODINGS = _DECODED | {"x-gzip", "compress", "x-compress", "bzip2", "xz", "lzma"}
_WITHOUT_BODY = frozenset({204, 304})
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_WITH_FILE = frozenset({200, 206})
_SLOWEST = 20_000  # bytes per second of a file, after the timeout


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Options of requests: seconds for a whole response, and bytes of a decoded body."""

    timeout: float = 30.0
    largest_body: int = 50_000_000
    user_agent: str = "longline"
    ca_file: Path | None = None
    """Certificate authorities to trust besides the system's (PEM)."""
    has_limit: bool = True
    """Whether requests may have a `before_write`; without it, aiohttp needs no trace."""


class HttpTransport(Middleware):
    """Sends requests over persistent connections.

    `addresses` checks the address of each connection; by default all are allowed. A given
    `resolver` is closed by its owner.
    """

    def __init__(
        self,
        options: HttpOptions,
        clock: Clock,
        addresses: AddressPolicy | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._addresses = addresses
        self._resolver = resolver or Resolver()
        self._owns_resolver = resolver is None
        self._session: aiohttp.ClientSession | None = None
        self._proxies: ProxySessions | None = None
        self._answered: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        usage.requests += 1
        seconds = request.timeout or self._options.timeout
        try:
            # One timeout for the whole response: a server may send a byte now and then.
            async with asyncio.timeout(seconds) as deadline:
                if request.proxy is None:
                    page = await self._exchange(self._open_session(), request, deadline)
                else:
                    page = await self._send_through_proxy(request, request.proxy, deadline)
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
        if self._proxies is not None:
            await self._proxies.close()
            self._proxies = None
        if self._owns_resolver:
            await self._resolver.close()

    async def _send_through_proxy(
        self, request: Request, proxy: Proxy, deadline: asyncio.Timeout
    ) -> Page:
        if self._proxies is None:
            self._proxies = ProxySessions(
                self._session_over,
                _connection_factory(),
                self._resolver,
                ssl_context(self._options.ca_file),
            )
        async with self._proxies.use(request.url, proxy) as (session, options):
            page = await self._exchange(session, request, deadline, options)
        is_forwarded = options and request.url.startswith("http:")
        if is_forwarded and (found := find_proxy_error(page, request.method)):
            problem, is_certain = found
            raise ProxyFailed(request.url, proxy.address, problem, is_certain=is_certain)
        return page

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the session of direct requests; opened with the first one."""
        if self._session is not None:
            return self._session
        connector = aiohttp.TCPConnector(
            # RateLimitMiddleware limits connections, where waiting does not count as timeout.
            limit=0,
            ssl=ssl_context(self._options.ca_file),
            resolver=self._resolver,
            socket_factory=None if self._addresses is None else self._checked_socket,
        )
        # aiohttp has no public way to choose the class of its connections.
        connector._factory = _connection_factory()  # noqa: SLF001
        self._session = self._session_over(connector, aiohttp.ClientTimeout(total=None))
        return self._session

    def _session_over(
        self, connector: aiohttp.BaseConnector, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_wait_to_write)
        traces = [trace] if self._options.has_limit else []
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._options.user_agent},
            timeout=timeout,
            trace_configs=traces,
            middlewares=(self._translate_broken_connection,),
        )

    def _checked_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for one address of a host, if it may be connected to."""
        family, kind, protocol, _, address = info
        assert self._addresses is not None  # noqa: S101  # only used with a policy
        try:
            self._addresses.check(current_request.get().url, str(address[0]))
        except PrivateAddress as error:
            current_request.get().refusal = error
            raise ConnectionRefusedError(str(error)) from error  # the next address is tried
        return socket.socket(family, kind, protocol)

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        request: Request,
        deadline: asyncio.Timeout,
        options: Mapping[str, Any] | None = None,
    ) -> Page:
        started = self._clock.now()
        own = CurrentRequest(request.url, proxy=request.proxy)
        current_request.set(own)
        try:
            async with session.request(
                request.method,
                with_query(request.url, request.hidden),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                trace_request_ctx=(request.before_write, deadline),
                **(options or {}),
            ) as response:
                body, streamed = b"", 0
                if request.sink is not None and _is_streamed(response):
                    streamed = await self._pour_body(request, request.sink, response, deadline)
                else:
                    body = await self._read_body(request, response)
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError):
            # Not chained, and not quoted: its text has the URL with hidden parameters.
            raise BadAnswer(request.url, "not a valid URL") from None
        except aiohttp.ClientResponseError as error:
            # Not chained: its text has the URL with hidden parameters.
            problem = " ".join(error.message.split())[:_LONGEST_PROBLEM]
            raise BadAnswer(request.url, f"it is not valid HTTP: {problem}") from None
        except aiohttp.ClientError as error:
            raise own.refusal or ConnectFailed(request.url, _error_text(error)) from error
        except OSError as error:
            raise ConnectFailed(request.url, _error_text(error)) from error
        seconds = self._clock.now() - started
        if not streamed:
            _check_content_encoding(request, response, body)
        headers = without_userinfo_in(_repair_headers(response.headers))
        return Page(request.url, response.status, headers, body, seconds, streamed=streamed)

    async def _pour_body(
        self,
        request: Request,
        sink: BodySink,
        response: aiohttp.ClientResponse,
        deadline: asyncio.Timeout,
    ) -> int:
        """Pass a body to a sink.

        The timeout applies to each pause. A long body may take longer, if it arrives fast enough.
        """
        url, size, ends = request.url, 0, deadline.when()
        longest = request.timeout or self._options.timeout
        loop = asyncio.get_running_loop()
        codings = response.headers.get("content-encoding", "").lower().split(",")
        unknown = [one for one in map(str.strip, codings) if one in _ENCODINGS - _DECODED]
        if unknown:
            raise BadAnswer(url, f"its Content-Encoding {unknown[0]!r} is not supported")
        await sink.begin(response.status, _repair_headers(response.headers))
        try:
            async for piece in response.content.iter_any():  # already unpacked
                size += len(piece)
                if ends is not None:
                    deadline.reschedule(min(ends + size / _SLOWEST, loop.time() + longest))
                await sink.write(piece)
        except aiohttp.ClientPayloadError as error:
            raise current_request.get().refusal or BodyCut(url, size) from error
        return size

    async def _read_body(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        pieces, size = [], 0
        try:
            async for piece in response.content.iter_any():  # already unpacked
                size += len(piece)
                if request.enough is not None and size >= request.enough:
                    pieces.append(piece[: len(piece) - (size - request.enough)])
                    break  # leaving the response unread closes its connection
                if size > self._options.largest_body:
                    limit = self._options.largest_body
                    problem = f"its body is larger than {limit} bytes once decompressed"
                    raise BadAnswer(request.url, problem)
                pieces.append(piece)
        except aiohttp.ClientPayloadError as error:
            raise current_request.get().refusal or BodyCut(request.url, size) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _translate_broken_connection(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Translate a broken connection before aiohttp sees it.

        Otherwise aiohttp would retry the request by itself, without a slot of the rate limit.
        """
        own = current_request.get()
        if own.proxy is not None:
            return await self._send_through(own.proxy, request, handler)
        try:
            return await handler(request)
        except aiohttp.ClientConnectorCertificateError as error:
            problem = getattr(error.certificate_error, "verify_message", "")
            raise BadCertificate(own.url, problem or "it is not valid for this host") from error
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            cause = getattr(error, "os_error", None)
            is_unknown = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME
            # For a host that responded before, the failure is temporary.
            is_new = origin_of(own.url)[1] not in self._answered
            kind = UnknownHost if is_unknown and is_new else ConnectFailed
            raise own.refusal or kind(own.url, _error_text(error)) from error

    async def _send_through(
        self, proxy: Proxy, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        try:
            return await handler(request)
        except Exception as error:
            own = current_request.get()
            fault = own.refusal or proxy_fault(own.url, proxy, error)
            if fault is None:
                raise
            raise fault from None  # the texts of these errors may have credentials


def _connection_factory() -> partial[ResponseHandler]:
    make = partial(BudgetedConnection, loop=asyncio.get_running_loop())
    return cast("partial[ResponseHandler]", make)


async def _wait_to_write(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any
) -> None:
    """Wait until a request may be written, without a timeout.

    aiohttp calls this when the connection is open and nothing is written yet.
    """
    before_write, deadline = context.trace_request_ctx
    if before_write is None:
        return
    ends, began = deadline.when(), asyncio.get_running_loop().time()
    deadline.reschedule(None)
    await before_write()
    deadline.reschedule(ends + asyncio.get_running_loop().time() - began)


def _is_streamed(response: aiohttp.ClientResponse) -> bool:
    """Return whether a body goes to a sink; HTML does not, since it may be a ban page."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status in _WITH_FILE and kind not in _HTML_TYPES


def _check_content_encoding(
    request: Request, response: aiohttp.ClientResponse, body: bytes
) -> None:
    """Refuse a body that is still encoded, or that could not be decoded.

    Unknown values of Content-Encoding, such as utf-8, are mistakes of the site and are ignored.

    Raises:
        BadAnswer: it is such a body.
    """
    encoding = response.headers.get("content-encoding")
    if not encoding or request.method == "HEAD":
        return
    codings = [one.strip().lower() for one in encoding.split(",")]
    encodings = [one for one in codings if one in _ENCODINGS]
    length = response.headers.get("content-length", "0")
    if encodings and body and (len(encodings) > 1 or encodings[0] not in _DECODED):
        raise BadAnswer(request.url, f"its Content-Encoding {encoding[:60]!r} is not supported")
    if encodings and not body and length != "0" and response.status not in _WITHOUT_BODY:
        raise BadAnswer(
            request.url, f"its body does not match its Content-Encoding {encoding[:60]!r}"
        )


def _repair_headers(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """Return headers without the surrogates that aiohttp decodes invalid UTF-8 to."""
    if "".join(headers.values()).isascii():
        return headers  # the usual case
    repaired: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        raw = value.encode("utf-8", "surrogateescape")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            is_url = name.lower() == "location"  # its bytes are percent-encoded
            text = quote(raw, safe=string.printable) if is_url else raw.decode("latin-1")
        repaired.add(name, text)
    return CIMultiDictProxy(repaired)


def ssl_context(ca_file: Path | None) -> ssl.SSLContext | bool:
    """Return the verification of certificates: the system's authorities, and those in a file.

    Raises:
        BadOption: the file cannot be read, or has no certificate.
    """
    if ca_file is None:
        return True
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        problem = "it contains no certificates (PEM)" if isinstance(error, ssl.SSLError) else error
        raise BadOption("ca_file", f"{ca_file}: {problem}") from error
    return context


def _error_text(error: Exception) -> str:
    cause = getattr(error, "os_error", None) or error
    return str(cause) or type(error).__name__


# ---------------- Concurrent connections: a total, and a share for each host

_LARGEST_TOTAL = 4096
_SMALLEST_TOTAL = 64


class ConnectionLimit:
    """Connections in flight, of all jobs of a process.

    A host may have half of them, so hosts that hang delay only themselves. When three quarters
    are in use, the rest is for hosts without any connection: each of them gets one before a busy
    host gets another.

    Args:
        total: Connections at the same time; by default half of the file descriptors that this
            process may open (the other half is for idle connections, databases and files).
    """

    def __init__(self, total: int | None = None) -> None:
        if total is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            share = _LARGEST_TOTAL if soft == resource.RLIM_INFINITY else soft // 2
            total = max(_SMALLEST_TOTAL, min(share, _LARGEST_TOTAL))
        self._total = total
        self._per_host = max(1, self._total // 2)
        self._shared = self._total - self._total // 4
        self._in_flight: Counter[str] = Counter()
        self._sum = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def try_acquire(self, host: str) -> bool:
        """Take a connection of a host if one is free and no earlier request waits for it."""
        if host in self._waiting or not self._is_free(host):
            return False
        self._take(host)
        return True

    async def acquire(self, host: str) -> None:
        """Wait for a connection of a host; requests of one host are served in order."""
        if self.try_acquire(host):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(turn)
        await wait_for_turn(turn, lambda: self.release(host))

    def release(self, host: str) -> None:
        """Return a connection; the waiting host with the fewest connections is served first."""
        self._in_flight[host] -= 1
        self._sum -= 1
        if not self._in_flight[host]:
            del self._in_flight[host]
        while free := [host for host in self._waiting if self._is_free(host)]:
            host = min(free, key=lambda name: self._in_flight[name])
            queue = self._waiting[host]
            turn = queue.popleft()
            if not queue:
                del self._waiting[host]
            if not turn.done():  # else it was cancelled
                self._take(host)
                turn.set_result(None)
                return

    def _is_free(self, host: str) -> bool:
        held = self._in_flight[host]
        return held < self._per_host and self._sum < (self._shared if held else self._total)

    def _take(self, host: str) -> None:
        self._in_flight[host] += 1
        self._sum += 1
