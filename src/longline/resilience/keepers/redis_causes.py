"""What an error of Redis means: whether waiting helps and, if not, what a person has to do."""

from __future__ import annotations

from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError, InvalidResponse, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NotAnswered

from longline.config.addresses import shown_address

REDIS_URL = "LONGLINE_REDIS_URL"
"""The setting that names the Redis of limits, and of messages unless there is another."""
_SIGNS = {  # in the text, since an error inside a script comes wrapped in another
    "nvalid username-password": "it refuses the password; correct it in {setting}",
    "nvalid password": "it refuses the password; correct it in {setting}",
    "without any password": "it has no password; take it out of {setting}",
    "uthentication required": "it wants a password; write it into {setting}, "
    "redis://:PASSWORD@host:6379/0",
    "READONLY": "it is a read-only replica; give the address of the primary in {setting}",
    "read only replica": "it is a read-only replica; give the address of the primary in {setting}",
    "OOM ": "its memory is full; raise its maxmemory, or give longline a Redis of its own",
    "used memory >": "its memory is full; raise its maxmemory, or give longline a Redis of its own",
    "MISCONF": "it takes no writes since it cannot save to its disk; make room there",
    "BUSY ": "it is held up by somebody's endless script; end that with SCRIPT KILL",
}
_PASSING = ("LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN")


def lasting_cause(error: RedisError | OSError, setting: str = REDIS_URL) -> str | None:
    """Return what is wrong in words when waiting does not mend it; None when it may.

    `setting` is where a person wrote the address.
    """
    text = str(error)
    for sign, cause in _SIGNS.items():
        if sign in text:
            return cause.format(setting=setting)
    if isinstance(error, (AuthenticationError, NoPermissionError)):
        return f"it does not let us in ({text}); correct the user and password in its address"
    if isinstance(error, InvalidResponse):
        return f"what answers there is no Redis; correct {setting}"
    is_passing = isinstance(error, (NotConnected, NotAnswered, OSError)) or text.startswith(
        _PASSING
    )
    return None if is_passing else text


def shown(url: str) -> str:
    """Return an address without its password."""
    if (safe := shown_address(url)).endswith("…"):
        return safe
    parts = urlsplit(url)
    secret, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=("***" if secret else "") + at + host, query="").geturl()
