"""Connection to Redis: scripts as atomic calls, reconnects with backoff, and errors in words."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any, NamedTuple

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    RedisError,
)
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NotAnswered

from longline.core.backoff import backoff
from longline.core.clock import Clock
from longline.core.errors import BadOption
from longline.core.redaction import redact_server_url
from longline.limits.errors import RedisUnreachable

_LOG = logging.getLogger(__name__)

# ---------------- Lua scripts: which files each consists of

_PARTS = {
    "connect": ("epoch", "connect"),
    "reserve": ("epoch", "bucket", "reserve"),
    "check": ("epoch", "bucket", "check"),
    "penalise": ("epoch", "bucket", "penalise"),
    "lateness": ("epoch", "bucket", "lateness"),
    "cancel": ("epoch", "bucket", "cancel"),
    "state": ("epoch", "bucket", "state"),
    "update": ("epoch", "update"),
    "acquire": ("epoch", "acquire"),
    "renew": ("epoch", "renew"),
    "release": ("epoch", "release"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, and the digest by which Redis knows it."""

    text: str
    digest: str


def read_scripts(clock: str | None = None) -> dict[str, Script]:
    """Return all scripts by name; `clock` is Lua that replaces the clock of Redis."""
    folder = files("longline.limits.backends") / "lua"
    clock = clock or (folder / "clock.lua").read_text("utf-8")
    scripts = {}
    for name, parts in _PARTS.items():
        text = "\n".join([clock, *((folder / f"{one}.lua").read_text("utf-8") for one in parts)])
        scripts[name] = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    return scripts


def exact(number: float) -> str:
    """Format a number as the scripts do: without loss of digits."""
    return f"{number:.17g}"


# ---------------- Errors of Redis: whether waiting helps and, if not, what a person should do

REDIS_URL = "LONGLINE_REDIS_URL"
"""The setting with the URL of the Redis server."""
_PERMANENT = {  # by text, since an error inside a script is wrapped in another
    "nvalid username-password": "it refused the password; correct it in {setting}",
    "nvalid password": "it refused the password; correct it in {setting}",
    "without any password": "it has no password; remove it from {setting}",
    "uthentication required": "it requires a password; add it to {setting}, "
    "redis://:PASSWORD@host:6379/0",
    "READONLY": "it is a read-only replica; set {setting} to the URL of the primary",
    "read only replica": "it is a read-only replica; set {setting} to the URL of the primary",
    "OOM ": "its memory is full; raise its maxmemory, or give longline its own Redis",
    "used memory >": "its memory is full; raise its maxmemory, or give longline its own Redis",
    "MISCONF": "it refuses writes because it cannot save to its disk; free space there",
    "BUSY ": "a script of another client blocks it; end that with SCRIPT KILL",
}
_TEMPORARY = ("LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN")


def permanent_cause(error: RedisError | OSError, setting: str = REDIS_URL) -> str | None:
    """Return the cause in words when waiting does not help; None when it may.

    `setting` is where a person wrote the URL.
    """
    text = str(error)
    for part, cause in _PERMANENT.items():
        if part in text:
            return cause.format(setting=setting)
    if isinstance(error, (AuthenticationError, NoPermissionError)):
        return f"authentication failed ({text}); correct the user and password in its URL"
    if isinstance(error, InvalidResponse):
        return f"the server there is not Redis; correct {setting}"
    is_temporary = isinstance(error, (NotConnected, NotAnswered, OSError)) or text.startswith(
        _TEMPORARY
    )
    return None if is_temporary else text


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
        self._scripts = read_scripts(lua_clock)
        self._redis = self._client(url, timeout)

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
        reply: Reply = await self._retry(lambda: self._run(script, keys, arguments), waits=waits)
        skew = self._clock.now() - reply.now
        self.skew = skew if abs(skew) > _CLOCK_TOLERANCE else 0.0
        return reply

    async def names(self, group: str) -> dict[str, str]:
        """Return the keys of a group by their names.

        Raises:
            RedisUnreachable: Redis cannot be used.
        """
        start = self.key(group) + ":"
        keys: list[str] = await self._retry(lambda: self._scan(start))
        return {key.removeprefix(start): key for key in sorted(set(keys))}

    async def remove(self, key: str) -> bool:
        """Delete a key; return False when there was none.

        Raises:
            RedisUnreachable: Redis cannot be used.
        """
        return bool(await self._retry(lambda: self._redis.delete(key)))

    async def close(self) -> None:
        """Disconnect; further calls do nothing."""
        await self._redis.aclose()

    def _client(self, url: str, timeout: float | None) -> Redis:
        try:
            pool = BlockingConnectionPool.from_url(
                url,
                max_connections=_CONNECTIONS,
                timeout=None,
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                decode_responses=True,
                protocol=2,
                retry=Retry(NoBackoff(), 0),  # `_retry` does it, and reports the outage
                redis_connect_func=self._connect,
            )
        except ValueError:  # whose text may contain the password
            problem = "must be a URL of Redis, such as redis://127.0.0.1:6379/0"
            raise BadOption("redis_url", problem) from None
        return Redis.from_pool(pool)

    async def _connect(self, connection: Any) -> None:
        """Start a new epoch if the server was restarted, before the first call."""
        try:
            await connection.on_connect()
            await connection.send_command(
                "EVAL", self._scripts["connect"].text, 1, self.key("born"), check_health=False
            )
            await connection.read_response()
        except BaseException:
            # An outstanding reply would be taken for that of the next call.
            await connection.disconnect(nowait=True)
            raise

    async def _run(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Reply:
        script, loop = self._scripts[name], asyncio.get_running_loop()
        started = loop.time()
        try:
            values = await self._redis.evalsha(script.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            values = await self._redis.eval(script.text, len(keys), *keys, *arguments)
        return Reply(float(values[0]), list(values[1:]), loop.time() - started)

    async def _scan(self, start: str) -> list[str]:
        pattern = "".join(f"[{one}]" if one in "*?[" else one for one in start) + "*"
        return [key async for key in self._redis.scan_iter(pattern, count=1000)]

    async def _retry(self, call: Callable[[], Any], *, waits: bool = True) -> Any:
        """Call until Redis replies, for as long as it may be waited for."""
        loop = asyncio.get_running_loop()
        started, failures = loop.time(), 0
        while True:
            try:
                result = await call()
            except (RedisError, OSError) as error:
                await self._raise_if_permanent(error)
                self._report_outage(is_down=True, problem=str(error))
                failures += 1
                pause = backoff(failures, base=_FIRST_PAUSE, ceiling=_LONGEST_PAUSE)
                pause *= random.uniform(0.75, 1.0)  # noqa: S311  # not a secret
                max_wait = self._max_wait_since(started) if waits else 0.0
                waited = loop.time() - started
                if max_wait is not None and waited + pause > max_wait:
                    problem = (
                        f"it did not respond for {waited:.0f} s ({error}); "
                        "start it with `longline up`, or correct LONGLINE_REDIS_URL"
                    )
                    raise RedisUnreachable(self.address, problem) from error
            else:
                self._report_outage(is_down=False)
                return result
            await self._clock.sleep(pause)

    def _max_wait_since(self, started: float) -> float | None:
        """Return how long a call that started then may wait in total; None is without limit."""
        if not self._is_stopping():
            return self._max_wait
        if self._stopping_since is None:
            self._stopping_since = asyncio.get_running_loop().time()
        left = max(0.0, self._stopping_since - started) + _MAX_WAIT_STOPPING
        return left if self._max_wait is None else min(left, self._max_wait)

    async def _raise_if_permanent(self, error: RedisError | OSError) -> None:
        cause = permanent_cause(error)
        if cause is not None:
            # After a failover the host name leads to another server for new connections only.
            await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise RedisUnreachable(self.address, cause) from error

    def _report_outage(self, *, is_down: bool, problem: str = "") -> None:
        if is_down == self.is_down:
            return
        self.is_down = is_down
        if is_down:
            _LOG.warning("Redis at %s is not reachable (%s); waiting for it", self.address, problem)
        else:
            _LOG.warning("Redis at %s is reachable again", self.address)
