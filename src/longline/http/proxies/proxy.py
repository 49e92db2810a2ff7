"""One proxy: its address, where its credentials are, and how it is written in a list."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from pydantic import SecretStr

from longline.config.secrets import SecretRef
from longline.core.errors import ConfigError
from longline.core.files import make_private_folder, private_opener, replacing
from longline.core.redaction import KNOWN_SECRETS

Scheme = Literal["http", "https", "socks4", "socks5"]
SCHEMES: tuple[Scheme, ...] = ("http", "https", "socks4", "socks5")
DEFAULT_TIER = "default"
"""The tier of a proxy that names none."""

_LINE = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?:(?P<credentials>[^\s/]*)@)?"
    r"(?P<host>\[[^\]\s]*\]|[^\s:/@\[\]]+):(?P<port>[0-9]{1,5})/?"
)
_FOUR_PARTS = re.compile(r"(?P<place>[^\s:/@]+:[0-9]{1,5}):(?P<user>[^\s:/@]+):(?P<password>\S+)")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)*\.?")
_LAST_PORT = 65_535
_COUNTRY = re.compile(r"[A-Z]{2}")


class BadProxy(ConfigError):
    """A line of a list is not a proxy; the error never repeats it, since it may have a password."""

    problem: str
    message = "not a proxy: {problem}"
    hint = "Write scheme://host:port, where the scheme is http, https, socks4 or socks5."


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; its fields are JSON values.

    `credentials` is where its user name and password are (`env:NAME`, `file:PATH`,
    `keyring:SERVICE/NAME`), never they themselves. `country` has two capital letters. `origin` is
    the name of the source of candidates that listed it. A rotating proxy is a gateway that changes
    its exit itself.
    """

    scheme: Scheme
    host: str
    port: int
    credentials: str | None = None
    country: str | None = None
    tier: str = DEFAULT_TIER
    origin: str = ""
    is_rotating: bool = False

    @property
    def address(self) -> str:
        """The address without credentials: the name of the proxy in events, logs and cells."""
        return f"{self.scheme}://{self.host}:{self.port}"

    def read_credentials(self) -> tuple[str, str] | None:
        """Return user name and password; None if it needs none.

        Raises:
            UnknownSecret: they cannot be read.
        """
        if self.credentials is None:
            return None
        text = SecretRef.parse(self.credentials).read().get_secret_value()
        user, _, password = text.partition(":")
        KNOWN_SECRETS.add(password)
        return user, password


@dataclass(frozen=True, slots=True)
class ParsedProxy:
    """A proxy as a line of a list has it; `secret` is `user:password`, if the line has one."""

    proxy: Proxy
    secret: SecretStr | None = None


def parse_proxy(
    line: str,
    *,
    tier: str = DEFAULT_TIER,
    origin: str = "",
    country: str | None = None,
    is_rotating: bool = False,
) -> ParsedProxy:
    """Return the proxy of a line: `[scheme://][user:password@]host:port`, or `host:port:user:password`.

    Without a scheme, it is an HTTP proxy.

    Raises:
        BadProxy: it is not one; the message does not repeat the line, which may have a password.
    """  # noqa: E501  # the forms in one line
    text = line.strip()
    if parts := _FOUR_PARTS.fullmatch(text):
        text = f"{parts['place']}"
        secret: str | None = f"{parts['user']}:{parts['password']}"
    else:
        secret = None
    match = _LINE.fullmatch(text)
    if match is None:
        raise BadProxy("the line has no host and port")
    scheme = (match["scheme"] or "http").lower().replace("socks5h", "socks5")
    scheme = scheme.replace("socks4a", "socks4")
    if scheme not in SCHEMES:
        raise BadProxy(f"the scheme {scheme[:20]!r} is not supported")
    if match["credentials"] is not None:
        user, _, password = match["credentials"].partition(":")
        secret = f"{unquote(user)}:{unquote(password)}"
        if not user or ":" in unquote(user):
            raise BadProxy("its user name is empty, or contains a colon")
    proxy = Proxy(
        scheme,
        _host(match["host"]),
        _port(match["port"]),
        country=_country(country),
        tier=tier,
        origin=origin,
        is_rotating=is_rotating,
    )
    return ParsedProxy(proxy, None if secret is None else SecretStr(secret))


def _host(text: str) -> str:
    host = text.lower()
    if host.startswith("["):
        with suppress(ValueError):
            return f"[{ipaddress.IPv6Address(host[1:-1]).compressed}]"
        raise BadProxy("its host is not an IPv6 address")
    if not _HOST.fullmatch(host):
        raise BadProxy("its host is not a name or an address")
    if host.replace(".", "").isdigit():
        with suppress(ValueError):
            return str(ipaddress.IPv4Address(host))
        raise BadProxy("its host is not an IPv4 address")
    return host


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port <= _LAST_PORT:
        raise BadProxy(f"its port is {port}, not 1 to {_LAST_PORT}")
    return port


def _country(text: str | None) -> str | None:
    if text is None:
        return None
    country = text.strip().upper()
    if not _COUNTRY.fullmatch(country):
        raise BadProxy("its country is not a code of two letters, such as BG")
    return country


class CredentialFiles:
    """User names and passwords of proxies from lists, each in a private file of the home.

    Everything else in the home has only the references to these files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, parsed: ParsedProxy) -> Proxy:
        """Return the proxy with a reference to its credentials, which are written to a file.

        Raises:
            OSError: the file cannot be written.
        """
        if parsed.secret is None:
            return parsed.proxy
        secret = parsed.secret.get_secret_value()
        KNOWN_SECRETS.add(secret)
        KNOWN_SECRETS.add(secret.partition(":")[2])
        make_private_folder(self._folder)
        file = self._file(parsed.proxy.address).absolute()
        with (
            replacing(file) as draft,
            open(draft, "x", encoding="utf-8", opener=private_opener) as out,
        ):
            out.write(secret)
        return replace(parsed.proxy, credentials=f"file:{file}")

    def forget(self, proxy: Proxy) -> None:
        """Delete the file of a proxy that was removed; credentials of other kinds are kept."""
        file = self._file(proxy.address).absolute()
        if proxy.credentials == f"file:{file}":
            file.unlink(missing_ok=True)

    def _file(self, address: str) -> Path:
        return self._folder / hashlib.sha256(address.encode()).hexdigest()[:32]
