"""Authentication of the practice API: five kinds, with public secrets."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable

from aiohttp import web

from longline.core.clock import Clock
from longline.sandbox.seeded import draw
from longline.sandbox.templates.routes import reply

# None of these is a secret: they guard made-up data on this machine.
TOKEN, KEY = "practice-token", "practice-key"
USER, PASSWORD = "angler", "practice"
CLIENT, CLIENT_SECRET = "practice-client", "practice-secret"
_LIFETIME = 600  # seconds
_USES = 3
"""A token is revoked after this many requests, before it expires."""

Handler = Callable[[web.Request], Awaitable[web.Response]]
Check = Callable[[web.Request], bool]


def behind(check: Check, handler: Handler) -> Handler:
    """Return a handler that returns 401 if the check fails."""

    async def answer(request: web.Request) -> web.Response:
        return await handler(request) if check(request) else _stranger()

    return answer


def has_token(request: web.Request) -> bool:
    """Check the fixed bearer token."""
    return _bearer(request) == TOKEN


def has_key(request: web.Request) -> bool:
    """Check the key in its header."""
    return request.headers.get("x-api-key") == KEY


def has_key_in_query(request: web.Request) -> bool:
    """Check the key in the query."""
    return request.query.get("api_key") == KEY


def has_password(request: web.Request) -> bool:
    """Check the user and the password of basic authentication."""
    return _basic(request) == f"{USER}:{PASSWORD}"


class TokenOffice:
    """Issues tokens for client credentials; each expires after a time or a few uses."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self._seed = seed
        self._clock = clock
        self._tokens: dict[str, tuple[float, int]] = {}
        self.given = 0
        """The number of issued tokens."""

    async def give(self, request: web.Request) -> web.Response:
        """Respond to a request for a token (RFC 6749, section 4.4)."""
        form = await request.post()
        in_body = f"{form.get('client_id')!s}:{form.get('client_secret')!s}"
        credentials = _basic(request) or in_body
        if credentials != f"{CLIENT}:{CLIENT_SECRET}":
            return reply({"error": "invalid_client"}, status=401)
        if form.get("grant_type") != "client_credentials":
            return reply({"error": "unsupported_grant_type"}, status=400)
        self.given += 1
        token = f"{draw(self._seed, 'token', self.given):016x}"
        self._tokens[token] = (self._clock.now() + _LIFETIME, _USES)
        return reply({"access_token": token, "token_type": "Bearer", "expires_in": _LIFETIME})

    def behind(self, handler: Handler) -> Handler:
        """Return a handler that requires a token issued here."""

        async def answer(request: web.Request) -> web.Response:
            token = _bearer(request)
            until, left = self._tokens.get(token, (0.0, 0))
            if self._clock.now() >= until:
                return _stranger()
            if left < 1:  # not the 401 that everybody knows: an API has words of its own
                return reply({"error": "token_expired"}, status=403)
            self._tokens[token] = (until, left - 1)
            return await handler(request)

        return answer


def _stranger() -> web.Response:
    return reply({"error": "who are you?"}, status=401, headers={"WWW-Authenticate": "Bearer"})


def _bearer(request: web.Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def _basic(request: web.Request) -> str:
    kind, _, packed = request.headers.get("authorization", "").partition(" ")
    if kind != "Basic":
        return ""
    try:
        return base64.b64decode(packed).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
