"""Rate limits and requests in flight on Redis, shared by all workers of a cluster.

docs/redis-keys.md describes every key and its lifetime.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, NamedTuple
from uuid import uuid4

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, InvalidResponse, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NotAnswered

from longline.core.clock import Clock, backoff
from longline.core.errors import BadOption, RedisUnreachable
from longline.core.redaction import redact_server_url
from longline.limits.concurrency import LEASE, RENEWAL, ConcurrencyBackend, InFlightSlot
from longline.limits.rate_limit import BucketState, RateLimit, RateLimitBackend, Slot

_LOG = logging.getLogger(__name__)

_BUCKET_SCRIPTS = ("reserve", "check", "penalise", "lateness", "cancel", "state")
_OTHER_SCRIPTS = ("connect", "acquire", "renew", "release")


def exact(number: float) -> str:
    """Format a number as the scripts do: without loss of digits."""
    return f"{number:.17g}"


# ---------------- Errors of Redis: whether waiting helps and, if not, what the user should do

REDIS_URL = "LONGLINE_REDIS_URL"
"""The setting with the URL of the Redis server."""
_TEMPORARY = ("LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN")


def permanent_cause(error: RedisError | OSError, setting: str = REDIS_URL) -> str | None:
    """Return the cause in words when waiting does not help; None when it may.

    `setting` is where the user wrote the URL.
    """
    if isinstance(error, (AuthenticationError, NoPermissionError)):
        return f"it refused the password or user ({error}); correct it in {setting}"
    if isinstance(error, InvalidResponse):
        return f"the server there is not Redis; correct {setting}"
    is_temporary = isinstance(error, (NotConnected, NotAnswered, OSError))
    return None if is_temporary or str(error).startswith(_TEMPORARY) else str(error)


# ---------------- The connection

PREFIX = "longline:"
"""The prefix of every key."""
MAX_WAIT = 60.0
"""Seconds to wait while Redis is not reachable."""
_TIMEOUT = 3.0  # seconds without a reply
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_MAX_WAIT_STOPPING = 5.0  # seconds to wait for Redis once this process is stopping
_CONNECTIONS = 16
_CLOCK_TOLERANCE = 1.0  # seconds by which two correct clocks may differ, with the travel time


class Reply(NamedTuple):
    """The time on Redis, what a script returned, and how many seconds that took."""

    now: float
    values: list[Any]
    took: float


class RedisConnection:
    """Runs scripts on one Redis server.

    Every new connection starts a new epoch if the server was restarted.

    Args:
        url: the URL of the server.
        clock: the clock to wait by, and our own time.
        prefix: the prefix of every key.
        max_wait: seconds to wait while Redis is not reachable; None is without limit.
        is_stopping: returns whether this process is stopping; it then waits a few seconds only.
        timeout: seconds to wait for one reply; None is without limit.
        lua_clock: Lua that replaces the clock of Redis.

    Raises:
        BadOption: the URL is not valid.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        prefix: str = PREFIX,
        max_wait: float | None = MAX_WAIT,
        is_stopping: Callable[[], bool] = lambda: False,
        timeout: float | None = _TIMEOUT,
        lua_clock: str | None = None,
    ) -> None:
        self.prefix = prefix
        self.address = redact_server_url(url)
        self.skew = 0.0
        """Seconds to add to a time on Redis for the same time on our own clock."""
        self.is_down = False
        """Whether Redis did not reply to the last call."""
        self._clock = clock
        self._max_wait = max_wait
        self._is_stopping = is_stopping
        self._stopping_since: float | None = None
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=None,
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                decode_responses=True,
                protocol=2,
                retry=Retry(NoBackoff(), 0),  # `call` does it, and reports the outage
                redis_connect_func=self._start_epoch,
            )
        except ValueError:  # whose text may contain the password
            problem = "must be a Redis URL, such as redis://127.0.0.1:6379/0"
            raise BadOption("redis_url", problem) from None
        self._redis = Redis.from_pool(pool)
        folder = files("longline.limits.backends") / "lua"

        def read(name: str) -> str:
            return (folder / f"{name}.lua").read_text("utf-8")

        begin = f"{lua_clock or read('clock')}\n{read('epoch')}"
        texts = {name: f"{begin}\n{read('bucket')}\n{read(name)}" for name in _BUCKET_SCRIPTS}
        texts |= {name: f"{begin}\n{read(name)}" for name in _OTHER_SCRIPTS}
        self._scripts = {name: self._redis.register_script(one) for name, one in texts.items()}

    def key(self, group: str, name: str = "") -> str:
        """Return the key of a value."""
        return f"{self.prefix}{group}:{name}" if name else self.prefix + group

    async def call(
        self, script: str, keys: Sequence[str], *arguments: str, waits: bool = True
    ) -> Reply:
        """Run a script atomically. It is run again when its reply is lost.

        Args:
            script: its name.
            keys: the keys that it reads and writes.
            arguments: its arguments.
            waits: whether to wait while Redis is not reachable.

        Raises:
            RedisUnreachable: Redis cannot be used; it says what to do.
        """
        loop = asyncio.get_running_loop()
        started, failures = loop.time(), 0
        while True:
            sent = loop.time()
            try:
                now, *values = await self._scripts[script](keys, arguments)
                break
            except (RedisError, OSError) as error:
                failures += 1
                pause = await self._pause_after(error, failures, started, waits=waits)
            await self._clock.sleep(pause)
        if self.is_down:
            self.is_down = False
            _LOG.warning("Redis at %s is reachable again", self.address)
        skew = self._clock.now() - float(now)
        self.skew = skew if abs(skew) > _CLOCK_TOLERANCE else 0.0
        return Reply(float(now), values, loop.time() - sent)

    async def close(self) -> None:
        """Disconnect; further calls do nothing."""
        await self._redis.aclose()

    async def _start_epoch(self, connection: Any) -> None:
        """Start a new epoch if the server was restarted, before the first call."""
        try:
            await connection.on_connect()
            await connection.send_command(
                "EVAL", self._scripts["connect"].script, 1, self.key("born"), check_health=False
            )
            await connection.read_response()
        except BaseException:
            # An outstanding reply would be mistaken for that of the next call.
            await connection.disconnect(nowait=True)
            raise

    async def _pause_after(
        self, error: RedisError | OSError, failures: int, started: float, *, waits: bool
    ) -> float:
        """Return the seconds until the next attempt of a call that began at `started`."""
        cause = permanent_cause(error)
        if cause is not None:
            # After a failover the host name leads to another server for new connections only.
            await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise RedisUnreachable(self.address, cause) from error
        if not self.is_down:
            self.is_down = True
            _LOG.warning("Redis at %s is not reachable (%s); waiting for it", self.address, error)
        pause = backoff(failures, base=_FIRST_PAUSE, ceiling=_LONGEST_PAUSE)
        pause *= random.uniform(0.75, 1.0)  # noqa: S311  # not a secret
        now = asyncio.get_running_loop().time()
        max_wait = self._max_wait if waits else 0.0
        if waits and self._is_stopping():
            self._stopping_since = self._stopping_since or now
            left = max(0.0, self._stopping_since - started) + _MAX_WAIT_STOPPING
            max_wait = left if max_wait is None else min(left, max_wait)
        if max_wait is not None and now - started + pause > max_wait:
            problem = (
                f"it did not respond for {now - started:.0f} s ({error}); "
                "start it with `longline up`, or correct LONGLINE_REDIS_URL"
            )
            raise RedisUnreachable(self.address, problem) from error
        return pause


# ---------------- Buckets: the policy of `rate_limit.py` as Lua scripts, one call for each step

_LATE_ATTEMPTS = 3  # when every reply is late, the last one is used
_FAST_REPLY = 0.05  # seconds that a reply may take


class RedisRateLimitBackend(RateLimitBackend):
    """Buckets that all workers on one Redis share, on its clock."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._penalties: dict[str, float] = {}

    async def reserve(self, domain: str, limit: RateLimit) -> Slot:
        for _ in range(_LATE_ATTEMPTS):
            arguments = (*_limit_arguments(limit), exact(self._known_penalty(domain)))
            reply = await self._connection.call("reserve", self._keys(domain), *arguments)
            at, wait, hold = (float(one) for one in reply.values[:3])
            before, after, epoch = reply.values[3:]
            slot = Slot(at, wait, hold, _decode_bucket(before), _decode_bucket(after), epoch)
            self._remember_penalty(domain, slot.after.barred_until - reply.now)
            # After a later reply, the requests behind this one could catch up with it.
            if reply.took - wait <= max(hold, _FAST_REPLY):
                break
        return slot

    async def check(self, domain: str, limit: RateLimit, slot: Slot) -> float | None:
        arguments = (*_limit_arguments(limit), exact(slot.at), exact(slot.hold), slot.epoch)
        for _ in range(_LATE_ATTEMPTS):
            reply = await self._connection.call("check", self._keys(domain), *arguments)
            if reply.took <= max(slot.hold, _FAST_REPLY):  # later, it may be void
                break
        return float(reply.values[0]) if reply.values else None

    async def penalise(self, domain: str, limit: RateLimit, seconds: float) -> BucketState:
        self._remember_penalty(domain, seconds)
        arguments = (*_limit_arguments(limit), exact(seconds))
        reply = await self._connection.call("penalise", self._keys(domain), *arguments)
        return self._on_our_clock(_decode_bucket(reply.values[0]))

    async def observe_lateness(self, domain: str, limit: RateLimit, seconds: float) -> None:
        arguments = (*_limit_arguments(limit), exact(seconds))
        await self._connection.call("lateness", self._keys(domain), *arguments)

    async def cancel(self, domain: str, slot: Slot) -> None:
        # Not worth a wait, especially during a cancellation: one slot is lost.
        if self._connection.is_down:
            return
        arguments = (_encode_bucket(slot.before), _encode_bucket(slot.after), slot.epoch)
        with contextlib.suppress(RedisUnreachable):
            await self._connection.call("cancel", self._keys(domain), *arguments, waits=False)

    async def state(self, domain: str) -> BucketState | None:
        values = (await self._connection.call("state", self._keys(domain))).values
        return self._on_our_clock(_decode_bucket(values[0])) if values else None

    def _on_our_clock(self, state: BucketState) -> BucketState:
        skew = self._connection.skew
        barred_until = state.barred_until + skew if state.barred_until else 0.0
        return replace(state, full_at=state.full_at + skew, barred_until=barred_until)

    def _keys(self, domain: str) -> tuple[str, str]:
        return self._connection.key("pace", domain), self._connection.key("born")

    def _remember_penalty(self, domain: str, seconds: float) -> None:
        """Keep a penalty here too: if Redis lost it, the site would be asked too soon."""
        if seconds > 0:
            until = asyncio.get_running_loop().time() + seconds
            self._penalties[domain] = max(until, self._penalties.get(domain, until))

    def _known_penalty(self, domain: str) -> float:
        """Return the seconds that a domain is still barred, as far as this process knows."""
        left = self._penalties.get(domain, 0.0) - asyncio.get_running_loop().time()
        if left <= 0:
            self._penalties.pop(domain, None)
        return max(0.0, left)


def _limit_arguments(limit: RateLimit) -> tuple[str, str, str]:
    return exact(limit.rate), str(limit.capacity), exact(limit.margin)


def _decode_bucket(text: str) -> BucketState:
    return BucketState(*(float(one) for one in text.split(" ")))


def _encode_bucket(state: BucketState) -> str:
    numbers = (state.full_at, state.ahead, state.margin, state.barred_until)
    return " ".join(exact(one) for one in numbers)


# ---------------- Requests in flight

_QUIET = 1.2 * RENEWAL  # seconds after which all requests in flight have renewed their leases


class RedisConcurrencyBackend(ConcurrencyBackend):
    """Requests in flight of all workers on one Redis."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> InFlightSlot:
        token = uuid4().hex  # made here: when a reply is lost, the same token acquires again
        arguments = (token, str(limit), exact(lease), exact(_QUIET))
        reply = await self._connection.call("acquire", self._keys(domain), *arguments)
        is_acquired, wait = reply.values
        return InFlightSlot(token if is_acquired else None, float(wait))

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        await self._connection.call("renew", self._keys(domain), exact(lease), *tokens)

    async def release(self, domain: str, token: str) -> None:
        if self._connection.is_down:
            return
        with contextlib.suppress(RedisUnreachable):
            await self._connection.call("release", self._keys(domain)[:1], token, waits=False)

    def _keys(self, domain: str) -> tuple[str, str]:
        return self._connection.key("crowd", domain), self._connection.key("born")


@dataclass(frozen=True, slots=True)
class RedisBackends:
    """The backends on one Redis."""

    rate_limits: RedisRateLimitBackend
    concurrency: RedisConcurrencyBackend


@contextlib.asynccontextmanager
async def open_redis_backends(
    url: str,
    clock: Clock,
    max_wait: float | None = MAX_WAIT,
    *,
    prefix: str = PREFIX,
    is_stopping: Callable[[], bool] = lambda: False,
) -> AsyncIterator[RedisBackends]:
    """Open the backends on a Redis server, and disconnect at the end.

    The arguments are those of RedisConnection.

    Raises:
        BadOption: the URL is not valid.
        RedisUnreachable: Redis cannot be used; it says what to do.
    """
    connection = RedisConnection(
        url, clock, prefix=prefix, max_wait=max_wait, is_stopping=is_stopping
    )
    try:
        # The epoch starts now, however late the first request comes.
        await connection.call("connect", [connection.key("born")])
        yield RedisBackends(
            RedisRateLimitBackend(connection),
            RedisConcurrencyBackend(connection),
        )
    finally:
        await connection.close()
