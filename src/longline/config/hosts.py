"""Where a secret may go: to the hosts that were named, encrypted."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator
from yarl import URL

from longline.config.written import wrong

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d+)?")  # a name in any script, or an address

# The addresses here are read by the library that the transport connects with, so that both
# always mean the same host.


@dataclass(frozen=True, slots=True)
class Reach:
    """The hosts that may see a secret.

    `example.com` is that host on the default port and `example.com:8443` on another;
    `*.example.com` is everything below it, and not itself.
    """

    hosts: tuple[str, ...]
    allow_http: bool = False

    def covers(self, url: str) -> bool:
        """Return whether this address is on one of the hosts."""
        parsed = _parsed(url)
        if parsed is None or not parsed.raw_host:
            return False
        names = {host_of(parsed), _written(parsed.raw_host, parsed.port)}
        return any(_fits(pattern, name) for pattern in self.hosts for name in names)

    def problem(self, url: str) -> str | None:
        """Return why a secret may not travel to this address; None when it may."""
        parsed = _parsed(url)
        if parsed is None or not self.covers(url):
            host = (parsed and parsed.host) or "that address"
            return f"{host} is not among the hosts that may see the secret: {_listed(self.hosts)}"
        if self.allow_http or is_private_way(parsed):
            return None
        return (
            f"the secret would travel to {parsed.host} unencrypted; use https, or allow it "
            "with allow_http: true"
        )


def is_private_way(url: URL) -> bool:
    """Return whether nobody between here and there can read along."""
    return url.scheme == "https" or is_loopback(url.host or "")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(url: URL) -> str:
    """Return the pattern that covers this address and no other host or port."""
    return _written(url.raw_host or "", _unusual_port(url))


def pattern_of(value: object) -> str:
    """Return a host pattern as a user wrote it, in the form that all are compared in.

    Raises:
        PydanticCustomError: it is none.
    """
    text = value.strip().lower() if isinstance(value, str) else ""
    stem = text.removeprefix("*.")
    is_below = stem != text
    url = _parsed(f"https://{stem}")
    if url is None or not _HOST.fullmatch(stem) or not url.raw_host:
        raise wrong("a host is written as api.example.com, api.example.com:8443 or *.example.com")
    if is_below and "." not in stem:
        raise wrong(f"{text} would send the secret to strangers; write the hosts that may see it")
    return ("*." if is_below else "") + host_of(url)


def _fits(pattern: str, name: str) -> bool:
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern


def _written(host: str, port: int | None) -> str:
    bracketed = f"[{host}]" if ":" in host else host.lower()
    return bracketed if port is None else f"{bracketed}:{port}"


def _unusual_port(url: URL) -> int | None:
    usual = {"http": 80, "https": 443}.get(url.scheme)
    return None if url.port == usual else url.port


def _parsed(url: str) -> URL | None:
    try:
        return URL(url)
    except ValueError:
        return None  # the transport will say what is wrong with it


def _listed(hosts: Iterable[str]) -> str:
    return ", ".join(hosts) or "none was named"


def _patterns(value: Any) -> tuple[str, ...]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, Iterable):
        raise wrong("hosts is a list, for example [api.example.com]")
    return tuple(dict.fromkeys(pattern_of(one) for one in several))


Hosts = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
"""A list of host patterns as a user writes it; a single one needs no list."""
