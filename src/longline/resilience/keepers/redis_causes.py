"""What an error of Redis means: whether waiting helps and, if not, what a person has to do."""

from __future__ import annotations

from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError, InvalidResponse, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NotAnswered

_SIGNS = {  # in the text, since an error inside a script comes wrapped in another
    "nvalid username-password": "it refuses the password; correct it in LONGLINE_REDIS_URL",
    "nvalid password": "it refuses the password; correct it in LONGLINE_REDIS_URL",
    "without any password": "it has no password; take it out of LONGLINE_REDIS_URL",
    "uthentication required": "it wants a password; write it into LONGLINE_REDIS_URL, "
    "redis://:PASSWORD@host:6379/0",
    "READONLY": "it is a read-only replica; give the address of the primary in LONGLINE_REDIS_URL",
    "read only replica": "it is a read-only replica; give the address of the primary in "
    "LONGLINE_REDIS_URL",
    "OOM ": "its memory is full; raise its maxmemory, or give longline a Redis of its own",
    "MISCONF": "it takes no writes since it cannot save to its disk; make room there",
    "BUSY ": "it is held up by somebody's endless script; end that with SCRIPT KILL",
}
_PASSING = ("LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN")


def lasting_cause(error: RedisError | OSError) -> str | None:
    """Return what is wrong in words when waiting does not mend it; None when it may."""
    text = str(error)
    for sign, cause in _SIGNS.items():
        if sign in text:
            return cause
    if isinstance(error, (AuthenticationError, NoPermissionError)):
        return f"it does not let us in ({text}); correct the user and password in its address"
    if isinstance(error, InvalidResponse):
        return "what answers there is no Redis; correct LONGLINE_REDIS_URL"
    is_passing = isinstance(error, (NotConnected, NotAnswered, OSError)) or text.startswith(
        _PASSING
    )
    return None if is_passing else text


def shown(url: str) -> str:
    """Return an address without its password."""
    parts = urlsplit(url)
    secret, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=("***" if secret else "") + at + host, query="").geturl()
