"""A circuit breaker on each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longline.limits.breaker import BreakerState, CircuitBreaker
from longline.storage.store import open_store
from tests.limit_backends import SqliteStates
from tests.virtual import VirtualClock


@pytest.fixture(params=["memory", "sqlite", "database"])
async def breaker(
    request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path
) -> AsyncIterator[CircuitBreaker]:
    if request.param == "memory":
        yield CircuitBreaker(clock=clock)
    elif request.param == "sqlite":
        states = SqliteStates(tmp_path / "limits.sqlite", "breaker", BreakerState, clock)
        yield CircuitBreaker(clock=clock, backend=states, freshness=0.5)
        await states.close()
    else:
        with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
            rows = store.state_backend("breaker", BreakerState, clock)
            yield CircuitBreaker(clock=clock, backend=rows, freshness=0.5)
