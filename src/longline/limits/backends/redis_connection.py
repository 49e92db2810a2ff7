"""The way to Redis for all keepers: one script a call, and patience while nobody answers."""

from __future__ import annotations

import asyncio
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

from longline.core.clock import Clock
from longline.core.errors import BadOption
from longline.core.redaction import redact_server_url
from longline.limits.errors import RedisUnreachable

# ---------------- The Lua scripts of the Redis keepers: which files make up which, and how a

_PARTS = {
    "greet": ("born", "greet"),
    "reserve": ("born", "pace", "reserve"),
    "check": ("born", "pace", "check"),
    "penalise": ("born", "pace", "penalise"),
    "lateness": ("born", "pace", "lateness"),
    "give_back": ("born", "pace", "give_back"),
    "state": ("born", "pace", "state"),
    "cell": ("born", "cell"),
    "enter": ("born", "enter"),
    "stay": ("born", "stay"),
    "leave": ("born", "leave"),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A program for Redis, and the name by which Redis knows it once it has seen it."""

    text: str
    digest: str


def read_scripts(clock: str | None = None) -> dict[str, Script]:
    """Return all scripts by name; `clock` is Lua to tell the time by, instead of Redis's own."""
    folder = files("longline.limits.backends") / "lua"
    clock = clock or (folder / "clock.lua").read_text("utf-8")
    return {
        name: _joined([clock, *((folder / f"{part}.lua").read_text("utf-8") for part in parts)])
        for name, parts in _PARTS.items()
    }


def exact(number: float) -> str:
    """Write a number as the scripts do: no digit is lost, and equal numbers are equal texts."""
    return f"{number:.17g}"


def _joined(parts: list[str]) -> Script:
    text = "\n".join(parts)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


# ---------------- What an error of Redis means: whether waiting helps and, if not, what a person

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


PREFIX = "longline:"
"""What every key of ours begins with."""
PATIENCE = 60.0
"""Seconds that a Redis which does not answer is waited for."""
_TIMEOUT = 3.0  # seconds without an answer: the network stalls
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_HASTE = 5.0  # seconds for a Redis to come back once this process is to end
_CONNECTIONS = 16
_NOISE = 1.0  # seconds by which two clocks that are right may differ, the way there included


class Reply(NamedTuple):
    """The time on Redis, what a script answered, and how many seconds that took."""

    now: float
    answers: list[Any]
    took: float


class RedisConnection:
    """Runs scripts on one Redis.

    On every new connection it is asked whether this is still the Redis that it was before.

    Args:
        url: Its address.
        clock: What pauses are waited by, and what our own time is.
        prefix: What every key begins with.
        patience: Seconds to wait for a Redis that does not answer; None is for ever.
        on_trouble: Told once in words when it cannot be reached, and once when it is back.
        is_hasty: Says that this process is to end: a Redis that is away has a few seconds left.
        timeout: Seconds to wait for one answer; None is for ever.
        lua_clock: Lua that tells the time, instead of Redis's own clock.

    Raises:
        BadOption: when the address makes no sense.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        prefix: str = PREFIX,
        patience: float | None = PATIENCE,
        on_trouble: Callable[[str], None] | None = None,
        is_hasty: Callable[[], bool] = lambda: False,
        timeout: float | None = _TIMEOUT,
        lua_clock: str | None = None,
    ) -> None:
        self.prefix = prefix
        self.address = redact_server_url(url)
        self.skew = 0.0
        """Seconds to add to a moment on Redis, so that it is the same moment on our own clock."""
        self._clock = clock
        self._patience = patience
        self._on_trouble = on_trouble
        self._is_hasty = is_hasty
        self._hasty_since: float | None = None
        self._is_troubled = False
        self._scripts = read_scripts(lua_clock)
        self._redis = self._client(url, timeout)

    @property
    def is_troubled(self) -> bool:
        """Whether Redis did not answer when it was last asked."""
        return self._is_troubled

    def key(self, room: str, name: str = "") -> str:
        """Return the key of something in Redis."""
        return f"{self.prefix}{room}:{name}" if name else self.prefix + room

    async def call(
        self, script: str, keys: Sequence[str], *words: str, is_patient: bool = True
    ) -> Reply:
        """Run a script as one step that nobody comes between.

        An answer that gets lost on the way is asked for again, so a script may run twice.

        Args:
            script: Its name.
            keys: What it reads and writes.
            words: What it is told.
            is_patient: Whether to wait for a Redis that does not answer.

        Raises:
            RedisUnreachable: when Redis cannot be asked, and what to do about it.
        """
        reply: Reply = await self._ask(
            lambda: self._run(script, keys, words), is_patient=is_patient
        )
        skew = self._clock.now() - reply.now
        self.skew = skew if abs(skew) > _NOISE else 0.0
        return reply

    async def names(self, room: str) -> dict[str, str]:
        """Return the keys of a room by the names they are for.

        Raises:
            RedisUnreachable: when Redis cannot be asked.
        """
        start = self.key(room) + ":"
        keys: list[str] = await self._ask(lambda: self._scan(start))
        return {key.removeprefix(start): key for key in sorted(set(keys))}

    async def remove(self, key: str) -> bool:
        """Delete a key; False when there was none.

        Raises:
            RedisUnreachable: when Redis cannot be asked.
        """
        return bool(await self._ask(lambda: self._redis.delete(key)))

    async def close(self) -> None:
        """Hang up; calling it again does no harm."""
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
                retry=Retry(NoBackoff(), 0),  # waiting is our own business, and is told of
                redis_connect_func=self._greet,
            )
        except ValueError:  # whose text may repeat the password
            problem = "must be an address of Redis, such as redis://127.0.0.1:6379/0"
            raise BadOption("redis_url", problem) from None
        return Redis.from_pool(pool)

    async def _greet(self, connection: Any) -> None:
        """Find out on a new connection whether Redis has begun anew, before anything is asked."""
        try:
            await connection.on_connect()
            await connection.send_command(
                "EVAL", self._scripts["greet"].text, 1, self.key("born"), check_health=False
            )
            await connection.read_response()
        except BaseException:
            # Half greeted is not greeted, and an answer still to come would be taken for another.
            await connection.disconnect(nowait=True)
            raise

    async def _run(self, name: str, keys: Sequence[str], words: Sequence[str]) -> Reply:
        script, loop = self._scripts[name], asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            answer = await self._redis.evalsha(script.digest, len(keys), *keys, *words)
        except NoScriptError:
            answer = await self._redis.eval(script.text, len(keys), *keys, *words)
        return Reply(float(answer[0]), list(answer[1:]), loop.time() - asked_at)

    async def _scan(self, start: str) -> list[str]:
        pattern = "".join(f"[{one}]" if one in "*?[" else one for one in start) + "*"
        return [key async for key in self._redis.scan_iter(pattern, count=1000)]

    async def _ask(self, question: Callable[[], Any], *, is_patient: bool = True) -> Any:
        begun = asyncio.get_running_loop().time()
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = await question()
            except (RedisError, OSError) as error:
                await self._judge(error)
                patience = self._patience_since(begun) if is_patient else 0.0
                waited = asyncio.get_running_loop().time() - begun
                if patience is not None and waited + pause > patience:
                    raise RedisUnreachable(self.address, _in_vain(error, waited)) from error
            else:
                self._tell(is_troubled=False)
                return answer
            await self._clock.sleep(pause * random.uniform(0.75, 1.0))  # noqa: S311 - no secret
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _patience_since(self, begun: float) -> float | None:
        """Return how long one who has waited since `begun` waits in all; None is for ever."""
        if not self._is_hasty():
            return self._patience
        if self._hasty_since is None:
            self._hasty_since = asyncio.get_running_loop().time()
        haste = max(0.0, self._hasty_since - begun) + _HASTE
        return haste if self._patience is None else min(haste, self._patience)

    async def _judge(self, error: RedisError | OSError) -> None:
        """Raise when waiting is of no use, and say that we wait otherwise."""
        cause = lasting_cause(error)
        if cause is not None:
            # After a failover the address leads to another server, but only new connections do.
            await self._redis.connection_pool.disconnect(inuse_connections=False)
            raise RedisUnreachable(self.address, cause) from error
        self._tell(is_troubled=True, problem=str(error))

    def _tell(self, *, is_troubled: bool, problem: str = "") -> None:
        if is_troubled == self._is_troubled:
            return
        self._is_troubled = is_troubled
        if self._on_trouble:
            waiting = f"Redis at {self.address} does not answer ({problem}); waiting for it"
            self._on_trouble(waiting if is_troubled else f"Redis at {self.address} is back")


def _in_vain(error: Exception, seconds: float) -> str:
    return (
        f"nobody answered for {seconds:.0f} s ({error}); start it with `longline up`, "
        "or correct LONGLINE_REDIS_URL"
    )
