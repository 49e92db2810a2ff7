"""Buckets on Redis: the policy of `pace.py` as scripts, one call for each step.

What Redis has forgotten (a flush, a restart, a failover to an older copy) it knows that it has
forgotten: a bucket that it does not know was empty when its present life began, and slots that it
handed out before are void.

Moments of a slot are by the clock of Redis, and so is all that is decided by them. A state that is
only looked at comes by our own clock, as far as the two differ.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace

from longline.errors import RedisUnreachable
from longline.resilience.keepers.base import PaceKeeper
from longline.resilience.keepers.redis_door import RedisDoor
from longline.resilience.keepers.redis_scripts import exact
from longline.resilience.pace import Pace, PaceState, Slot

_ROOM = "pace"
_TRIES = 3  # where every answer is late, the last one has to do
_SWIFT = 0.05  # seconds that an answer may take without being called late


@dataclass(frozen=True, slots=True)
class RedisSlot(Slot):
    """A slot that counts only during the `life` of Redis in which it was reserved."""

    life: str = ""


class RedisPaceKeeper(PaceKeeper):
    """Buckets that all workers on one Redis share, by its clock."""

    def __init__(self, door: RedisDoor) -> None:
        self._door = door
        self._rests: dict[str, float] = {}

    async def reserve(self, domain: str, pace: Pace) -> Slot:
        for _ in range(_TRIES):
            slot, took = await self._reserve(domain, pace)
            # An answer that comes so late would let the requests behind it catch up with this one.
            if took - slot.wait <= max(slot.hold, _SWIFT):
                break
        return slot

    async def check(self, domain: str, pace: Pace, slot: Slot) -> float | None:
        life = slot.life if isinstance(slot, RedisSlot) else ""
        words = (*_words(pace), exact(slot.at), exact(slot.hold), life)
        for _ in range(_TRIES):
            reply = await self._door.call("check", self._keys(domain), *words)
            if reply.took <= max(slot.hold, _SWIFT):  # later, it may be void by now
                break
        return float(reply.answers[0]) if reply.answers else None

    async def penalise(self, domain: str, pace: Pace, seconds: float) -> PaceState:
        self._remember(domain, seconds)
        words = (*_words(pace), exact(seconds))
        reply = await self._door.call("penalise", self._keys(domain), *words)
        return self._here(_state(reply.answers[0]))

    async def observe_lateness(self, domain: str, pace: Pace, seconds: float) -> None:
        words = (*_words(pace), exact(seconds))
        await self._door.call("lateness", self._keys(domain), *words)

    async def give_back(self, domain: str, slot: Slot) -> None:
        # Not worth waiting for, least of all by one who is being cancelled: a slot is lost.
        if not isinstance(slot, RedisSlot) or self._door.is_troubled:
            return
        words = (_written(slot.before), _written(slot.after), slot.life)
        with contextlib.suppress(RedisUnreachable):
            await self._door.call("give_back", self._keys(domain), *words, is_patient=False)

    async def state(self, domain: str) -> PaceState | None:
        answers = (await self._door.call("state", self._keys(domain))).answers
        return self._here(_state(answers[0])) if answers else None

    async def _reserve(self, domain: str, pace: Pace) -> tuple[RedisSlot, float]:
        """Return the next slot, and how many seconds the answer was on its way."""
        rest = exact(self._rest(domain))
        reply = await self._door.call("reserve", self._keys(domain), *_words(pace), rest)
        at, wait, hold = (float(one) for one in reply.answers[:3])
        before, after, life = reply.answers[3:]
        slot = RedisSlot(at, wait, hold, _state(before), _state(after), life)
        self._remember(domain, slot.after.barred_until - reply.now)
        return slot, reply.took

    def _here(self, state: PaceState) -> PaceState:
        """Return a state by our own clock, which may be far from Redis's."""
        skew = self._door.skew
        barred_until = state.barred_until + skew if state.barred_until else 0.0
        return replace(state, full_at=state.full_at + skew, barred_until=barred_until)

    def _keys(self, domain: str) -> tuple[str, str]:
        return self._door.key(_ROOM, domain), self._door.key("born")

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


def _words(pace: Pace) -> tuple[str, str, str]:
    return exact(pace.rate), str(pace.capacity), exact(pace.margin)


def _state(text: str) -> PaceState:
    return PaceState(*(float(one) for one in text.split(" ")))


def _written(state: PaceState) -> str:
    figures = (state.full_at, state.ahead, state.margin, state.barred_until)
    return " ".join(exact(one) for one in figures)
