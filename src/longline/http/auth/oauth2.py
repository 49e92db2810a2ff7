"""OAuth 2 with client credentials: a token is fetched, used until it ends, and fetched again."""

from __future__ import annotations

from urllib.parse import quote_plus, urlencode

from pydantic import SecretStr

from longline.config.auth import OAuth2Auth
from longline.config.secrets import reveal
from longline.core.clock import Clock
from longline.core.errors import UnexpectedShape, bad_status
from longline.core.model import Usage
from longline.http.auth.base import Obtained, cleaned
from longline.http.auth.fixed import basic_value
from longline.http.errors import AuthFailed
from longline.http.headers import Redacted, RedactedBody, with_header
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware

_UNAUTHORIZED = 401
_OK = 200
_PASSING = frozenset({429}) | frozenset(range(500, 600))
_MARGIN = 30.0  # seconds before its end that a token is no longer used: requests take time
_MARGIN_PART = 0.1  # … but no more than this part of a short life


class OAuth2(Obtained):
    """Signs with a bearer token of the client credentials grant (RFC 6749, section 4.4).

    The token request goes through the rest of the chain, so it pays for its own place there. The
    client secret goes to the token address alone: a redirect from there is not followed.
    """

    def __init__(self, inner: Middleware, auth: OAuth2Auth, clock: Clock) -> None:
        super().__init__()
        self._inner = inner
        self._auth = auth
        self._clock = clock
        self._token: SecretStr | None = None
        self._until = 0.0

    async def sign(self, request: Request, usage: Usage) -> Request:
        await self.have(request, usage)
        token = self._token.get_secret_value() if self._token else ""
        return with_header(request, "Authorization", f"Bearer {token}")

    def doubt(self, page: Page) -> str | None:
        return "the token is not accepted" if page.status == _UNAUTHORIZED else None

    def is_at_hand(self) -> bool:
        return self._token is not None and self._clock.now() < self._until

    async def obtain(self, request: Request, usage: Usage) -> None:
        asked = self._clock.now()
        page = await self._inner(self._asking(request.priority), usage)
        token, lifetime = self._read(page)
        self._token = SecretStr(token)
        self._until = asked + lifetime - min(_MARGIN, lifetime * _MARGIN_PART)
        usage.add_event("auth.token", host=Request(self._auth.token_url).domain, seconds=lifetime)

    def _asking(self, priority: int) -> Request:
        auth = self._auth
        fields = {"grant_type": "client_credentials", "scope": auth.scope}
        fields |= {"audience": auth.audience, **{n: reveal(v) for n, v in auth.extra.items()}}
        user, password = reveal(auth.client_id), reveal(auth.client_secret)
        headers = Redacted({"Accept": "application/json", "Cache-Control": "no-store"})
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        if auth.how == "basic":
            # Section 2.3.1: both are encoded like a form first, so that a colon does no harm.
            headers["Authorization"] = basic_value(quote_plus(user), quote_plus(password))
        else:
            fields |= {"client_id": user, "client_secret": password}
        body = urlencode({name: value for name, value in fields.items() if value is not None})
        secret = RedactedBody(body.encode())
        return Request(auth.token_url, "POST", headers, secret, priority=priority)

    def _read(self, page: Page) -> tuple[str, float]:
        """Return the token of an answer, and the seconds it lives."""
        url = self._auth.token_url
        if page.status in _PASSING:
            raise bad_status(url, page.status, page.retry_after(self._clock.now()))
        values = _values(page)
        token, kind = values.get("access_token"), values.get("token_type", "bearer")
        if page.status != _OK or not isinstance(token, str) or not token.isprintable():
            raise AuthFailed(url, self._problem(page, values))
        if str(kind).lower() != "bearer":
            raise AuthFailed(url, f"it gives tokens of the kind {cleaned(kind)}, not bearer")
        return token, _seconds(values.get("expires_in"))

    def _problem(self, page: Page, values: dict[str, object]) -> str:
        told = [values[name] for name in ("error", "error_description") if values.get(name)]
        why = cleaned(": ".join(str(one) for one in told), self._secrets())
        if why:
            return f"the token was refused with {page.status}, {why}"
        return f"the token address answered {page.status} without a token"

    def _secrets(self) -> list[str]:
        """Return the secrets in every form in which a server may repeat them."""
        auth = self._auth
        bare = [reveal(one) for one in auth.references()]
        pair = (quote_plus(reveal(auth.client_id)), quote_plus(reveal(auth.client_secret)))
        return [basic_value(*pair).partition(" ")[2], *bare, *map(quote_plus, bare)]


def _values(page: Page) -> dict[str, object]:
    try:
        values = page.json
    except UnexpectedShape:
        return {}
    return values if isinstance(values, dict) else {}


def _seconds(value: object) -> float:
    """Return how long a token lives; for ever when it does not say, until a 401 does."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else float("inf")
    except ValueError:
        return float("inf")
    return max(0.0, seconds)
