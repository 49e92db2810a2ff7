"""Who may do what: host check, login, roles, protection against cross-site requests, audit.

One middleware decides before any route runs. Without a valid credential only the login, the
static files, the health checks and the judge of proxies respond. Reading needs the role `read`,
every other method `operate`; routes that need `admin` say so with `AdminOnly`. Every change is an
event with its caller.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longline.config.secrets import is_loopback
from longline.core.errors import LonglineError, NotAllowedError
from longline.server.web.context import Web
from longline.server.web.problems import problem_response
from longline.storage.access import Credential, CredentialKind, NewCredential, Role
from longline.storage.events.events import event_row

SESSION_COOKIE = "longline_session"
SESSION_SECONDS = 30 * 86_400.0
LINK_SECONDS = 600.0

_OPEN = ("/login", "/static/", "/livez", "/readyz", "/judge", "/favicon.ico")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_FAILURES = 10  # of one address, within the window
_WINDOW = 60.0  # seconds
_MOST_CLIENTS = 10_000  # addresses whose failures are remembered
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_RAW_HEADERS = [(name.lower().encode(), text.encode()) for name, text in SECURITY_HEADERS.items()]


class Forbidden(NotAllowedError):
    """The role of the caller does not allow this."""

    role: str
    needed: str
    message = "the role {role!r} does not allow this: it needs {needed!r}"
    hint = "Ask for a token with this role: longline tokens add NAME --role {needed}."


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request; `session` is the secret of a browser's session, if it has one."""

    name: str
    role: Role
    session: str | None = None


def caller_of(request: Request) -> Caller:
    """Return who sends a request."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


def _require_admin(request: Request) -> Caller:
    caller = caller_of(request)
    if not caller.role.covers(Role.ADMIN):
        raise Forbidden(caller.role.value, Role.ADMIN.value)
    return caller


AnyCaller = Annotated[Caller, Depends(caller_of)]
"""The parameter of a route that needs to know its caller."""
AdminOnly = Annotated[Caller, Depends(_require_admin)]
"""The parameter of a route that only the role `admin` may use."""


class LoginLimit:
    """Counts failed logins by address; after ten within a minute, further ones are refused."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def wait(self, client: str, at: float) -> float:
        """Return the seconds until this address may try again; 0: now."""
        recent = [one for one in self._failures.get(client, []) if one > at - _WINDOW]
        return recent[0] + _WINDOW - at if len(recent) >= _MOST_FAILURES else 0.0

    def count(self, client: str, at: float) -> None:
        """Count a failed attempt."""
        recent = [one for one in self._failures.pop(client, []) if one > at - _WINDOW]
        self._failures[client] = [*recent[-_MOST_FAILURES:], at]
        if len(self._failures) > _MOST_CLIENTS:
            self._failures.popitem(last=False)


class Guard:
    """The middleware that decides whether a request reaches a route."""

    def __init__(self, app: ASGIApp, web: Web, hosts: frozenset[str], limit: LoginLimit) -> None:
        self._app = app
        self._web = web
        self._hosts = hosts
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        scope.setdefault("state", {})
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A route may have a policy of its own, such as that of a sandboxed document.
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(one for one in _RAW_HEADERS if one[0] not in given),
                ]
                if not request.url.path.startswith("/static/"):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        try:
            refused = await self._refuse(request)
        except LonglineError as error:  # the database does not respond
            refused = problem_response(request, error)
        app = refused if refused is not None else self._app
        try:
            await app(scope, receive, send_guarded)
        except Exception:  # the handler of the application, outside of this one, responds
            await self._audit(request, 500)
            raise
        if refused is None:
            await self._audit(request, status)

    async def _refuse(self, request: Request) -> Response | None:  # noqa: PLR0911  # one per reason
        """Return the response to a request that may not reach its route; None: it may."""
        if not self._is_known_host(request):
            text = f"This server does not know the host {request.headers.get('host', '')!r}."
            hint = "Open it by its address, or add the name to the setting web_hosts."
            return problem_response(request, text, status=421, hint=hint)
        if request.url.path.startswith(_OPEN) and not request.url.path.startswith("/login/out"):
            if request.method not in _SAFE and not is_same_site(request):
                return _cross_site(request)
            return None
        caller = await self._authenticate(request)
        if caller is None:
            return await self._unauthenticated(request)
        request.scope["state"]["caller"] = caller
        if request.method in _SAFE:
            return None
        # A browser sends cookies, and a proxy its header, with forms of foreign pages too.
        if "authorization" not in request.headers and not is_same_site(request):
            return _cross_site(request)
        if not caller.role.covers(Role.OPERATE) and request.url.path != "/login/out":
            return problem_response(request, Forbidden(caller.role.value, Role.OPERATE.value))
        return None

    def _is_known_host(self, request: Request) -> bool:
        host = (urlsplit(f"//{request.headers.get('host', '')}").hostname or "").lower()
        return host in self._hosts or ("localhost" in self._hosts and is_loopback(host))

    async def _authenticate(self, request: Request) -> Caller | None:
        now = self._web.clock.now()
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            found = await self._web.store.credentials.find(secret.strip(), now)
            is_usable = found is not None and found.kind is CredentialKind.TOKEN
            return Caller(found.name, found.role) if found and is_usable else None
        if (user := _proxy_user(self._web, request)) is not None:
            return user
        cookie = request.cookies.get(SESSION_COOKIE)
        if cookie is None:
            return None
        found = await self._web.store.credentials.find(cookie, now)
        is_usable = found is not None and found.kind is CredentialKind.SESSION
        return Caller(found.name, found.role, cookie) if found and is_usable else None

    async def _unauthenticated(self, request: Request) -> Response:
        now = self._web.clock.now()
        client = client_of(request)
        if "authorization" in request.headers:
            if (wait := self._limit.wait(client, now)) > 0:
                return too_many_failures(request, wait)
            self._limit.count(client, now)
        if request.url.path.startswith(("/api/", "/metrics")) or request.method not in _SAFE:
            text = "This needs a valid token."
            hint = "Send the header Authorization: Bearer TOKEN; create one: longline tokens add."
            response = problem_response(request, text, status=401, hint=hint)
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(target, safe='')}", status_code=303)

    async def _audit(self, request: Request, status: int) -> None:
        caller: Caller | None = request.scope["state"].get("caller")
        if caller is None or request.method in _SAFE:
            return
        row = event_row(
            None,
            self._web.clock.now(),
            "access.used",
            caller=caller.name,
            role=caller.role.value,
            action=f"{request.method} {request.url.path}"[:300],
            status=status,
        )
        await self._web.store.events.append(row)


def is_same_site(request: Request) -> bool:
    """Return whether a page of this server, and not a foreign one, has sent a request."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return False
    return hmac.compare_digest(
        urlsplit(origin).netloc.lower().encode(), request.headers.get("host", "").lower().encode()
    )


def client_of(request: Request) -> str:
    """Return the address that a request came from."""
    return request.client.host if request.client else "unknown"


def too_many_failures(request: Request, wait: float) -> Response:
    """Return the refusal of a login after too many failed ones."""
    text = "Too many failed logins from this address."
    hint = f"Try again in {wait:.0f} s."
    response = problem_response(request, text, status=429, hint=hint)
    response.headers["Retry-After"] = str(int(wait) + 1)
    return response


async def open_session(web: Web, by: Credential, client: str) -> str:
    """Open a session for the owner of a token or a link; return its secret for the cookie."""
    now = web.clock.now()
    parent = by.id if by.kind is CredentialKind.TOKEN else None
    new = NewCredential(CredentialKind.SESSION, by.name, by.role, SESSION_SECONDS, parent)
    _, secret = await web.store.credentials.create(new, now)
    await web.store.events.append(
        event_row(None, now, "access.opened", caller=by.name, client=client)
    )
    return secret


def set_session_cookie(request: Request, response: Response, secret: str) -> None:
    """Give a browser its session."""
    response.set_cookie(
        SESSION_COOKIE,
        secret,
        max_age=int(SESSION_SECONDS),
        httponly=True,
        secure=request.url.scheme == "https",
        samesite="lax",
        path="/",
    )


def _proxy_user(web: Web, request: Request) -> Caller | None:
    """Return the user that a trusted proxy names in its header."""
    header = web.settings.web_user_header
    if header is None or request.client is None:
        return None
    name = request.headers.get(header, "").strip()
    if not name or not _is_trusted(request.client.host, web.settings.web_trusted_proxies):
        return None
    return Caller(name[:100], Role(web.settings.web_user_role))


def _is_trusted(client: str, networks: tuple[str, ...]) -> bool:
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(one, strict=False) for one in networks)


def _cross_site(request: Request) -> Response:
    text = "This request came from another site, or its browser did not say from where."
    hint = "Use the pages of this server, or the API with a token."
    return problem_response(request, text, status=403, hint=hint)


def openapi_security() -> dict[str, Any]:
    """Return how the API is authenticated, as OpenAPI describes it."""
    return {"token": {"type": "http", "scheme": "bearer"}}
