"""Shared state on Redis, so that all workers of a cluster share limits, breakers and slots.

docs/redis-keys.md describes every key and its lifetime.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any, NamedTuple
from uuid import uuid4

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    NoPermissionError,
    RedisError,
)
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import TimeoutError as NotAnswered

from longline.core.clock import Clock, backoff
from longline.core.errors import BadOption, RedisUnreachable, StoreBusy
from longline.core.redaction import redact_server_url
from longline.limits.backends.state import Result, State, StateBackend, Update
from longline.limits.breaker import (
    Admission,
    BreakerBackend,
    BreakerChange,
    BreakerPolicy,
    BreakerState,
    Health,
    Successes,
)
from longline.limits.concurrency import LEASE, RENEWAL, ConcurrencyBackend, InFlightSlot
from longline.limits.limiter import PriorityLock
from longline.limits.rate_limit import BucketState, RateLimit, RateLimitBackend, Slot

_LOG = logging.getLogger(__name__)

_BUCKET_SCRIPTS = ("reserve", "check", "penalise", "lateness", "cancel", "state")
_OTHER_SCRIPTS = ("connect", "update", "acquire", "renew", "release")


def _register_scripts(redis: Redis, clock: str | None) -> dict[str, AsyncScript]:
    """Return all Lua scripts by name; `clock` is Lua that replaces the clock of Redis."""
    folder = files("longline.limits.backends") / "lua"

    def read(name: str) -> str:
        return (folder / f"{name}.lua").read_text("utf-8")

    begin = f"{clock or read('clock')}\n{read('epoch')}"
    texts = {name: f"{begin}\n{read('bucket')}\n{read(name)}" for name in _BUCKET_SCRIPTS}
    texts |= {name: f"{begin}\n{read(name)}" for name in _OTHER_SCRIPTS}
    return {name: redis.register_script(text) for name, text in texts.items()}


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
        self._redis = self._client(url, timeout)
        self._scripts = _register_scripts(self._redis, lua_clock)

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
        reply: Reply = await self._retry(
            lambda: self._run_script(script, keys, arguments), waits=waits
        )
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
                redis_connect_func=self._start_epoch,
            )
        except ValueError:  # whose text may contain the password
            problem = "must be a URL of Redis, such as redis://127.0.0.1:6379/0"
            raise BadOption("redis_url", problem) from None
        return Redis.from_pool(pool)

    async def _start_epoch(self, connection: Any) -> None:
        """Start a new epoch if the server was restarted, before the first call."""
        try:
            await connection.on_connect()
            await connection.send_command(
                "EVAL", self._scripts["connect"].script, 1, self.key("born"), check_health=False
            )
            await connection.read_response()
        except BaseException:
            # An outstanding reply would be taken for that of the next call.
            await connection.disconnect(nowait=True)
            raise

    async def _run_script(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Reply:
        loop = asyncio.get_running_loop()
        started = loop.time()
        values = await self._scripts[name](keys, arguments)
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


# ---------------- Shared state on Redis, so that all workers of a cluster share limits, breakers

# ---------------- Values that are read, changed here, and written only if unchanged meanwhile

_ATTEMPTS = 200
_IMMEDIATE_ATTEMPTS = 5  # after these, a short random pause leaves time to others
_REDIS_LONGEST_PAUSE = 0.02


class RedisStateBackend(StateBackend[State]):
    """Values as JSON, each with the mark of its last writer.

    Args:
        connection: the connection to Redis.
        group: the part of the key that separates the values of one backend from others.
        kind: the dataclass of a value.
        lifetime: returns how many seconds a value lives, given the value and the time.
        waits: whether to wait while Redis is not reachable.
    """

    def __init__(
        self,
        connection: RedisConnection,
        group: str,
        kind: type[State],
        lifetime: Callable[[State, float], float],
        *,
        waits: bool = True,
    ) -> None:
        self._connection = connection
        self._group = group
        self._kind = kind
        self._lifetime = lifetime
        self._waits = waits
        self._locks: dict[str, PriorityLock] = {}

    async def change(self, name: str, update: Update[State, Result]) -> Result:
        # Tasks of one process would only conflict with each other.
        async with self._locks.setdefault(name, PriorityLock()).acquire():
            return await self._change(name, update)

    async def read(self, name: str) -> tuple[State | None, float]:
        reply = await self._call(name)
        return self._decode_value(name, reply.values[1]), reply.now

    async def all(self) -> dict[str, State]:
        names = await self._connection.names(self._group)
        values = {name: (await self.read(name))[0] for name in names}
        return {name: value for name, value in values.items() if value is not None}

    async def forget(self, name: str) -> bool:
        return await self._connection.remove(self._connection.key(self._group, name))

    async def _change(self, name: str, update: Update[State, Result]) -> Result:
        started = asyncio.get_running_loop().time()
        reply = await self._call(name)
        for attempt in range(_ATTEMPTS):
            held = reply.values[1]
            value = self._decode_value(name, held)
            changed, result = update(value, reply.now)
            if changed is None or changed == value:
                return result
            lifetime = str(max(1, int(1000 * self._lifetime(changed, reply.now))))
            text = json.dumps(asdict(changed))  # type: ignore[call-overload]  # a dataclass
            reply = await self._call(name, held.partition(" ")[0], uuid4().hex, text, lifetime)
            if reply.values[0]:  # it is written
                return result
            if attempt >= _IMMEDIATE_ATTEMPTS:
                await asyncio.sleep(random.uniform(0, _REDIS_LONGEST_PAUSE))  # noqa: S311  # not a secret
        raise StoreBusy(self._connection.address, asyncio.get_running_loop().time() - started)

    async def _call(self, name: str, *arguments: str) -> Reply:
        keys = [self._connection.key(self._group, name)]
        return await self._connection.call("update", keys, *arguments, waits=self._waits)

    def _decode_value(self, name: str, held: str) -> State | None:
        if not held:
            return None
        try:
            return self._kind(**json.loads(held.partition(" ")[2]))
        except (TypeError, ValueError) as error:
            key = self._connection.key(self._group, name)
            problem = f"the value of {key} cannot be read; delete that key"
            raise RedisUnreachable(self._connection.address, problem) from error


# ---------------- Breakers, on the clock of Redis; times in results are on our own

_FRESHNESS = 0.5  # seconds after which a breaker that another worker opened is seen here
_KEPT = 24 * 3600.0  # seconds that a closed breaker is kept


class RedisBreakerBackend(BreakerBackend):
    """Breakers that all workers on one Redis share.

    Callers compare times with their own clock, which may differ from that of Redis by an hour. So
    times in results are converted to it.
    """

    def __init__(self, connection: RedisConnection, *, waits: bool = True) -> None:
        states = RedisStateBackend(connection, "breaker", BreakerState, _lifetime, waits=waits)
        super().__init__(states, freshness=_FRESHNESS)
        self._connection = connection
        self._impatient = RedisBreakerBackend(connection, waits=False) if waits else self

    async def admit(self, domain: str, policy: BreakerPolicy) -> Admission:
        admission = await super().admit(domain, policy)
        if admission.is_allowed:
            return admission
        return replace(admission, until=admission.until + self._connection.skew)

    async def record(
        self,
        domain: str,
        policy: BreakerPolicy,
        health: Health,
        *,
        reason: str = "",
        successes: Successes = (),
    ) -> BreakerChange:
        # A cancelled probe does not wait for Redis to say so: it expires.
        if health is Health.UNKNOWN and self._impatient is not self:
            return await self._impatient.record(domain, policy, health)
        change = await super().record(domain, policy, health, reason=reason, successes=successes)
        return replace(change, after=self._on_our_clock(change.after))

    async def reset(self, domain: str) -> BreakerState:
        return self._on_our_clock(await super().reset(domain))

    async def state(self, domain: str) -> BreakerState:
        return self._on_our_clock(await super().state(domain))

    async def all(self) -> dict[str, BreakerState]:
        states = await super().all()
        return {domain: self._on_our_clock(state) for domain, state in states.items()}

    def _on_our_clock(self, state: BreakerState) -> BreakerState:
        skew = self._connection.skew
        if not skew:
            return state

        def shift(at: float | None) -> float | None:
            return None if at is None else at + skew

        ramp = state.ramp
        if ramp is not None:
            ramp = replace(ramp, began=shift(ramp.began), free_at=ramp.free_at + skew)
        return replace(
            state,
            opened_at=shift(state.opened_at),
            open_until=shift(state.open_until),
            probe_until=shift(state.probe_until),
            ramp=ramp,
            window=tuple(replace(one, since=one.since + skew) for one in state.window),
            history=tuple(replace(one, at=one.at + skew) for one in state.history),
        )


def _lifetime(state: BreakerState, now: float) -> float:
    return max(0.0, (state.open_until or now) - now) + _KEPT


# ---------------- Buckets: the policy of `rate_limit.py` as Lua scripts, one call for each step

_LATE_ATTEMPTS = 3  # when every reply is late, the last one is used
_FAST_REPLY = 0.05  # seconds that a reply may take


@dataclass(frozen=True, slots=True)
class RedisSlot(Slot):
    """A slot that is valid only in the `epoch` of Redis in which it was reserved."""

    epoch: str = ""


class RedisRateLimitBackend(RateLimitBackend):
    """Buckets that all workers on one Redis share, on its clock."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._penalties: dict[str, float] = {}

    async def reserve(self, domain: str, limit: RateLimit) -> Slot:
        for _ in range(_LATE_ATTEMPTS):
            slot, took = await self._reserve(domain, limit)
            # After a later reply, the requests behind this one could catch up with it.
            if took - slot.wait <= max(slot.hold, _FAST_REPLY):
                break
        return slot

    async def check(self, domain: str, limit: RateLimit, slot: Slot) -> float | None:
        epoch = slot.epoch if isinstance(slot, RedisSlot) else ""
        arguments = (*_limit_arguments(limit), exact(slot.at), exact(slot.hold), epoch)
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
        if not isinstance(slot, RedisSlot) or self._connection.is_down:
            return
        arguments = (_encode_bucket(slot.before), _encode_bucket(slot.after), slot.epoch)
        with contextlib.suppress(RedisUnreachable):
            await self._connection.call("cancel", self._keys(domain), *arguments, waits=False)

    async def state(self, domain: str) -> BucketState | None:
        values = (await self._connection.call("state", self._keys(domain))).values
        return self._on_our_clock(_decode_bucket(values[0])) if values else None

    async def _reserve(self, domain: str, limit: RateLimit) -> tuple[RedisSlot, float]:
        """Return the next slot, and how many seconds the reply took."""
        arguments = (*_limit_arguments(limit), exact(self._known_penalty(domain)))
        reply = await self._connection.call("reserve", self._keys(domain), *arguments)
        at, wait, hold = (float(one) for one in reply.values[:3])
        before, after, epoch = reply.values[3:]
        slot = RedisSlot(at, wait, hold, _decode_bucket(before), _decode_bucket(after), epoch)
        self._remember_penalty(domain, slot.after.barred_until - reply.now)
        return slot, reply.took

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
    breakers: RedisBreakerBackend
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
            RedisBreakerBackend(connection),
            RedisConcurrencyBackend(connection),
        )
    finally:
        await connection.close()
