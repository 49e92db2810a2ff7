"""Addresses of servers as people may see them: without passwords, wherever those stand."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus, urlsplit

_IN_FRONT = re.compile(r"(?<=://)([^/@:]*):[^@]*@(?:[^/@]*@)*")
_PAIR = re.compile(r"([?&])([^=&#]*)=[^&#]*")
_MASK = "***"
_SCHEME = re.compile(r"(sqlite|postgres|postgresql|redis|rediss|unix|amqp)(\+[a-z0-9]+)?")


def without_password(address: str) -> str:
    """Return an address with `***` for its password, before the host or in the query.

    What has no password, and what is no address, comes back as it is.
    """
    if "://" not in address:
        return address
    return _PAIR.sub(_masked, _IN_FRONT.sub(rf"\1:{_MASK}@", address))


def shown_address(address: str) -> str:
    """Return the address of a server as people may see it; one that is malformed is not shown.

    Where the password is in a text that cannot be parsed is unknown, so only a well-known scheme
    is left of it.
    """
    scheme = address.partition("://")[0]
    hidden = f"{scheme}://…" if _SCHEME.fullmatch(scheme) and scheme != address else "…"
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises ValueError when it is not a number
    except ValueError:
        return hidden
    if scheme.startswith(("sqlite", "unix")) and not parts.netloc:
        return without_password(address)  # a path, which may have any character
    if hidden == "…" or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return hidden
    return without_password(address)


def _masked(pair: re.Match[str]) -> str:
    # password and sslpassword of PostgreSQL, password and ssl_password of Redis
    is_secret = "password" in unquote_plus(pair[2]).lower()
    return f"{pair[1]}{pair[2]}={_MASK}" if is_secret else pair[0]
