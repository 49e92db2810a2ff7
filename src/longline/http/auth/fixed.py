"""Secrets that go along as they are: basic, bearer, a header, a parameter of the query."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import replace

from pydantic import SecretStr

from longline.config.auth import BasicAuth, BearerAuth, HeaderAuth, QueryAuth
from longline.config.errors import UnknownSecret
from longline.config.secrets import SecretRef, reveal
from longline.core.model import Usage
from longline.http.auth.base import Lasting
from longline.http.headers import Redacted, with_header
from longline.http.messages import Request

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class InHeader(Lasting):
    """A secret in a header; read at the first request, and kept for the run."""

    def __init__(self, name: str, read: Callable[[], str]) -> None:
        self._name = name
        self._read = read
        self._value: SecretStr | None = None

    async def sign(self, request: Request, usage: Usage) -> Request:
        del usage
        if self._value is None:
            self._value = SecretStr(self._read())
        return with_header(request, self._name, self._value.get_secret_value())


class InQuery(Lasting):
    """A secret in the query, which only the transport writes into the address."""

    def __init__(self, auth: QueryAuth) -> None:
        self._auth = auth
        self._value: SecretStr | None = None

    async def sign(self, request: Request, usage: Usage) -> Request:
        del usage
        if self._value is None:
            self._value = self._auth.value.read()
        hidden = {**request.hidden, self._auth.name: self._value.get_secret_value()}
        return replace(request, hidden=Redacted(hidden))


def basic(auth: BasicAuth) -> InHeader:
    """Return user and password as RFC 7617 wants them, in UTF-8."""
    return InHeader("Authorization", lambda: basic_value(reveal(auth.user), reveal(auth.password)))


def bearer(auth: BearerAuth) -> InHeader:
    """Return a token as RFC 6750 wants it."""
    return InHeader("Authorization", lambda: f"Bearer {_one_line(auth.token)}")


def header(auth: HeaderAuth) -> InHeader:
    """Return a secret in a header of the site's own."""
    words = [auth.prefix] if auth.prefix else []
    return InHeader(auth.name, lambda: " ".join([*words, _one_line(auth.value)]))


def basic_value(user: str, password: str) -> str:
    """Return what follows `Authorization:`."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _one_line(reference: SecretRef) -> str:
    text = reveal(reference)
    if _CONTROL.search(text):
        raise UnknownSecret(str(reference), "it has a line break, which a header cannot hold")
    return text
