"""Checks of Redis: whether it is there, new enough, and keeps what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from longline.core.errors import MissingExtra
from longline.core.redaction import redact_server_url
from longline.services.advisories import Advisory, advisories_for
from longline.services.doctor.base import Finding, Ground, ok, problem, warning

_OLDEST = 6
_ANSWER = 2.0  # seconds


def redis(ground: Ground) -> Iterator[Finding]:
    """See that the Redis that processes share limits in will do."""
    if ground.settings.redis is None:
        yield ok("redis", "none is set; processes share limits in a file of the home")
        return
    yield from _looked_at("redis", ground.settings.redis, "LONGLINE_REDIS_URL")


def broker(ground: Ground) -> Iterator[Finding]:
    """See that the Redis that carries messages will do, when it is another one."""
    address = ground.settings.broker
    if address is None or address == ground.settings.redis:
        return
    yield from _looked_at("broker", address, "LONGLINE_BROKER_URL")


def redis_time(ground: Ground) -> float | None:
    """Return what time it is for Redis; None when there is none, or none that answers."""
    address = ground.settings.redis
    if address is None:
        return None
    try:
        connected, errors = _library()
    except MissingExtra:
        return None  # which another check tells
    try:
        with connected(address) as server:
            seconds, microseconds = server.time()
    except errors:
        return None  # the same
    return float(seconds) + float(microseconds) / 1e6


def _looked_at(about: str, address: str, variable: str) -> Iterator[Finding]:
    if urlsplit(address).scheme not in ("redis", "rediss", "unix"):
        sentence = "its address is no address of Redis"
        yield problem(about, sentence, f"{variable}=redis://127.0.0.1:6379/0, for example")
        return
    connected, errors = _library()
    from longline.limits.backends.redis_connection import permanent_cause  # noqa: PLC0415

    try:
        with connected(address) as server:
            found = server.info("everything")
    except errors as error:
        is_malformed = isinstance(error, ValueError)  # its text may repeat the password
        cause = "that is not an address" if is_malformed else permanent_cause(error, variable)
        text = cause or f"nothing answers there ({' '.join(str(error).split())})"
        sentence = f"Redis at {redact_server_url(address)} cannot be used: {text}"
        yield problem(about, sentence, f"start it with `longline up`, or mend {variable}")
        return
    yield from _judged(about, redact_server_url(address), found, variable)


def _judged(about: str, where: str, found: Mapping[str, Any], variable: str) -> Iterator[Finding]:
    version = str(found.get("redis_version", ""))
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) < _OLDEST:
        sentence = f"Redis at {where} is version {version}, {_OLDEST} is the oldest that will do"
        yield problem(about, sentence, f"upgrade it, or name another in {variable}")
        return
    if found.get("role") == "slave":
        sentence = f"Redis at {where} is a replica, which may only be read"
        yield problem(about, sentence, f"give the address of its primary in {variable}")
        return
    policy = found.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        sentence = f"Redis at {where} throws keys away when memory is short ({policy})"
        remedy = "set maxmemory-policy noeviction: a forgotten limit costs a full wait"
        yield warning(about, sentence, remedy)
    product = "valkey" if "valkey_version" in found else "redis"
    version = str(found.get(f"{product}_version", ""))
    for one in advisories_for(product, version):
        sentence = f"{product} {version} at {where} has {one.name}: {one.summary}"
        yield warning(about, sentence, _remedy(product, one))
    if found.get("rdb_last_bgsave_status", "ok") != "ok":
        sentence = f"Redis at {where} could not save to its disk, and may refuse writes"
        yield warning(about, sentence, "make room there, or switch saving off: save ''")
    keeps = (
        "keeps its data on disk" if found.get("aof_enabled") else "may forget all, which is fine"
    )
    yield ok(about, f"{product.capitalize()} {version} at {where}; it {keeps}")


def _remedy(product: str, advisory: Advisory) -> str:
    versions = ", ".join(advisory.fixed[product])
    return (
        f"upgrade it ({versions} or newer), or put a newer redis-server or valkey-server on PATH "
        "for `longline up`"
    )


def _library() -> tuple[Callable[[str], Any], Any]:
    """Return what connects to Redis, and what it may raise."""
    try:
        from redis import Redis  # noqa: PLC0415  # an optional part
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("cluster", "Redis") from error

    def connected(address: str) -> Any:
        # An old server knows the old protocol only, and shall be able to say how old it is.
        return Redis.from_url(
            address,
            socket_timeout=_ANSWER,
            socket_connect_timeout=_ANSWER,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            decode_responses=True,
        )

    return connected, (RedisError, OSError, ValueError)
