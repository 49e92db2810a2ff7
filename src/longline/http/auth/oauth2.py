"""OAuth 2 client credentials: a token is requested, used until it expires, and renewed."""

from __future__ import annotations

from urllib.parse import quote_plus, urlencode

from pydantic import SecretStr

from longline.config.auth import OAuth2Auth
from longline.config.secrets import reveal
from longline.core.clock import Clock
from longline.core.errors import UnexpectedShape, bad_status
from longline.core.model import Usage
from longline.core.redaction import KNOWN_SECRETS
from longline.http.auth.base import ObtainedScheme, one_line
from longline.http.auth.fixed import basic_value
from longline.http.errors import AuthFailed
from longline.http.headers import Redacted, RedactedBody, with_header
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware

_UNAUTHORIZED = 401
_OK = 200
_TEMPORARY = frozenset({429}) | frozenset(range(500, 600))
_MARGIN = 30.0  # seconds before its expiry that a token is renewed: requests take time
_MARGIN_SHARE = 0.1  # … but at most this share of a short lifetime


class OAuth2Scheme(ObtainedScheme):
    """Adds a bearer token of the client credentials grant (RFC 6749, section 4.4).

    The token request passes the rest of the chain, with its own slots. The client secret is sent to
    the token URL only: a redirect from there is not followed.
    """

    def __init__(self, inner: Middleware, auth: OAuth2Auth, clock: Clock) -> None:
        super().__init__()
        self._inner = inner
        self._auth = auth
        self._clock = clock
        self._token: SecretStr | None = None
        self._until = 0.0

    async def sign(self, request: Request, usage: Usage) -> Request:
        await self.ensure(request, usage)
        token = self._token.get_secret_value() if self._token else ""
        return with_header(request, "Authorization", f"Bearer {token}")

    def expiry_reason(self, page: Page) -> str | None:
        return "the token is not accepted" if page.status == _UNAUTHORIZED else None

    def has_credentials(self) -> bool:
        return self._token is not None and self._clock.now() < self._until

    async def obtain(self, request: Request, usage: Usage) -> None:
        started = self._clock.now()
        page = await self._inner(self._token_request(request.priority), usage)
        token, lifetime = self._read_token(page)
        self._token = SecretStr(token)
        KNOWN_SECRETS.add(token)
        self._until = started + lifetime - min(_MARGIN, lifetime * _MARGIN_SHARE)
        usage.add_event("auth.token", host=Request(self._auth.token_url).domain, seconds=lifetime)

    def _token_request(self, priority: int) -> Request:
        auth = self._auth
        fields = {"grant_type": "client_credentials", "scope": auth.scope}
        fields |= {"audience": auth.audience, **{n: reveal(v) for n, v in auth.extra.items()}}
        user, password = reveal(auth.client_id), reveal(auth.client_secret)
        headers = Redacted({"Accept": "application/json", "Cache-Control": "no-store"})
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        if auth.how == "basic":
            # Section 2.3.1: both are form-encoded first, so that they may contain a colon.
            headers["Authorization"] = basic_value(quote_plus(user), quote_plus(password))
        else:
            fields |= {"client_id": user, "client_secret": password}
        body = urlencode({name: value for name, value in fields.items() if value is not None})
        secret = RedactedBody(body.encode())
        return Request(auth.token_url, "POST", headers, secret, priority=priority)

    def _read_token(self, page: Page) -> tuple[str, float]:
        """Return the token in a response, and its lifetime in seconds."""
        url = self._auth.token_url
        if page.status in _TEMPORARY:
            raise bad_status(url, page.status, page.retry_after(self._clock.now()))
        values = _json_object(page)
        token, kind = values.get("access_token"), values.get("token_type", "bearer")
        if page.status != _OK or not isinstance(token, str) or not token.isprintable():
            raise AuthFailed(url, self._problem(page, values))
        if str(kind).lower() != "bearer":
            raise AuthFailed(url, f"it returned a token of type {one_line(kind)}, not bearer")
        return token, _parse_lifetime(values.get("expires_in"))

    def _problem(self, page: Page, values: dict[str, object]) -> str:
        messages = [values[name] for name in ("error", "error_description") if values.get(name)]
        why = one_line(": ".join(str(one) for one in messages), self._secrets())
        if why:
            return f"the token was refused with {page.status}, {why}"
        return f"the token URL answered {page.status} without a token"

    def _secrets(self) -> list[str]:
        """Return the secrets in the forms in which a server may repeat them."""
        auth = self._auth
        bare = [reveal(one) for one in auth.references()]
        pair = (quote_plus(reveal(auth.client_id)), quote_plus(reveal(auth.client_secret)))
        return [basic_value(*pair).partition(" ")[2], *bare, *map(quote_plus, bare)]


def _json_object(page: Page) -> dict[str, object]:
    try:
        values = page.json
    except UnexpectedShape:
        return {}
    return values if isinstance(values, dict) else {}


def _parse_lifetime(value: object) -> float:
    """Return the lifetime of a token in seconds; unlimited if it has none, until a 401."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else float("inf")
    except ValueError:
        return float("inf")
    return max(0.0, seconds)
