"""Requests to a server: authentication, retries, errors as exceptions, and its stream of events."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from pydantic import BaseModel, ValidationError
from yarl import URL

from longline.core.clock import Clock, SystemClock, backoff
from longline.core.errors import (
    BadOption,
    ConfigError,
    ConflictError,
    LonglineError,
    NotAllowedError,
    NotFoundError,
)

M = TypeVar("M", bound=BaseModel)
PREFIX = "/api/v1"
_ATTEMPTS = 3
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 15.0  # seconds between two attempts
_CONNECT = 10.0  # seconds
_SILENCE = 60.0  # seconds; the stream of a healthy server sends something every 15 s
_LONGEST_DETAIL = 2000  # characters of an error
_BUSY = frozenset({502, 503, 504})
_LARGEST_MESSAGE = 32_000_000  # bytes of one event
_KEY_HEADER, _LAST_ID_HEADER = "Idempotency-Key", "Last-Event-ID"


class ServerError(LonglineError):
    """A request to a server failed; `kind` is the class of the error there."""

    server: str
    status: int
    detail: str
    kind: str = ""
    message = "{detail}"


class ServerUnreachable(ConfigError):
    """There is no connection to the server, or it broke."""

    server: str
    problem: str
    message = "the server {server} is not reachable ({problem})"
    hint = "Check its address, and that `longline serve` runs there."


class NotAuthenticated(ServerError, ConfigError):
    """The token is missing, or the server does not accept it."""

    message = "the server {server} does not accept the token"
    hint = "Set LONGLINE_TOKEN to a valid one; `longline tokens add NAME` creates it on the server."


class NotPermitted(ServerError, NotAllowedError):
    """The role of the token does not allow this."""


class UnknownToServer(ServerError, NotFoundError):
    """What the request names does not exist on the server."""


class ServerConflict(ServerError, ConflictError):
    """What the request wants does not fit the present state."""


class ServerRefused(ServerError, ConfigError):
    """The request has an invalid value."""


class ServerBusy(ServerError):
    """The server cannot respond now; a repeated request may succeed."""


_ERRORS: Mapping[int, type[ServerError]] = {
    400: ServerRefused,
    401: NotAuthenticated,
    403: NotPermitted,
    404: UnknownToServer,
    409: ServerConflict,
    413: ServerRefused,
    421: ServerRefused,
    422: ServerRefused,
    429: ServerRefused,
    **dict.fromkeys(_BUSY, ServerBusy),
}


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a stream of server-sent events."""

    id: str
    data: str


def path_part(value: str | int) -> str:
    """Return a value as one part of a path."""
    return quote(str(value), safe="")


class Connection:
    """An open connection to a server; each request is repeated where that is safe.

    Args:
        url: of the server, such as http://127.0.0.1:8400.
        token: of `longline tokens add`.
        timeout: seconds for a whole response.
        clock: waits between two attempts.

    Raises:
        BadOption: the URL is not one.
    """

    _LIMITS: ClassVar[Mapping[str, Any]] = {"allow_redirects": False}

    def __init__(
        self, url: str, *, token: str | None, timeout: float, clock: Clock | None = None
    ) -> None:
        self.server = _checked(url)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {_checked_token(token)}"
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=_CONNECT)
        self._clock = clock or SystemClock()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, model: type[M], **params: Any) -> M:
        """Return the response to a GET request as a model."""
        return _parsed(model, await self._repeated("GET", path, params=params), self.server)

    async def get_text(self, path: str) -> str:
        """Return the response to a GET request as text."""
        return (await self._repeated("GET", path, accept="text/plain")).decode("utf-8", "replace")

    async def post(
        self,
        path: str,
        model: type[M],
        body: BaseModel | None = None,
        *,
        key: str | None = None,
        is_repeatable: bool = True,
    ) -> M:
        """Return the response to a POST request as a model.

        It has an Idempotency-Key, so that the server does what a repeated request asks for once.
        """
        headers = {_KEY_HEADER: key or uuid.uuid4().hex} if is_repeatable else {}
        raw = None if body is None else body.model_dump_json(exclude_unset=True).encode()
        if raw is not None:
            headers["Content-Type"] = "application/json"
        send = self._repeated if is_repeatable else self._send
        return _parsed(model, await send("POST", path, headers=headers, body=raw), self.server)

    async def delete(self, path: str, model: type[M]) -> M:
        """Return the response to a DELETE request as a model."""
        return _parsed(model, await self._repeated("DELETE", path), self.server)

    async def stream(
        self, path: str, params: Mapping[str, Any], last_id: str | None
    ) -> AsyncGenerator[Message]:
        """Yield the messages of a stream; after a broken connection, continue after the last one.

        Raises:
            ServerUnreachable: the first connection failed.
        """
        failures, was_open = 0, False
        while True:
            try:
                async with aclosing(self._messages(path, params, last_id)) as messages:
                    async for message in messages:
                        failures, was_open = 0, True
                        last_id = message.id or last_id
                        if message.data:
                            yield message
            except (ServerUnreachable, ServerBusy):
                if not was_open and failures + 1 >= _ATTEMPTS:
                    raise
            failures += 1
            await self._clock.sleep(_wait(failures))

    # ---------------- One request

    async def _repeated(self, method: str, path: str, **how: Any) -> bytes:
        for attempt in range(1, _ATTEMPTS):
            try:
                return await self._send(method, path, **how)
            except (ServerUnreachable, ServerBusy):
                await self._clock.sleep(_wait(attempt))
        return await self._send(method, path, **how)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        accept: str = "application/json",
    ) -> bytes:
        try:
            async with self._open.request(
                method,
                self._url(path, params or {}),
                headers={"Accept": accept, **(headers or {})},
                data=body,
                timeout=self._timeout,
                **self._LIMITS,
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServerUnreachable(self.server, _problem_of(error)) from error
        if not 200 <= response.status < 300:  # noqa: PLR2004  # as HTTP numbers success
            raise _error_of(self.server, response.status, content)
        return content

    async def _messages(
        self, path: str, params: Mapping[str, Any], last_id: str | None
    ) -> AsyncGenerator[Message]:
        """Yield the messages of one connection; the first is empty and says that it is open."""
        headers = {"Accept": "text/event-stream"}
        if last_id is not None:
            headers[_LAST_ID_HEADER] = last_id
        try:
            async with self._open.get(
                self._url(path, params),
                headers=headers,
                timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT, sock_read=_SILENCE),
                **self._LIMITS,
            ) as response:
                if response.status != 200:  # noqa: PLR2004  # as HTTP numbers success
                    raise _error_of(self.server, response.status, await response.read())
                yield Message("", "")
                buffer = b""
                async for some in response.content.iter_any():
                    *whole, buffer = (buffer + some.replace(b"\r", b"")).split(b"\n\n")
                    for one in whole:
                        yield _parse_message(one.decode("utf-8", "replace"))
                    if len(buffer) > _LARGEST_MESSAGE:
                        raise ServerError(self.server, 200, f"{self.server} sends no events")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServerUnreachable(self.server, _problem_of(error)) from error

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            message = "use the Client in `async with Client(...) as client:`"
            raise RuntimeError(message)
        return self._session

    def _url(self, path: str, params: Mapping[str, Any]) -> URL:
        query = urlencode(_query(params))
        # As it is: a name may have a slash, which yarl would decode.
        return URL(f"{self.server}{PREFIX}{path}{f'?{query}' if query else ''}", encoded=True)


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port  # raises ValueError when it is not a number
    except ValueError:
        is_web = False
    if not is_web or parts.query or parts.fragment or parts.username or not url.isprintable():
        problem = f"{url!r:.200} is not the address of a server, such as http://127.0.0.1:8400"
        raise BadOption("server", problem)
    return url.rstrip("/")


def _checked_token(token: str) -> str:
    if not token.isascii() or not token.isprintable() or not token.strip():
        raise BadOption("token", "it has characters that no token has")
    return token.strip()


def _wait(failures: int) -> float:
    return backoff(failures, base=_FIRST_WAIT, ceiling=_LONGEST_WAIT)


def _query(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters that were given; a list is a repeated parameter."""
    pairs = (
        (name, one)
        for name, value in params.items()
        for one in (value if isinstance(value, (list, tuple)) else [value])
    )
    return [
        (name, str(one).lower() if isinstance(one, bool) else str(one))
        for name, one in pairs
        if one is not None
    ]


def _problem_of(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not respond in time"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    text = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return str(text)[:200]


def _error_of(server: str, status: int, content: bytes) -> ServerError:
    """Return the exception for an error response."""
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "detail" not in problem:
        detail = f"{server} responded with status {status}, and not as longline does"
        return _ERRORS.get(status, ServerError)(server, status, detail)
    texts = [str(problem[name]) for name in ("detail", "hint") if problem.get(name)]
    detail = " ".join(texts)[:_LONGEST_DETAIL]
    kind = str(problem.get("kind") or "")[:100]
    # A request whose response was lost may still be running, with the key of its repetition.
    found = ServerBusy if kind == "KeyInUse" else _ERRORS.get(status, ServerError)
    return found(server, status, detail, kind)


def _parsed(model: type[M], content: bytes, server: str) -> M:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"])
        detail = (
            f"{server} did not respond as this version of longline does ({place}: {first['msg']})"
        )
        raise ServerError(server, 200, detail) from error


def _parse_message(text: str) -> Message:
    fields: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        fields.setdefault(name, []).append(value.removeprefix(" "))
    return Message(fields.get("id", [""])[-1], "\n".join(fields.get("data", [])))
