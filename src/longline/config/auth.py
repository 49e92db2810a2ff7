"""Authentication: what users write under `auth`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import Field, field_validator, model_validator
from selectolax.lexbor import LexborHTMLParser, SelectolaxError
from yarl import URL

from longline.config.identity import HEADER_NAME
from longline.config.secrets import Hosts, Reach, SecretRef, TextOrRef, host_of, is_confidential
from longline.config.validation import StrictModel, invalid


class BaseAuth(StrictModel):
    """What all kinds have in common: the hosts that may receive the credentials."""

    hosts: Hosts = Field(default=(), validate_default=True)
    """Hosts that may receive the secret: api.example.com, or *.example.com for subdomains."""
    allow_http: bool = False
    """Allow unencrypted http; default: only https, and http to this machine."""

    @field_validator("hosts")
    @classmethod
    def _require_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        if not hosts:
            raise invalid("name the hosts that may receive the secret, as hosts: [api.example.com]")
        return hosts

    @property
    def reach(self) -> Reach:
        """The hosts that may receive the secret."""
        return Reach(self.hosts, self.allow_http)

    def references(self) -> Iterator[SecretRef]:
        """Yield every secret reference."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            for one in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(one, SecretRef):
                    yield one

    def check(self) -> None:
        """Check that every secret can be read.

        Raises:
            UnknownSecret: one cannot.
        """
        for reference in self.references():
            reference.check()


def host_in_url(url: object) -> str | None:
    """Return the host of a URL as a pattern; None when there is none."""
    try:
        return host_of(URL(url)) or None if isinstance(url, str) else None
    except ValueError:
        return None


def check_secret_url(name: str, address: str, *, allow_http: bool) -> None:
    """Check that a secret may be sent to a URL.

    Raises:
        PydanticCustomError: it is not a URL, contains a user, or is not encrypted.
    """
    url = URL(address) if host_in_url(address) else URL()
    if url.scheme not in {"http", "https"} or url.user or url.password:
        raise invalid(f"{name}: write a URL such as https://example.com/path, without a user name")
    if not allow_http and not is_confidential(url):
        raise invalid(f"{name}: must be https, or set allow_http: true")


_SECRET_NAME = re.compile(r"pass|pwd|secret", re.IGNORECASE)


class _Condition(StrictModel):
    """A condition on a response: exactly one of the fields is set."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        names = list(type(self).model_fields)
        if sum(getattr(self, name) is not None for name in names) != 1:
            raise invalid(f"write exactly one of {', '.join(names)}")
        return self

    @field_validator("selector", check_fields=False)
    @classmethod
    def _check_selector(cls, selector: str | None) -> str | None:
        return selector if selector is None else _check_css(selector)


class Success(_Condition):
    """How a successful login is detected."""

    status: int | None = Field(default=None, ge=100, le=599)
    """Status of the response to the form, before redirects."""
    selector: str | None = None
    """A selector that matches only on pages for logged-in users."""
    cookie: str | None = Field(default=None, min_length=1)
    """Name of the cookie that a successful login sets."""


class LoggedOut(_Condition):
    """How the end of a session is detected."""

    status: int | None = Field(default=None, ge=100, le=599)
    selector: str | None = None
    """A selector that matches only on pages for logged-out users."""
    redirect: str | None = Field(default=None, min_length=1)
    """URL or path that logged-out users are redirected to."""


class LoginAuth(BaseAuth):
    """A login form, which is fetched, filled in and sent; the session is kept in cookies.

    Default of `hosts`: the host of the form.
    """

    kind: Literal["login"] = "login"
    url: str
    """URL of the page with the form."""
    fields: dict[str, TextOrRef] = Field(min_length=1)
    """Values by the names of the form's fields; hidden fields are sent, too."""
    form: str | bool = True
    """CSS selector of the form; true: the form with a password; false: fetch no page."""
    success: Success | None = None
    """Default: no error status, a cookie, and no password field on the page."""
    logged_out: LoggedOut | None = None
    """Default: a 401, or a redirect to the page with the form."""

    @model_validator(mode="before")
    @classmethod
    def _default_hosts(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and not values.get("hosts"):
            host = host_in_url(values.get("url"))
            return {**values, "hosts": [host]} if host else values
        return values

    @field_validator("fields")
    @classmethod
    def _require_references(cls, fields: dict[str, SecretRef | str]) -> dict[str, SecretRef | str]:
        bare = [n for n, v in fields.items() if _SECRET_NAME.search(n) and isinstance(v, str)]
        if bare or not any(isinstance(value, SecretRef) for value in fields.values()):
            what = bare[0] if bare else "the password"
            raise invalid(
                f"{what} must be a reference: env:NAME, file:/path or keyring:service/name"
            )
        return fields

    @field_validator("form")
    @classmethod
    def _check_form(cls, form: str | bool) -> str | bool:  # noqa: FBT001  # pydantic's signature
        return _check_css(form) if isinstance(form, str) else form

    @model_validator(mode="after")
    def _check_form_url(self) -> Self:
        check_secret_url("url", self.url, allow_http=self.allow_http)
        if problem := self.reach.problem(self.url):
            raise invalid(f"url: {problem}")
        return self


def _check_css(selector: str) -> str:
    try:
        LexborHTMLParser("").css(selector)
    except SelectolaxError:
        raise invalid(f"{selector!r} is not a CSS selector") from None
    return selector


class BasicAuth(BaseAuth):
    """User and password in the Authorization header (RFC 7617)."""

    kind: Literal["basic"] = "basic"
    user: TextOrRef
    password: SecretRef

    @field_validator("user")
    @classmethod
    def _refuse_colon(cls, user: SecretRef | str) -> SecretRef | str:
        if isinstance(user, str) and ":" in user:
            raise invalid("a user name must not contain a colon")
        return user


class BearerAuth(BaseAuth):
    """A token in the Authorization header (RFC 6750)."""

    kind: Literal["bearer"] = "bearer"
    token: SecretRef


class HeaderAuth(BaseAuth):
    """A secret in another header, such as X-Api-Key."""

    kind: Literal["header"] = "header"
    name: str
    value: SecretRef
    prefix: str = ""
    """Prefix of the value: `Token` makes `Authorization: Token …`."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not HEADER_NAME.fullmatch(name):
            raise invalid("a header name consists of letters, digits and hyphens")
        return name

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, prefix: str) -> str:
        if prefix and not HEADER_NAME.fullmatch(prefix.strip()):
            raise invalid("a prefix is one word, such as Token")
        return prefix.strip()


class QueryAuth(BaseAuth):
    """A secret in the query of the URL; logs, errors, cache and archive never contain it."""

    kind: Literal["query"] = "query"
    name: str = Field(min_length=1)
    value: SecretRef


class OAuth2Auth(BaseAuth):
    """A token of the client credentials grant (RFC 6749), renewed before it expires."""

    kind: Literal["oauth2"] = "oauth2"
    token_url: str
    """Token endpoint, the only URL that receives the client secret."""
    client_id: TextOrRef
    client_secret: SecretRef
    scope: str | None = None
    audience: str | None = None
    how: Literal["basic", "body"] = "basic"
    """Send id and secret with basic authentication (preferred by the RFC) or in the body."""
    extra: dict[str, TextOrRef] = Field(default_factory=dict)
    """Additional parameters of the token request."""

    @model_validator(mode="after")
    def _check_token_url(self) -> Self:
        check_secret_url("token_url", self.token_url, allow_http=self.allow_http)
        return self


Auth = Annotated[
    BasicAuth | BearerAuth | HeaderAuth | QueryAuth | OAuth2Auth | LoginAuth,
    Field(discriminator="kind"),
]
"""Any kind of authentication, selected by `kind`."""


def identity_hash(auth: Auth | None, cookies: object = None) -> str:
    """Return a hash of the client's identity; "" without authentication and cookies.

    A cache separates responses by it. It is made of references only, so it reveals nothing about
    a secret and does not change with it.
    """
    has_cookies = isinstance(cookies, Mapping) and bool(cookies)
    if auth is None and not has_cookies:
        return ""
    parts = [auth and auth.model_dump(mode="json"), cookies if has_cookies else None]
    encoded = orjson.dumps(parts, default=str, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(encoded).hexdigest()[:16]
