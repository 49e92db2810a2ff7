"""Static credentials: basic, bearer, a header, a query parameter."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace

from pydantic import SecretStr

from longline.config.auth import BasicAuth, BearerAuth, HeaderAuth, QueryAuth
from longline.config.secrets import SecretRef, reveal
from longline.core.errors import UnknownSecret
from longline.core.model import Usage
from longline.core.redaction import KNOWN_SECRETS
from longline.http.auth.base import StaticScheme
from longline.http.headers import Redacted, with_header
from longline.http.messages import Request

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class HeaderScheme(StaticScheme):
    """A secret in a header; read at the first request, and kept for the run."""

    def __init__(self, name: str, read: Callable[[], str]) -> None:
        self._name = name
        self._read = read
        self._value: SecretStr | None = None

    async def sign(self, request: Request, usage: Usage) -> Request:
        del usage
        if self._value is None:
            self._value = SecretStr(self._read())
            KNOWN_SECRETS.add(self._value.get_secret_value().partition(" ")[2])
        return with_header(request, self._name, self._value.get_secret_value())


class QueryScheme(StaticScheme):
    """A secret in the query, which only the transport adds to the URL."""

    def __init__(self, auth: QueryAuth) -> None:
        self._auth = auth
        self._value: SecretStr | None = None

    async def sign(self, request: Request, usage: Usage) -> Request:
        del usage
        if self._value is None:
            self._value = self._auth.value.read()
        hidden = {**request.hidden, self._auth.name: self._value.get_secret_value()}
        return replace(request, hidden=Redacted(hidden))


def basic_scheme(auth: BasicAuth) -> HeaderScheme:
    """Return the scheme of RFC 7617, in UTF-8."""
    return HeaderScheme(
        "Authorization", lambda: basic_value(reveal(auth.user), reveal(auth.password))
    )


def bearer_scheme(auth: BearerAuth) -> HeaderScheme:
    """Return the scheme of RFC 6750."""
    return HeaderScheme("Authorization", lambda: f"Bearer {_checked_secret(auth.token)}")


def header_scheme(auth: HeaderAuth) -> HeaderScheme:
    """Return a scheme with the site's own header."""
    words = [auth.prefix] if auth.prefix else []
    return HeaderScheme(auth.name, lambda: " ".join([*words, _checked_secret(auth.value)]))


def basic_value(user: str, password: str) -> str:
    """Return the value of the Authorization header."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _checked_secret(reference: SecretRef) -> str:
    text = reveal(reference)
    if _CONTROL.search(text):
        raise UnknownSecret(str(reference), "it has a control character, which headers cannot have")
    return text
