"""Authentication schemes: static credentials, OAuth 2 tokens, and logins with an HTML form."""

from __future__ import annotations

import asyncio
import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from urllib.parse import quote_plus, urlencode, urljoin, urlsplit

from pydantic import SecretStr
from selectolax.lexbor import LexborNode

from longline.config.auth import (
    Auth,
    BasicAuth,
    BearerAuth,
    HeaderAuth,
    LoginAuth,
    OAuth2Auth,
    QueryAuth,
)
from longline.config.secrets import Reach, SecretRef, reveal
from longline.core.clock import Clock
from longline.core.errors import UnexpectedShape, UnknownSecret, bad_status
from longline.core.model import Usage
from longline.core.redaction import KNOWN_SECRETS, SecretRedactor
from longline.http.errors import AuthFailed
from longline.http.messages import (
    FIRST_ERROR,
    Middleware,
    Page,
    Redacted,
    RedactedBody,
    Request,
    origin_of,
    with_header,
    without_userinfo,
)
from longline.http.middleware.identity import set_cookies
from longline.http.middleware.status import REDIRECTS, RedirectMiddleware

_LONGEST = 200  # characters of a server's message


class AuthScheme(ABC):
    """Authenticates requests; `serial` changes when the credentials are renewed."""

    serial = 0

    @abstractmethod
    async def sign(self, request: Request, usage: Usage) -> Request:
        """Return the request with credentials.

        Raises:
            FetchError: they cannot be obtained.
            UnknownSecret: the secret cannot be read.
        """

    def expiry_reason(self, page: Page) -> str | None:  # noqa: ARG002  # static secrets never expire
        """Return why a response shows that the credentials have expired; None if it does not."""
        return None

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:  # noqa: B027
        """Renew the credentials with this number, unless another task has done so.

        Raises:
            FetchError: they cannot be obtained.
        """


class ObtainedScheme(AuthScheme):
    """Credentials that are requested, once for all tasks, and never again after a refusal.

    A wrong password sent with every item would lock the account, so a refusal is remembered for the
    rest of the run. A server that is down is not a refusal: that error is retried as usual.
    """

    def __init__(self, inner: Middleware, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._lock = asyncio.Lock()
        self._refusal: tuple[str, str] | None = None

    @abstractmethod
    def has_credentials(self) -> bool:
        """Return whether there are credentials that should still be valid."""

    @abstractmethod
    async def obtain(self, request: Request, usage: Usage) -> None:
        """Obtain credentials, before this request.

        Raises:
            AuthFailed: they were refused.
        """

    async def ensure(self, request: Request, usage: Usage) -> None:
        """Obtain credentials unless there are some."""
        if self.has_credentials():
            return
        async with usage.waiting.to_enter(self._lock):
            if not self.has_credentials():
                await self._obtain_once(request, usage)

    async def renew(self, serial: int, request: Request, usage: Usage) -> None:
        async with usage.waiting.to_enter(self._lock):
            if serial == self.serial:
                await self._obtain_once(request, usage)

    def raise_if_temporary(self, page: Page) -> None:
        """Raise the error of a status that says nothing about the credentials."""
        if page.status in _TEMPORARY:
            raise bad_status(page.url, page.status, page.retry_after(self._clock.now()))

    async def _obtain_once(self, request: Request, usage: Usage) -> None:
        if self._refusal is not None:
            raise AuthFailed(*self._refusal)
        try:
            await self.obtain(request, usage)
        except AuthFailed as error:
            self._refusal = (error.url, error.problem)
            usage.add_event("auth.failed", host=error.host, problem=error.problem)
            raise
        self.serial += 1


def one_line(message: object, secrets: Iterable[str] = ()) -> str:
    """Return a message of a server as one short line, without these secrets."""
    text = SecretRedactor(secrets).text(" ".join(str(message).split()))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# ---------------- Static credentials: basic, bearer, a header, a query parameter

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class StaticScheme(AuthScheme):
    """A secret that does not expire, in a header or, hidden, in the query of the URL.

    It is read at the first request, and kept for the run.
    """

    serial = 0

    def __init__(self, name: str, read: Callable[[], str], *, is_in_query: bool = False) -> None:
        self._name = name
        self._read = read
        self._is_in_query = is_in_query
        self._value: SecretStr | None = None

    async def sign(self, request: Request, usage: Usage) -> Request:
        del usage
        if self._value is None:
            self._value = SecretStr(self._read())
            KNOWN_SECRETS.add(self._value.get_secret_value().partition(" ")[2])
        value = self._value.get_secret_value()
        if self._is_in_query:
            return replace(request, hidden=Redacted({**request.hidden, self._name: value}))
        return with_header(request, self._name, value)


def make_scheme(inner: Middleware, auth: Auth, clock: Clock) -> AuthScheme:
    """Return the scheme of a source's `auth`; `inner` sends requests for tokens and logins."""
    match auth:
        case BasicAuth():
            return StaticScheme(
                "Authorization", lambda: basic_value(reveal(auth.user), reveal(auth.password))
            )
        case BearerAuth():
            return StaticScheme("Authorization", lambda: f"Bearer {_checked_secret(auth.token)}")
        case HeaderAuth():
            words = [auth.prefix] if auth.prefix else []
            return StaticScheme(auth.name, lambda: " ".join([*words, _checked_secret(auth.value)]))
        case QueryAuth():
            return StaticScheme(auth.name, lambda: reveal(auth.value), is_in_query=True)
        case OAuth2Auth():
            return OAuth2Scheme(inner, auth, clock)
        case _:
            return LoginScheme(inner, auth, clock)


def basic_value(user: str, password: str) -> str:
    """Return the value of the Authorization header."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _checked_secret(reference: SecretRef) -> str:
    text = reveal(reference)
    if _CONTROL.search(text):
        raise UnknownSecret(
            str(reference), "it contains a control character, which headers do not allow"
        )
    return text


# ---------------- OAuth 2 client credentials

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
        super().__init__(inner, clock)
        self._auth = auth
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
        KNOWN_SECRETS.add(token)
        self._token = SecretStr(token)
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
        self.raise_if_temporary(page)
        values: object = None
        with suppress(UnexpectedShape):
            values = page.json
        if not isinstance(values, dict):
            values = {}
        token, kind = values.get("access_token"), values.get("token_type", "bearer")
        if page.status != _OK or not isinstance(token, str) or not token.isprintable():
            raise AuthFailed(url, self._problem(page, values))
        if str(kind).lower() != "bearer":
            raise AuthFailed(url, f"it returned a token of type {one_line(kind)}, not bearer")
        try:
            lifetime = float(values.get("expires_in", inf))
        except (TypeError, ValueError):
            lifetime = inf  # until a 401
        return token, max(0.0, lifetime)

    def _problem(self, page: Page, values: dict[str, object]) -> str:
        messages = [str(values[key]) for key in ("error", "error_description") if values.get(key)]
        # A server may repeat the secrets, in any of these forms.
        bare = [reveal(one) for one in self._auth.references()]
        pair = (reveal(self._auth.client_id), reveal(self._auth.client_secret))
        encoded = basic_value(*map(quote_plus, pair)).partition(" ")[2]
        why = one_line(": ".join(messages), [encoded, *bare, *map(quote_plus, bare)])
        if why:
            return f"the token was refused with status {page.status}: {why}"
        return f"the token URL returned status {page.status} without a token"


# ---------------- Login with an HTML form

PASSWORD = "input[type=password i]"  # noqa: S105  # a selector
_NEVER_SENT = frozenset({"button", "reset", "image", "file"})
_TICKED = frozenset({"checkbox", "radio"})


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a page; `fields` are what a browser would send unchanged."""

    page: str
    action: str
    method: str
    fields: dict[str, str]


def read_form(page: Page, selector: str | None = None) -> Form | None:
    """Return the form that a selector matches, or that has a password field; None without one."""
    with_password = (form for form in page.css("form") if form.css_first(PASSWORD))
    node = page.first(selector) if selector else next(with_password, None)
    if node is None:
        return None
    base = urljoin(page.url, page.first_attribute("base[href]", "href") or "")
    action = (node.attributes.get("action") or "").strip()
    method = (node.attributes.get("method") or "get").strip().upper()
    # Without an action a form is sent to the page itself, whatever its <base> is.
    target = urljoin(base, without_userinfo(action)) if action else page.url
    return Form(
        page.url,
        target.partition("#")[0],
        method,
        {name: value for name, value in _form_fields(node) if name},
    )


def _form_fields(form: LexborNode) -> Iterator[tuple[str, str]]:
    has_button = False
    for node in form.css(":is(input, select, textarea, button)[name]:not([disabled])"):
        attributes = node.attributes
        name, value = attributes["name"] or "", attributes.get("value") or ""
        kind = (attributes.get("type") or ("submit" if node.tag == "button" else "text")).lower()
        if node.tag == "textarea":
            yield name, node.text()
        elif node.tag == "select":
            chosen = node.css_first("option[selected]") or node.css_first("option")
            if chosen is not None:
                yield name, chosen.attributes.get("value", chosen.text(strip=True)) or ""
        elif kind == "submit":
            if not has_button:  # a browser sends only the pressed button
                yield name, value
            has_button = True
        elif kind in _TICKED:
            if "checked" in attributes:
                yield name, value or "on"
        elif kind not in _NEVER_SENT:
            yield name, value


_FRESH = {"Cache-Control": "no-cache, no-store"}  # a hidden token of a form is valid once


class LoginScheme(ObtainedScheme):
    """Logs in at the first request to a covered host, and again when the session has expired."""

    def __init__(self, inner: Middleware, auth: LoginAuth, clock: Clock) -> None:
        super().__init__(inner, clock)
        self._auth = auth
        self._login_pages = {_without_query(auth.url)}

    async def sign(self, request: Request, usage: Usage) -> Request:
        await self.ensure(request, usage)
        return request  # IdentityMiddleware adds the cookies

    def has_credentials(self) -> bool:
        return self.serial > 0

    def expiry_reason(self, page: Page) -> str | None:
        condition = self._auth.logged_out
        status = _UNAUTHORIZED if condition is None else condition.status
        if page.status == status:
            return f"the session has expired: status {status}"
        if condition is not None and condition.selector is not None:
            is_html = "html" in page.headers.get("content-type", "html")
            if is_html and page.first(condition.selector) is not None:
                return f"the session has expired: the page shows {condition.selector}"
            return None
        login_pages = self._login_pages
        if condition is not None:
            target = condition.redirect
            login_pages = {_without_query(urljoin(page.url, target))} if target else set()
        location = page.headers.get("location")
        if page.status not in REDIRECTS or not location:
            return None
        where = _without_query(urljoin(page.url, location))
        return f"the session has expired: redirected to {where}" if where in login_pages else None

    async def obtain(self, request: Request, usage: Usage) -> None:
        hops = _Hops(self._inner, self._auth.reach)
        form = await self._form(hops, request, usage)
        before = len(hops.pages)
        page = await RedirectMiddleware(hops)(self._filled_form(form, request.priority), usage)
        self.raise_if_temporary(page)
        problem = self._login_problem(page, hops.pages, before)
        if problem:
            missing = self._auth.fields.keys() - form.fields.keys() if form.fields else ()
            if missing:
                has = one_line(", ".join(form.fields))
                problem += f"; its form has no field {', '.join(sorted(missing))}, but {has}"
            raise AuthFailed(self._auth.url, f"the login failed: {problem}")
        usage.add_event("auth.login", host=Request(self._auth.url).domain)

    async def _form(self, hops: _Hops, request: Request, usage: Usage) -> Form:
        """Return the form to fill in; with `form: false`, the fields are sent to the URL itself."""
        auth = self._auth
        if auth.form is False:
            return Form(auth.url, auth.url, "POST", {})
        request_for_form = Request(auth.url, headers=_FRESH, priority=request.priority)
        page = await RedirectMiddleware(hops)(request_for_form, usage)
        self.raise_if_temporary(page)
        form = read_form(page, auth.form if isinstance(auth.form, str) else None)
        if form is None:
            what = f"form {auth.form!r}" if isinstance(auth.form, str) else "form with a password"
            raise AuthFailed(auth.url, f"the login page has no {what} (status {page.status})")
        if form.method != "POST":
            raise AuthFailed(auth.url, "its form would send the password in the URL")
        self._login_pages.add(_without_query(page.url))
        return form

    def _filled_form(self, form: Form, priority: int) -> Request:
        fields = form.fields | {name: reveal(value) for name, value in self._auth.fields.items()}
        scheme, host = origin_of(form.page)
        headers = {"Content-Type": "application/x-www-form-urlencoded", **_FRESH}
        # Frameworks check one or the other of these against CSRF.
        headers |= {"Origin": f"{scheme}://{host}", "Referer": _without_query(form.page)}
        body = RedactedBody(urlencode(fields).encode())
        return Request(form.action, "POST", headers, body, priority=priority)

    def _login_problem(self, page: Page, pages: list[Page], before: int) -> str | None:
        """Return why the login failed; `pages` from `before` on came after the form."""
        condition, responses = self._auth.success, pages[before:]
        problem = None
        if condition is None:
            if page.status >= FIRST_ERROR:
                problem = "the site refused it"
            elif not any(set_cookies(one) for one in pages):
                problem = "no cookie was set"
            elif page.first(PASSWORD) is not None:
                problem = "the page still asks for the password"
        elif condition.status is not None:
            if responses[0].status != condition.status:
                return f"the response to the form has status {responses[0].status}"
        elif condition.cookie is not None:
            if not any(_sets_cookie(one, condition.cookie) for one in responses):
                problem = f"no cookie {condition.cookie} was set"
        elif page.first(condition.selector or "") is None:
            problem = f"the page shows no {condition.selector}"
        return problem and f"{problem} (status {page.status})"


class _Hops(Middleware):
    """Records the pages of a login, and sends a filled form only to covered hosts."""

    def __init__(self, inner: Middleware, reach: Reach) -> None:
        self._inner = inner
        self._reach = reach
        self.pages: list[Page] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if request.body is not None and (problem := self._reach.problem(request.url)):
            raise AuthFailed(request.url, f"the login form is not sent: {problem}")
        page = await self._inner(request, usage)
        self.pages.append(page)
        return page


def _sets_cookie(page: Page, name: str) -> bool:
    """Return whether a response sets a cookie; an empty value deletes it."""
    pairs = (line.partition(";")[0].partition("=") for line in set_cookies(page))
    return any(key.strip() == name and value.strip(' "') for key, _, value in pairs)


def _without_query(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{origin_of(url)[1]}{parts.path or '/'}"
