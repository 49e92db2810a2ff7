"""Breakers on Redis, by its clock; what is told of them is by our own."""

from __future__ import annotations

from dataclasses import replace

from longline.resilience.breaker import Admission, BreakerPolicy, BreakerState, Change, Health
from longline.resilience.keepers.cells import CellBreakerKeeper
from longline.resilience.keepers.redis_cells import RedisCells
from longline.resilience.keepers.redis_door import RedisDoor
from longline.resilience.window import Successes

_FRESHNESS = 0.5  # seconds; a breaker that opens elsewhere is heard of this soon
_KEPT = 24 * 3600.0  # seconds after its rest: how often it opened, and why


class RedisBreakerKeeper(CellBreakerKeeper):
    """Breakers that all workers on one Redis share.

    Who is told a state compares its moments with his own clock. That may be an hour off, so they
    are told as that clock will show them.
    """

    def __init__(self, door: RedisDoor, *, is_patient: bool = True) -> None:
        cells = RedisCells(door, "breaker", BreakerState, _lifetime, is_patient=is_patient)
        super().__init__(cells, freshness=_FRESHNESS)
        self._door = door
        self._hasty = RedisBreakerKeeper(door, is_patient=False) if is_patient else self

    async def admit(self, domain: str, policy: BreakerPolicy) -> Admission:
        admission = await super().admit(domain, policy)
        if admission.is_allowed:
            return admission
        return replace(admission, until=admission.until + self._door.skew)

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
        skew = self._door.skew
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
