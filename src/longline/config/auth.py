"""How a source proves who it is: what a user writes under `auth`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import (
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from selectolax.lexbor import LexborHTMLParser, SelectolaxError
from yarl import URL

from longline.config.identity import HEADER_NAME
from longline.config.secrets import Hosts, Reach, SecretRef, TextOrRef, host_of, is_private_way
from longline.config.strict_model import StrictModel, invalid
from longline.core.errors import BadOption

# ---------------- What all kinds of authentication have in common: the hosts they are for, and

_NO_HOSTS = "name the hosts that may see the secret, for example hosts: [api.example.com]"


class Proof(StrictModel):
    """A way to prove who we are, and the hosts that may see the proof."""

    hosts: Hosts = Field(default=(), validate_default=True)
    """Hosts that may see the secret: api.example.com, or *.example.com for all below it."""
    allow_http: bool = False
    """Send it unencrypted, too. Without it only https is used, and http to this machine."""

    @field_validator("hosts")
    @classmethod
    def _name_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        if not hosts:
            raise invalid(_NO_HOSTS)
        return hosts

    @property
    def reach(self) -> Reach:
        """Where the secret may go."""
        return Reach(self.hosts, self.allow_http)

    def references(self) -> Iterator[SecretRef]:
        """Yield every secret that is referred to."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            for one in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(one, SecretRef):
                    yield one

    def check(self) -> None:
        """See before the first request that every secret can be read.

        Raises:
            UnknownSecret: one cannot.
        """
        for reference in self.references():
            reference.check()


def host_in(address: object) -> str | None:
    """Return the host of an address as a pattern; None when there is none."""
    try:
        return host_of(URL(address)) or None if isinstance(address, str) else None
    except ValueError:
        return None


def check_address(name: str, address: str, *, allow_http: bool) -> None:
    """See that a secret may be sent to this address at all.

    Raises:
        PydanticCustomError: it is no address, has a user in it, or is not encrypted.
    """
    url = URL(address) if host_in(address) else URL()
    if url.scheme not in {"http", "https"} or url.user or url.password:
        raise invalid(f"{name}: write an address such as https://example.com/path, without a user")
    if not allow_http and not is_private_way(url):
        raise invalid(f"{name}: must be https, or say allow_http: true")


# ---------------- How a source logs in with a form: what a user writes under `auth` with `kind

_SECRET_NAME = re.compile(r"pass|pwd|secret", re.IGNORECASE)


class _OneOf(StrictModel):
    """A sign to look for: exactly one of the fields is said."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        names = list(type(self).model_fields)
        if sum(getattr(self, name) is not None for name in names) != 1:
            raise invalid(f"say exactly one of {', '.join(names)}")
        return self

    @field_validator("selector", check_fields=False)
    @classmethod
    def _a_selector(cls, selector: str | None) -> str | None:
        return selector if selector is None else _checked(selector)


class Success(_OneOf):
    """How to know that a login worked."""

    status: int | None = Field(default=None, ge=100, le=599)
    """The status that the form's own answer has, before any redirect is followed."""
    selector: str | None = None
    """Something that the page after the login shows only to those who are logged in."""
    cookie: str | None = Field(default=None, min_length=1)
    """The cookie that is set when the form was accepted."""


class LoggedOut(_OneOf):
    """How to know later that the session has ended."""

    status: int | None = Field(default=None, ge=100, le=599)
    selector: str | None = None
    """Something that only those see who are not logged in."""
    redirect: str | None = Field(default=None, min_length=1)
    """The address, or the path, that those are sent to."""


class LoginAuth(Proof):
    """A login form: read, filled in, sent; the cookies that come back are the proof.

    Without `hosts`, the host of the form is the only one that is logged in to.
    """

    kind: Literal["login"] = "login"
    url: str
    """The page with the form."""
    fields: dict[str, TextOrRef] = Field(min_length=1)
    """What is filled in, by the names of the form's fields; hidden ones are sent along."""
    form: str | bool = True
    """A CSS selector of the form; true: the one with a password; false: no page is read."""
    success: Success | None = None
    """Default: no error, a cookie, and no password field in the page that comes back."""
    logged_out: LoggedOut | None = None
    """Default: a 401, or a redirect to the page with the form."""

    @model_validator(mode="before")
    @classmethod
    def _own_host(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and not values.get("hosts"):
            host = host_in(values.get("url"))
            return {**values, "hosts": [host]} if host else values
        return values

    @field_validator("fields")
    @classmethod
    def _secrets_by_reference(
        cls, fields: dict[str, SecretRef | str]
    ) -> dict[str, SecretRef | str]:
        bare = [n for n, v in fields.items() if _SECRET_NAME.search(n) and isinstance(v, str)]
        if bare or not any(isinstance(value, SecretRef) for value in fields.values()):
            what = bare[0] if bare else "the password"
            raise invalid(f"{what} must be a reference: env:NAME or file:/path")
        return fields

    @field_validator("form")
    @classmethod
    def _a_form(cls, form: str | bool) -> str | bool:  # noqa: FBT001  # pydantic's signature
        return _checked(form) if isinstance(form, str) else form

    @model_validator(mode="after")
    def _sound_address(self) -> Self:
        check_address("url", self.url, allow_http=self.allow_http)
        if problem := self.reach.problem(self.url):
            raise invalid(f"url: {problem}")
        return self


def _checked(selector: str) -> str:
    try:
        LexborHTMLParser("").css(selector)
    except SelectolaxError:
        raise invalid(f"{selector!r} is not a CSS selector") from None
    return selector


KINDS = ("basic", "bearer", "header", "query", "oauth2", "login")


class BasicAuth(Proof):
    """User and password in the Authorization header (RFC 7617)."""

    kind: Literal["basic"] = "basic"
    user: TextOrRef
    password: SecretRef

    @field_validator("user")
    @classmethod
    def _no_colon(cls, user: SecretRef | str) -> SecretRef | str:
        if isinstance(user, str) and ":" in user:
            raise invalid("a user name with a colon cannot be sent this way")
        return user


class BearerAuth(Proof):
    """A token in the Authorization header (RFC 6750)."""

    kind: Literal["bearer"] = "bearer"
    token: SecretRef


class HeaderAuth(Proof):
    """A secret in a header of the site's own, such as X-Api-Key."""

    kind: Literal["header"] = "header"
    name: str
    value: SecretRef
    prefix: str = ""
    """A word before the secret: `Token` makes `Authorization: Token …`."""

    @field_validator("name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        if not HEADER_NAME.fullmatch(name):
            raise invalid("the name of a header has letters, digits and hyphens")
        return name

    @field_validator("prefix")
    @classmethod
    def _a_word(cls, prefix: str) -> str:
        if prefix and not HEADER_NAME.fullmatch(prefix.strip()):
            raise invalid("a prefix is one word, such as Token")
        return prefix.strip()


class QueryAuth(Proof):
    """A secret in the query of the address; no log, error, cache or archive shows it."""

    kind: Literal["query"] = "query"
    name: str = Field(min_length=1)
    value: SecretRef


class OAuth2Auth(Proof):
    """A token of the client credentials grant (RFC 6749), renewed before it ends."""

    kind: Literal["oauth2"] = "oauth2"
    token_url: str
    """Where tokens are given out; the only place that sees the client secret."""
    client_id: TextOrRef
    client_secret: SecretRef
    scope: str | None = None
    audience: str | None = None
    how: Literal["basic", "body"] = "basic"
    """Whether id and secret go as basic authentication, as the RFC prefers, or in the body."""
    extra: dict[str, TextOrRef] = Field(default_factory=dict)
    """More parameters that this token address wants."""

    @model_validator(mode="after")
    def _sound_address(self) -> Self:
        check_address("token_url", self.token_url, allow_http=self.allow_http)
        return self


def _kind_of(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


Auth = Annotated[
    Annotated[BasicAuth, Tag("basic")]
    | Annotated[BearerAuth, Tag("bearer")]
    | Annotated[HeaderAuth, Tag("header")]
    | Annotated[QueryAuth, Tag("query")]
    | Annotated[OAuth2Auth, Tag("oauth2")]
    | Annotated[LoginAuth, Tag("login")],
    Discriminator(
        _kind_of,
        custom_error_type="auth_kind",
        custom_error_message=f"kind must be one of {', '.join(KINDS)}",
    ),
]
"""Any way to prove who we are; `kind` says which."""

_ADAPTER: TypeAdapter[Auth] = TypeAdapter(Auth)


def make_auth(values: Any) -> Auth:
    """Check what a source or a user wrote under `auth`.

    Raises:
        BadOption: it does not fit; the sentence never repeats a value that may be a secret.
    """
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(["auth", *(str(part) for part in first["loc"])])
        raise BadOption(name, first["msg"]) from None  # the cause would show what was written


def mark_of(auth: Auth | None, cookies: object = None) -> str:
    """Return a short name for whom we say we are; "" for nobody in particular.

    A cache keeps the answers for one mark apart from those for another. It is made of references
    alone, so it tells nothing about a secret, and does not change when a secret does.
    """
    has_cookies = isinstance(cookies, Mapping) and bool(cookies)
    if auth is None and not has_cookies:
        return ""
    said = [auth and auth.model_dump(mode="json"), cookies if has_cookies else None]
    written = orjson.dumps(said, default=str, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(written).hexdigest()[:16]
