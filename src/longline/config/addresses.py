"""Addresses of servers as people may see them: without passwords, wherever those stand."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

_IN_FRONT = re.compile(r"(?<=://)([^/@:]*):[^@]*@(?:[^/@]*@)*")
_PAIR = re.compile(r"([?&])([^=&#]*)=[^&#]*")
_MASK = "***"


def without_password(address: str) -> str:
    """Return an address with `***` for its password, before the host or in the query.

    What has no password, and what is no address, comes back as it is.
    """
    if "://" not in address:
        return address
    return _PAIR.sub(_masked, _IN_FRONT.sub(rf"\1:{_MASK}@", address))


def _masked(pair: re.Match[str]) -> str:
    # password and sslpassword of PostgreSQL, password and ssl_password of Redis
    is_secret = "password" in unquote_plus(pair[2]).lower()
    return f"{pair[1]}{pair[2]}={_MASK}" if is_secret else pair[0]
