"""How a source proves who it is: what a user writes under `auth`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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

from longline.config.identity import HEADER_NAME
from longline.config.login import LoginAuth
from longline.config.proof import Proof, check_address
from longline.config.secrets import SecretRef, TextOrRef
from longline.config.written import wrong
from longline.errors import BadOption

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
            raise wrong("a user name with a colon cannot be sent this way")
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
            raise wrong("the name of a header has letters, digits and hyphens")
        return name

    @field_validator("prefix")
    @classmethod
    def _a_word(cls, prefix: str) -> str:
        if prefix and not HEADER_NAME.fullmatch(prefix.strip()):
            raise wrong("a prefix is one word, such as Token")
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
