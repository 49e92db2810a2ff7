"""The end of the chain: one HTTP request with aiohttp, under one deadline and one size limit."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict, CIMultiDictProxy

from longline.clock import Clock
from longline.errors import (
    BadAnswer,
    BadCertificate,
    BadOption,
    BodyCut,
    ConnectFailed,
    FetchError,
    PrivateAddress,
    TimedOut,
    UnknownHost,
)
from longline.fetching.addresses import AddressPolicy
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request, with_query, without_userinfo_in
from longline.fetching.transports.connection import Asked, BudgetedConnection, asked
from longline.fetching.transports.resolving import Resolver
from longline.model import Account

_TOO_MANY = 429
_LONGEST_PROBLEM = 200
_ASCII = 0x7F
_UNPACKED = frozenset({"gzip", "deflate", "br", "zstd"})
_PACKINGS = _UNPACKED | {"x-gzip", "compress", "x-compress", "bzip2", "xz", "lzma"}
_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How requests are made: seconds for a whole answer, and bytes of a body once unpacked."""

    timeout: float = 30.0
    largest_body: int = 50_000_000
    user_agent: str = "longline"
    ca_file: Path | None = None
    """Certificates of authorities that are trusted beside those of the system, as PEM."""
    is_timed: bool = True
    """Whether to note when each request really left, which a limited pace learns from."""


class HttpTransport(Link):
    """Sends requests over kept-open connections. Open it as a context manager.

    Args:
        options: How requests are made.
        clock: What answers are timed by.
        addresses: Checks the address of each connection; without it, any may be connected to.
        resolver: Looks up host names; by default the system's.
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
        self._session: aiohttp.ClientSession | None = None
        self._answered: set[str] = set()

    async def __call__(self, request: Request, account: Account) -> Page:
        if self._session is None:
            self._session = self._open()
        account.requests += 1
        seconds = request.timeout or self._options.timeout
        try:
            # A total deadline: a server that drips a byte now and then defeats any other.
            async with asyncio.timeout(seconds):
                page = await self._exchange(self._session, request)
        except TimeoutError as error:
            raise TimedOut(request.url, seconds) from error
        self._answered.add(request.domain)
        account.received_bytes += len(page.body)
        account.status = page.status
        account.rate_limited += page.status == _TOO_MANY
        return page

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        await self._resolver.close()

    def _open(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(self._note_sent)
        traces = [trace] if self._options.is_timed else []
        connector = aiohttp.TCPConnector(
            # Connections are limited where they are waited for without a deadline: in Pacing.
            limit=0,
            ssl=ssl_context(self._options.ca_file),
            resolver=self._resolver,
            socket_factory=None if self._addresses is None else self._checked_socket,
        )
        # aiohttp has no public way to choose the class of its connections.
        make = partial(BudgetedConnection, loop=asyncio.get_running_loop())
        connector._factory = cast("partial[ResponseHandler]", make)  # noqa: SLF001
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": self._options.user_agent},
            timeout=aiohttp.ClientTimeout(total=None),
            trace_configs=traces,
            middlewares=(_no_hidden_retry,),
        )

    def _checked_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for one address of a host, if it may be connected to."""
        family, kind, protocol, _, address = info
        assert self._addresses is not None  # noqa: S101  # only called with a policy
        try:
            self._addresses.check(asked.get().url, str(address[0]))
        except PrivateAddress as error:
            asked.get().refusal = error
            raise ConnectionRefusedError(str(error)) from error  # the next address is tried
        return socket.socket(family, kind, protocol)

    async def _note_sent(
        self, _session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any
    ) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx.at = self._clock.now()

    async def _exchange(self, session: aiohttp.ClientSession, request: Request) -> Page:
        started = self._clock.now()
        own = Asked(request.url)
        asked.set(own)
        try:
            async with session.request(
                request.method,
                with_query(request.url, request.hidden),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                trace_request_ctx=request.sent,
            ) as response:
                body = await self._read(request, response)
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError):
            # Not chained, and not quoted: its text is the address again, hidden parameters and all.
            raise BadAnswer(request.url, "not an address that can be asked") from None
        except aiohttp.ClientResponseError as error:
            # Not chained: its own text holds the whole address, hidden parameters and all.
            problem = " ".join(error.message.split())[:_LONGEST_PROBLEM]
            raise BadAnswer(request.url, f"it is not valid HTTP: {problem}") from None
        except _Nameless as error:
            # A name that was known before is a trouble of the name servers, and passes.
            kind = ConnectFailed if request.domain in self._answered else UnknownHost
            raise kind(request.url, _sentence(error)) from error
        except _Untrusted as error:
            raise BadCertificate(request.url, str(error)) from error
        except aiohttp.ClientError as error:
            raise own.refusal or ConnectFailed(request.url, _sentence(error)) from error
        except OSError as error:
            raise ConnectFailed(request.url, _sentence(error)) from error
        seconds = self._clock.now() - started
        _check_packing(request, response, body)
        headers = without_userinfo_in(_readable(response.headers))
        return Page(request.url, response.status, headers, body, seconds)

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        pieces, size = [], 0
        try:
            async for piece in response.content.iter_any():  # already unpacked
                size += len(piece)
                if request.enough is not None and size >= request.enough:
                    pieces.append(piece[: len(piece) - (size - request.enough)])
                    break  # leaving the response unread closes its connection
                if size > self._options.largest_body:
                    raise self._too_large(request)
                pieces.append(piece)
        except aiohttp.ClientPayloadError as error:
            raise asked.get().refusal or BodyCut(request.url, size) from error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self, request: Request) -> FetchError:
        limit = self._options.largest_body
        return BadAnswer(request.url, f"its body is larger than {limit} bytes once unpacked")


def _check_packing(request: Request, response: aiohttp.ClientResponse, body: bytes) -> None:
    """Refuse a body that is still packed, or of which nothing could be unpacked.

    What names no packing, such as utf-8, is a mistake of the site that changes nothing.

    Raises:
        BadAnswer: it is such a body.
    """
    said = response.headers.get("content-encoding")
    if not said or request.method == "HEAD":
        return
    codings = [one.strip().lower() for one in said.split(",")]
    packings = [one for one in codings if one in _PACKINGS]
    length = response.headers.get("content-length", "0")
    if packings and body and (len(packings) > 1 or packings[0] not in _UNPACKED):
        raise BadAnswer(request.url, f"its body is packed as {said[:60]!r}, which is not supported")
    if packings and not body and length != "0" and response.status not in _WITHOUT_BODY:
        raise BadAnswer(request.url, f"its body is not what {said[:60]!r} packs")


def _readable(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """Return headers without halves of characters, which aiohttp makes of bytes outside UTF-8."""
    if all(value.isascii() for value in headers.values()):
        return headers  # as nearly always
    return CIMultiDictProxy(
        CIMultiDict((name, _whole_characters(name, value)) for name, value in headers.items())
    )


def _whole_characters(name: str, value: str) -> str:
    raw = value.encode("utf-8", "surrogateescape")
    with suppress(UnicodeDecodeError):
        return raw.decode()
    if name.lower() == "location":  # an address of bytes, as they are escaped in addresses
        return "".join(f"%{one:02X}" if one > _ASCII else chr(one) for one in raw)
    return raw.decode("latin-1")


class _Broken(aiohttp.ClientError):
    """A broken connection, in words that name no address: that may hold hidden parameters."""


class _Nameless(_Broken):
    """The same, because nobody knows a host of that name."""


class _Untrusted(_Broken):
    """The same, because the certificate of the host is not trusted."""


def ssl_context(ca_file: Path | None) -> ssl.SSLContext | bool:
    """Return what verifies certificates: by the system's authorities, and those of a file.

    Raises:
        BadOption: the file cannot be read, or holds no certificate.
    """
    if ca_file is None:
        return True
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=ca_file)
    except OSError as error:  # ssl.SSLError is one
        problem = "it holds no certificates (PEM)" if isinstance(error, ssl.SSLError) else error
        raise BadOption("ca_file", f"{ca_file}: {problem}") from error
    return context


async def _no_hidden_retry(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Turn a broken connection into our error before aiohttp sees it.

    It would send the request once more by itself, and that one would have paid no token.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorCertificateError as error:
        cause = error.certificate_error
        problem = getattr(cause, "verify_message", "") or "it does not belong to this host"
        raise _Untrusted(problem) from error
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        kind = _Nameless if _is_nameless(error) else _Broken
        raise kind(_sentence(error)) from error


def _is_nameless(error: Exception) -> bool:
    cause = getattr(error, "os_error", None)
    return isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME


def _sentence(error: Exception) -> str:
    cause = getattr(error, "os_error", None) or error
    return str(cause) or type(error).__name__
