"""Redact passwords in addresses, and known secrets in any text."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

import orjson
from yarl import URL

REDACTED = "***"
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^@]*@(?:[^/@]*@)*")
_PARAMETER = re.compile(r"([?&])([^=&#]*)=[^&#]*")
_SCHEME = re.compile(r"(sqlite|postgres|postgresql|redis|rediss|unix|amqp)(\+[a-z0-9]+)?")
_SHORTEST = 4  # characters; a shorter secret would be found in ordinary words


def redact_url(address: str) -> str:
    """Return an address with `***` for its password, before the host or in the query.

    A text without a password, or that is not an address, is returned unchanged.
    """
    if "://" not in address:
        return address
    return _PARAMETER.sub(_redact_parameter, _PASSWORD.sub(rf"\1:{REDACTED}@", address))


def redact_server_url(address: str) -> str:
    """Return the address of a server without its password; of a malformed one, only its scheme.

    Where the password is in a text that cannot be parsed is unknown.
    """
    scheme = address.partition("://")[0]
    hidden = f"{scheme}://…" if _SCHEME.fullmatch(scheme) and scheme != address else "…"
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises ValueError when it is not a number
    except ValueError:
        return hidden
    if scheme.startswith(("sqlite", "unix")) and not parts.netloc:
        return redact_url(address)  # a path, which may have any character
    if hidden == "…" or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return hidden
    return redact_url(address)


def _redact_parameter(pair: re.Match[str]) -> str:
    # password and sslpassword of PostgreSQL, password and ssl_password of Redis
    is_secret = "password" in unquote_plus(pair[2]).lower()
    return f"{pair[1]}{pair[2]}={REDACTED}" if is_secret else pair[0]


class SecretRedactor:
    """Replaces known secrets in all their forms: plain, in an address, in JSON, in base 64."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._forms: list[str] = []
        for one in secrets:
            self.add(one)

    def add(self, secret: str | None) -> None:
        """Add a secret; one that is too short to differ from ordinary words is ignored."""
        if secret is None or len(secret) < _SHORTEST or secret in self._secrets:
            return
        self._secrets.add(secret)
        # A longer form may contain a shorter one. Another thread may use the old list meanwhile.
        self._forms = sorted({*self._forms, *_forms(secret)}, key=len, reverse=True)

    def add_password(self, url: str | None) -> None:
        """Add the password of a URL, if it has one."""
        with suppress(ValueError):
            password = urlsplit(url or "").password
            self.add(password and unquote(password))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to replace."""
        return not self._forms

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for form in self._forms:
            text = text.replace(form, REDACTED)
        return text

    def body(self, body: bytes) -> bytes:
        """Return bytes without secrets."""
        for form in self._forms:
            body = body.replace(form.encode(), REDACTED.encode())
        return body

    def data(self, value: Any) -> Any:
        """Return plain data without secrets, in names and values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.body(value)
        if isinstance(value, Mapping):
            return {self.data(name): self.data(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.data(one) for one in value)
        return value


KNOWN_SECRETS = SecretRedactor()
"""The secrets that this process has read: log lines never contain them."""


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    # As requests are sent: some characters stay as they are.
    yield URL().with_query(_=secret).raw_query_string[2:]
    yield quote(secret, safe="/:@!$&'()*+,;=")
    yield orjson.dumps(secret).decode()[1:-1]
    yield base64.b64encode(secret.encode()).decode()
