"""A worker whose clock is an hour off is held up neither too long nor too short."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from longline.core.clock import SystemClock
from longline.limits.backends.redis import RedisBackends, open_redis_backends
from longline.limits.rate_limit import RateLimit
from tests.redis_connections import new_prefix
from tests.servers import RedisServer

DOMAIN = "a.test"
AN_HOUR = 3600.0

pytestmark = pytest.mark.real_time


class WrongClock(SystemClock):
    """The clock of a machine that is set wrong."""

    def __init__(self, off: float) -> None:
        self._off = off

    def now(self) -> float:
        return super().now() + self._off


@pytest.fixture(params=[-AN_HOUR, AN_HOUR])
def wrong(request: pytest.FixtureRequest) -> WrongClock:
    return WrongClock(request.param)


@pytest.fixture
def prefix() -> str:
    return new_prefix()


@pytest.fixture
async def wrong_worker(
    redis_server: RedisServer, wrong: WrongClock, prefix: str
) -> AsyncIterator[RedisBackends]:
    async with open_redis_backends(redis_server.url, wrong, prefix=prefix) as backends:
        yield backends


@pytest.fixture
async def right_worker(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisBackends]:
    async with open_redis_backends(redis_server.url, SystemClock(), prefix=prefix) as backends:
        yield backends


async def test_a_rest_that_a_site_asked_for_ends_by_its_own_clock(
    wrong_worker: RedisBackends, right_worker: RedisBackends, wrong: WrongClock
) -> None:
    await right_worker.rate_limits.penalise(DOMAIN, RateLimit(), 100)

    state = await wrong_worker.rate_limits.state(DOMAIN)
    slot = await wrong_worker.rate_limits.reserve(DOMAIN, RateLimit())

    assert state is not None
    assert state.barred_until == pytest.approx(wrong.now() + 100, abs=5)
    assert slot.wait == pytest.approx(100, abs=5)
