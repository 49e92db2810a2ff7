"""Keepers on Redis, so that all workers of a cluster share limits, breakers and room.

Every key is described, with its lifetime, in docs/redis-keys.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import uuid4

from longline.core.clock import Clock
from longline.core.errors import StoreBusy
from longline.limits.backends.base import ConcurrencyBackend, RateLimitBackend
from longline.limits.backends.cells import Answer, CellBreakerBackend, Cells, State, Step
from longline.limits.backends.redis_connection import (
    PATIENCE,
    PREFIX,
    RedisConnection,
    Reply,
    exact,
)
from longline.limits.breaker import (
    Admission,
    BreakerPolicy,
    BreakerState,
    Change,
    Health,
    Successes,
)
from longline.limits.concurrency import LEASE, RENEWAL, Entry
from longline.limits.errors import RedisUnreachable
from longline.limits.limiter import PriorityLock
from longline.limits.rate_limit import BucketState, RateLimit, Slot

# ---------------- Values on Redis that are read, changed here, and written only if nobody was

_TRIES = 200
_EAGER = 5  # tries after which one leaves the others some time
_LONGEST_PAUSE = 0.02


class RedisCells(Cells[State]):
    """Values as JSON, each with the mark of who wrote it last.

    Args:
        door: The way to Redis.
        room: What keeps the values of one keeper apart from the others'.
        kind: The dataclass that a value is.
        lifetime: How many seconds a value lives, told the value and the time.
        is_patient: Whether to wait for a Redis that does not answer.
    """

    def __init__(
        self,
        door: RedisConnection,
        room: str,
        kind: type[State],
        lifetime: Callable[[State, float], float],
        *,
        is_patient: bool = True,
    ) -> None:
        self._connection = door
        self._room = room
        self._kind = kind
        self._lifetime = lifetime
        self._is_patient = is_patient
        self._lines: dict[str, PriorityLock] = {}

    async def change(self, name: str, step: Step[State, Answer]) -> Answer:
        # Tasks of one process would only get in each other's way.
        async with self._lines.setdefault(name, PriorityLock()).turn():
            return await self._change(name, step)

    async def read(self, name: str) -> tuple[State | None, float]:
        reply = await self._call(name)
        return self._decoded(name, reply.answers[1]), reply.now

    async def all(self) -> dict[str, State]:
        names = await self._connection.names(self._room)
        values = {name: (await self.read(name))[0] for name in names}
        return {name: value for name, value in values.items() if value is not None}

    async def forget(self, name: str) -> bool:
        return await self._connection.remove(self._connection.key(self._room, name))

    async def _change(self, name: str, step: Step[State, Answer]) -> Answer:
        begun = asyncio.get_running_loop().time()
        reply = await self._call(name)
        for attempt in range(_TRIES):
            held = reply.answers[1]
            value = self._decoded(name, held)
            changed, answer = step(value, reply.now)
            if changed is None or changed == value:
                return answer
            reply = await self._call(name, *self._words(held, changed, reply.now))
            if reply.answers[0]:  # it is written
                return answer
            if attempt >= _EAGER:
                await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311 - no secret
        raise StoreBusy(self._connection.address, asyncio.get_running_loop().time() - begun)

    async def _call(self, name: str, *words: str) -> Reply:
        keys = [self._connection.key(self._room, name)]
        return await self._connection.call("cell", keys, *words, is_patient=self._is_patient)

    def _words(self, held: str, value: State, now: float) -> tuple[str, str, str, str]:
        lifetime = str(max(1, int(1000 * self._lifetime(value, now))))
        return held.partition(" ")[0], uuid4().hex, _encode(value), lifetime

    def _decoded(self, name: str, held: str) -> State | None:
        if not held:
            return None
        try:
            return self._kind(**json.loads(held.partition(" ")[2]))
        except (TypeError, ValueError) as error:
            key = self._connection.key(self._room, name)
            problem = f"what it holds under {key} cannot be read; delete that key to begin anew"
            raise RedisUnreachable(self._connection.address, problem) from error


def _encode(value: Any) -> str:
    return json.dumps(asdict(value))


# ---------------- Breakers on Redis, by its clock; what is told of them is by our own

_FRESHNESS = 0.5  # seconds; a breaker that opens elsewhere is heard of this soon
_KEPT = 24 * 3600.0  # seconds after its rest: how often it opened, and why


class RedisBreakerBackend(CellBreakerBackend):
    """Breakers that all workers on one Redis share.

    Who is told a state compares its moments with his own clock. That may be an hour off, so they
    are told as that clock will show them.
    """

    def __init__(self, door: RedisConnection, *, is_patient: bool = True) -> None:
        cells = RedisCells(door, "breaker", BreakerState, _lifetime, is_patient=is_patient)
        super().__init__(cells, freshness=_FRESHNESS)
        self._connection = door
        self._hasty = RedisBreakerBackend(door, is_patient=False) if is_patient else self

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
    ) -> Change:
        # A probe that was cancelled must not wait in vain to say so: its right ends by itself.
        if health is Health.UNKNOWN and self._hasty is not self:
            return await self._hasty.record(domain, policy, health)
        change = await super().record(domain, policy, health, reason=reason, successes=successes)
        return Change(self._here(change.before), self._here(change.after))

    async def reset(self, domain: str) -> BreakerState:
        return self._here(await super().reset(domain))

    async def state(self, domain: str) -> BreakerState:
        return self._here(await super().state(domain))

    async def all(self) -> dict[str, BreakerState]:
        return {domain: self._here(state) for domain, state in (await super().all()).items()}

    def _here(self, state: BreakerState) -> BreakerState:
        skew = self._connection.skew
        return _shifted(state, skew) if skew else state


def _shifted(state: BreakerState, by: float) -> BreakerState:
    """Return a state whose every moment is so many seconds later."""
    return replace(
        state,
        opened_at=_later(state.opened_at, by),
        open_until=_later(state.open_until, by),
        probe_until=_later(state.probe_until, by),
        ramp=state.ramp
        and replace(
            state.ramp, began=_later(state.ramp.began, by), free_at=state.ramp.free_at + by
        ),
        window=tuple(replace(one, since=one.since + by) for one in state.window),
        history=tuple(replace(one, at=one.at + by) for one in state.history),
    )


def _later(moment: float | None, by: float) -> float | None:
    return None if moment is None else moment + by


def _lifetime(state: BreakerState, now: float) -> float:
    return max(0.0, (state.open_until or now) - now) + _KEPT


# ---------------- Buckets on Redis: the policy of `pace.py` as scripts, one call for each step

_ROOM = "pace"
_RESERVE_TRIES = 3  # where every answer is late, the last one has to do
_SWIFT = 0.05  # seconds that an answer may take without being called late


@dataclass(frozen=True, slots=True)
class RedisSlot(Slot):
    """A slot that counts only during the `life` of Redis in which it was reserved."""

    life: str = ""


class RedisRateLimitBackend(RateLimitBackend):
    """Buckets that all workers on one Redis share, by its clock."""

    def __init__(self, door: RedisConnection) -> None:
        self._connection = door
        self._rests: dict[str, float] = {}

    async def reserve(self, domain: str, pace: RateLimit) -> Slot:
        for _ in range(_RESERVE_TRIES):
            slot, took = await self._reserve(domain, pace)
            # An answer that comes so late would let the requests behind it catch up with this one.
            if took - slot.wait <= max(slot.hold, _SWIFT):
                break
        return slot

    async def check(self, domain: str, pace: RateLimit, slot: Slot) -> float | None:
        life = slot.life if isinstance(slot, RedisSlot) else ""
        words = (*_words(pace), exact(slot.at), exact(slot.hold), life)
        for _ in range(_RESERVE_TRIES):
            reply = await self._connection.call("check", self._keys(domain), *words)
            if reply.took <= max(slot.hold, _SWIFT):  # later, it may be void by now
                break
        return float(reply.answers[0]) if reply.answers else None

    async def penalise(self, domain: str, pace: RateLimit, seconds: float) -> BucketState:
        self._remember(domain, seconds)
        words = (*_words(pace), exact(seconds))
        reply = await self._connection.call("penalise", self._keys(domain), *words)
        return self._here(_state(reply.answers[0]))

    async def observe_lateness(self, domain: str, pace: RateLimit, seconds: float) -> None:
        words = (*_words(pace), exact(seconds))
        await self._connection.call("lateness", self._keys(domain), *words)

    async def give_back(self, domain: str, slot: Slot) -> None:
        # Not worth waiting for, least of all by one who is being cancelled: a slot is lost.
        if not isinstance(slot, RedisSlot) or self._connection.is_troubled:
            return
        words = (_written(slot.before), _written(slot.after), slot.life)
        with contextlib.suppress(RedisUnreachable):
            await self._connection.call("give_back", self._keys(domain), *words, is_patient=False)

    async def state(self, domain: str) -> BucketState | None:
        answers = (await self._connection.call("state", self._keys(domain))).answers
        return self._here(_state(answers[0])) if answers else None

    async def _reserve(self, domain: str, pace: RateLimit) -> tuple[RedisSlot, float]:
        """Return the next slot, and how many seconds the answer was on its way."""
        rest = exact(self._rest(domain))
        reply = await self._connection.call("reserve", self._keys(domain), *_words(pace), rest)
        at, wait, hold = (float(one) for one in reply.answers[:3])
        before, after, life = reply.answers[3:]
        slot = RedisSlot(at, wait, hold, _state(before), _state(after), life)
        self._remember(domain, slot.after.barred_until - reply.now)
        return slot, reply.took

    def _here(self, state: BucketState) -> BucketState:
        """Return a state by our own clock, which may be far from Redis's."""
        skew = self._connection.skew
        barred_until = state.barred_until + skew if state.barred_until else 0.0
        return replace(state, full_at=state.full_at + skew, barred_until=barred_until)

    def _keys(self, domain: str) -> tuple[str, str]:
        return self._connection.key(_ROOM, domain), self._connection.key("born")

    def _remember(self, domain: str, seconds: float) -> None:
        """Know of a rest here too: a Redis that forgets it would have the site asked too soon."""
        if seconds > 0:
            until = asyncio.get_running_loop().time() + seconds
            self._rests[domain] = max(until, self._rests.get(domain, until))

    def _rest(self, domain: str) -> float:
        """Return the seconds that a domain rests still, as far as this process knows."""
        left = self._rests.get(domain, 0.0) - asyncio.get_running_loop().time()
        if left <= 0:
            self._rests.pop(domain, None)
        return max(0.0, left)


def _words(pace: RateLimit) -> tuple[str, str, str]:
    return exact(pace.rate), str(pace.capacity), exact(pace.margin)


def _state(text: str) -> BucketState:
    return BucketState(*(float(one) for one in text.split(" ")))


def _written(state: BucketState) -> str:
    figures = (state.full_at, state.ahead, state.margin, state.barred_until)
    return " ".join(exact(one) for one in figures)


_QUIET = 1.2 * RENEWAL  # seconds after which all who are inside have been heard of again


class RedisConcurrencyBackend(ConcurrencyBackend):
    """Who is inside, over all workers on one Redis."""

    def __init__(self, door: RedisConnection) -> None:
        self._connection = door

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> Entry:
        token = uuid4().hex  # made here: when an answer is lost, the same one enters again
        words = (token, str(limit), exact(lease), exact(_QUIET))
        reply = await self._connection.call("enter", self._keys(domain), *words)
        is_inside, wait = reply.answers
        return Entry(token if is_inside else None, float(wait))

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        await self._connection.call("stay", self._keys(domain), exact(lease), *tokens)

    async def release(self, domain: str, token: str) -> None:
        if self._connection.is_troubled:
            return
        with contextlib.suppress(RedisUnreachable):
            await self._connection.call("leave", self._keys(domain)[:1], token, is_patient=False)

    def _keys(self, domain: str) -> tuple[str, str]:
        return self._connection.key("crowd", domain), self._connection.key("born")


@dataclass(frozen=True, slots=True)
class RedisBackends:
    """All that workers share on one Redis."""

    paces: RedisRateLimitBackend
    breakers: RedisBreakerBackend
    concurrency: RedisConcurrencyBackend


@contextlib.asynccontextmanager
async def open_redis_backends(
    url: str,
    clock: Clock,
    patience: float | None = PATIENCE,
    *,
    prefix: str = PREFIX,
    on_trouble: Callable[[str], None] | None = None,
    is_hasty: Callable[[], bool] = lambda: False,
) -> AsyncIterator[RedisBackends]:
    """Open what workers share on a Redis, and hang up at the end.

    Args:
        url: Its address.
        clock: What pauses are waited by.
        patience: Seconds to wait for a Redis that does not answer; None is for ever.
        prefix: What every key begins with.
        on_trouble: Told once in words when it cannot be reached, and once when it is back.
        is_hasty: Says that this process is to end: a Redis that is away has a few seconds left.

    Raises:
        BadOption: when the address makes no sense.
        RedisUnreachable: when Redis cannot be asked, and what to do about it.
    """
    door = RedisConnection(
        url, clock, prefix=prefix, patience=patience, on_trouble=on_trouble, is_hasty=is_hasty
    )
    try:
        # From now on it remembers, however late the first request comes.
        await door.call("greet", [door.key("born")])
        yield RedisBackends(
            RedisRateLimitBackend(door),
            RedisBreakerBackend(door),
            RedisConcurrencyBackend(door),
        )
    finally:
        await door.close()
