"""Shared state on Redis, so that all workers of a cluster share limits, breakers and slots.

docs/redis-keys.md describes every key and its lifetime.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from uuid import uuid4

from longline.core.clock import Clock
from longline.core.errors import StoreBusy
from longline.limits.backends.base import Result, State, StateBackend, Update
from longline.limits.backends.redis_connection import (
    MAX_WAIT,
    PREFIX,
    RedisConnection,
    Reply,
    exact,
)
from longline.limits.breaker import (
    Admission,
    BreakerChange,
    BreakerPolicy,
    BreakerState,
    Health,
    StateBreakerBackend,
    Successes,
)
from longline.limits.concurrency import LEASE, RENEWAL, ConcurrencyBackend, InFlightSlot
from longline.limits.errors import RedisUnreachable
from longline.limits.limiter import PriorityLock
from longline.limits.rate_limit import BucketState, RateLimit, RateLimitBackend, Slot

# ---------------- Values that are read, changed here, and written only if unchanged meanwhile

_ATTEMPTS = 200
_IMMEDIATE_ATTEMPTS = 5  # after these, a short random pause leaves time to others
_LONGEST_PAUSE = 0.02


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
        return self._decode(name, reply.values[1]), reply.now

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
            value = self._decode(name, held)
            changed, result = update(value, reply.now)
            if changed is None or changed == value:
                return result
            lifetime = str(max(1, int(1000 * self._lifetime(changed, reply.now))))
            text = json.dumps(asdict(changed))  # type: ignore[call-overload]  # a dataclass
            reply = await self._call(name, held.partition(" ")[0], uuid4().hex, text, lifetime)
            if reply.values[0]:  # it is written
                return result
            if attempt >= _IMMEDIATE_ATTEMPTS:
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311  # not a secret
        raise StoreBusy(self._connection.address, asyncio.get_running_loop().time() - started)

    async def _call(self, name: str, *arguments: str) -> Reply:
        keys = [self._connection.key(self._group, name)]
        return await self._connection.call("update", keys, *arguments, waits=self._waits)

    def _decode(self, name: str, held: str) -> State | None:
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


class RedisBreakerBackend(StateBreakerBackend):
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
        return BreakerChange(self._on_our_clock(change.before), self._on_our_clock(change.after))

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
