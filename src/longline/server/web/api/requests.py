"""What every request to the API goes through: size, texts, Idempotency-Key, pages of lists."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longline.core.errors import BadOption, ConflictError
from longline.server.models import Page, is_storable
from longline.server.web.access import caller_of
from longline.server.web.context import web_of
from longline.server.web.problems import problem_response

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_MOST_BYTES = 1_000_000  # of a body
_MOST_TEXT = 4000  # characters of a parameter
_MOST_KEY = 200  # characters of an Idempotency-Key
_KEY = re.compile(rf"[!-~]{{1,{_MOST_KEY}}}")
IDEMPOTENCY_KEY = "Idempotency-Key"
NOT_REPEATABLE = frozenset({"/api/v1/tokens"})
"""Paths whose responses are not stored: they contain a secret."""


class KeyInUse(ConflictError):
    """A request with the same Idempotency-Key has not ended."""

    key: str
    message = "a request with the Idempotency-Key {key!r} has not ended"
    hint = "Wait for its response, then repeat the request."


# ---------------- Routes


class _ApiRoute(APIRoute):
    """A route whose POST requests may be repeated with the same Idempotency-Key."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if "POST" not in (self.methods or ()) or self.path in NOT_REPEATABLE:
            return handle

        async def handle_once(request: Request) -> Response:
            key = request.headers.get(IDEMPOTENCY_KEY)
            return await (handle(request) if key is None else _handle_once(request, key, handle))

        return handle_once


async def _handle_once(
    request: Request, key: str, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """Handle a request, or return the response to an earlier one with the same key."""
    if not _KEY.fullmatch(key):
        text = f"must be 1 to {_MOST_KEY} visible ASCII characters, without spaces"
        raise BadOption(IDEMPOTENCY_KEY, text)
    web, caller = web_of(request), caller_of(request).name
    body = await request.body()
    target = f"{request.method} {request.url.path}?{request.url.query}\n".encode()
    digest = hashlib.sha256(target + body).hexdigest()
    keys = web.store.idempotency_keys
    known = await keys.begin(caller, key, digest, web.clock.now())
    if known is not None:
        if known.request_hash != digest:
            raise BadOption(IDEMPOTENCY_KEY, f"{key!r} was used for another request")
        if known.status is None:
            raise KeyInUse(key)
        headers = {"Idempotency-Replayed": "true"}
        return JSONResponse(known.body, known.status, headers)
    is_done = False
    # What it creates has this key, too: repeated after the server was killed, it creates nothing.
    request.state.repetition_key = f"api/{caller}/{key}/{digest}"
    try:
        response = await handle(request)
        if response.status_code < 400:  # noqa: PLR2004  # errors as HTTP numbers them
            stored = orjson.loads(bytes(response.body))
            await keys.finish(caller, key, response.status_code, stored)
            is_done = True
    finally:
        if not is_done:
            await keys.abandon(caller, key)
    return response


def _repetition_key(request: Request) -> str | None:
    return getattr(request.state, "repetition_key", None)


RepetitionKey = Annotated[str | None, Depends(_repetition_key)]
"""The parameter of a route that creates something: equal for repetitions of a request."""


async def _check_texts(request: Request) -> None:
    """Refuse parameters with characters that a database cannot store, or of any length."""
    given = [*request.path_params.items(), *request.query_params.multi_items()]
    for name, text in given:
        if isinstance(text, str) and (len(text) > _MOST_TEXT or not is_storable(text)):
            raise BadOption(name, "it is too long, or has NUL or surrogate characters")


def api_router(tag: str) -> APIRouter:
    """Return the router of one subject of the API."""
    return APIRouter(
        prefix="/api/v1",
        tags=[tag],
        route_class=_ApiRoute,
        dependencies=[Depends(_check_texts)],
        generate_unique_id_function=lambda route: route.name,
    )


class BodyLimit:
    """The middleware that refuses large bodies of requests to the API."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        text = f"A body may have at most {_MOST_BYTES:,} bytes."
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > _MOST_BYTES:  # noqa: PLR2004  # digits
            await problem_response(request, text, status=413)(scope, receive, send)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > _MOST_BYTES:
                raise HTTPException(413, text)
            return message

        await self._app(scope, receive_limited, send)


# ---------------- Pages of lists

Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of entries.")]
CursorText = Annotated[
    str | None, Query(max_length=2000, description="`next` of the page before; opaque.")
]
Key = Sequence[str | float | None]


class InvalidCursor(BadOption):
    """A cursor was not made by this list."""


def write_cursor(key: Key) -> str:
    """Return a key as an opaque cursor."""
    return base64.urlsafe_b64encode(orjson.dumps([*key])).decode().rstrip("=")


def read_cursor(cursor: str | None, *kinds: type) -> list[Any] | None:
    """Return the key of a cursor, whose parts have these types; None without a cursor.

    Raises:
        BadOption: it is not a cursor of this list.
    """
    if cursor is None:
        return None
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        key = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error) as error:
        raise BadOption("cursor", "it is not a cursor of this list") from error
    is_fitting = isinstance(key, list) and len(key) == len(kinds) and is_storable(key)
    if not is_fitting or not all(_is_of(one, kind) for one, kind in zip(key, kinds, strict=True)):
        raise BadOption("cursor", "it is not a cursor of this list")
    return [float(one) if kind is float else one for one, kind in zip(key, kinds, strict=True)]


def _is_of(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def page_of(
    rows: Sequence[T], limit: int, key_of: Callable[[T], Key]
) -> tuple[list[T], str | None]:
    """Return the first `limit` of `limit + 1` rows, and the cursor after them."""
    some = [*rows[:limit]]
    return some, write_cursor(key_of(some[-1])) if len(rows) > limit else None


def page_in_memory(
    rows: Iterable[T], limit: int, cursor: str | None, key_of: Callable[[T], tuple[Any, ...]]
) -> Page[T]:
    """Return a page of a list that is in memory, sorted by unique keys of texts and numbers."""
    found = sorted(rows, key=key_of)
    if cursor is not None:
        kinds = (
            [float if isinstance(one, (int, float)) else str for one in key_of(found[0])]
            if found
            else None
        )
        # Without rows, any cursor was made by this list or not: the page is empty.
        after = tuple(read_cursor(cursor, *kinds) or ()) if kinds else read_any_cursor(cursor)
        found = [one for one in found if key_of(one) > after]
    some, following = page_of(found, limit, key_of)
    return Page(items=some, next=following)


def read_any_cursor(cursor: str) -> tuple[Any, ...]:
    """Return the key of a cursor of a list whose keys are not known.

    Raises:
        BadOption: it is not a cursor.
    """
    for kinds in ((str,), (float,), (str, str), (float, str)):
        try:
            return tuple(read_cursor(cursor, *kinds) or ())
        except BadOption:
            continue
    raise BadOption("cursor", "it is not a cursor of this list")
