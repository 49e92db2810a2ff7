"""Keepers on Redis, so that all workers of a cluster share limits, breakers and room.

Every key is described, with its lifetime, in docs/redis-keys.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from longline.clock import Clock
from longline.errors import RedisUnreachable
from longline.resilience.concurrency import LEASE, RENEWAL, Entry
from longline.resilience.keepers.base import ConcurrencyKeeper
from longline.resilience.keepers.redis_breaker import RedisBreakerKeeper
from longline.resilience.keepers.redis_door import PATIENCE, PREFIX, RedisDoor
from longline.resilience.keepers.redis_pace import RedisPaceKeeper
from longline.resilience.keepers.redis_scripts import exact

_QUIET = 1.2 * RENEWAL  # seconds after which all who are inside have been heard of again


class RedisConcurrencyKeeper(ConcurrencyKeeper):
    """Who is inside, over all workers on one Redis."""

    def __init__(self, door: RedisDoor) -> None:
        self._door = door

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> Entry:
        token = uuid4().hex  # made here: when an answer is lost, the same one enters again
        words = (token, str(limit), exact(lease), exact(_QUIET))
        reply = await self._door.call("enter", self._keys(domain), *words)
        is_inside, wait = reply.answers
        return Entry(token if is_inside else None, float(wait))

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        await self._door.call("stay", self._keys(domain), exact(lease), *tokens)

    async def release(self, domain: str, token: str) -> None:
        if self._door.is_troubled:
            return
        with contextlib.suppress(RedisUnreachable):
            await self._door.call("leave", self._keys(domain)[:1], token, is_patient=False)

    def _keys(self, domain: str) -> tuple[str, str]:
        return self._door.key("crowd", domain), self._door.key("born")


@dataclass(frozen=True, slots=True)
class RedisKeepers:
    """All that workers share on one Redis."""

    paces: RedisPaceKeeper
    breakers: RedisBreakerKeeper
    concurrency: RedisConcurrencyKeeper


@contextlib.asynccontextmanager
async def open_redis_keepers(
    url: str,
    clock: Clock,
    patience: float | None = PATIENCE,
    *,
    prefix: str = PREFIX,
    on_trouble: Callable[[str], None] | None = None,
    is_hasty: Callable[[], bool] = lambda: False,
) -> AsyncIterator[RedisKeepers]:
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
    door = RedisDoor(
        url, clock, prefix=prefix, patience=patience, on_trouble=on_trouble, is_hasty=is_hasty
    )
    try:
        # From now on it remembers, however late the first request comes.
        await door.call("greet", [door.key("born")])
        yield RedisKeepers(
            RedisPaceKeeper(door),
            RedisBreakerKeeper(door),
            RedisConcurrencyKeeper(door),
        )
    finally:
        await door.close()
