"""Promises of every breaker backend beyond test_backends.py."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longline.limits.breaker import BreakerBackend, BreakerPolicy, BreakerState, Health, Phase
from longline.storage.store import open_store
from tests.limit_backends import MemoryBreakerBackend, SqliteBreakerBackend
from tests.virtual import EPOCH, VirtualClock

POLICY = BreakerPolicy(threshold=3)
DOMAIN = "a.test"


@pytest.fixture(params=["memory", "sqlite", "database"])
async def breakers(
    request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path
) -> AsyncIterator[BreakerBackend]:
    if request.param == "memory":
        yield MemoryBreakerBackend(clock)
        return
    if request.param == "database":
        with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
            states = store.state_backend("breaker", BreakerState, clock)
            yield BreakerBackend(states, freshness=0.5)
        return
    backend = SqliteBreakerBackend(tmp_path / "limits.sqlite", clock)
    yield backend
    await backend.close()


async def ban(breakers: BreakerBackend) -> None:
    await breakers.record(DOMAIN, POLICY, Health.BANNED, reason="a challenge form")


async def test_a_ban_is_kept_with_its_evidence(breakers: BreakerBackend) -> None:
    await ban(breakers)

    admission = await breakers.admit(DOMAIN, POLICY)

    assert (admission.is_allowed, admission.is_ban) == (False, True)
    assert admission.until == pytest.approx(EPOCH + 900, abs=1e-5)
    assert admission.reason == "a challenge form"


async def test_of_many_equal_bans_one_opens_the_breaker(
    breakers: BreakerBackend,
) -> None:
    reports = [breakers.record(DOMAIN, POLICY, Health.BANNED) for _ in range(20)]

    changes = await asyncio.gather(*reports)

    assert sum(change.transition is not None for change in changes) == 1
    assert (await breakers.state(DOMAIN)).trips == 1


async def test_the_history_is_kept(breakers: BreakerBackend, clock: VirtualClock) -> None:
    await ban(breakers)
    await clock.sleep(901)
    await breakers.admit(DOMAIN, POLICY)
    await breakers.record(DOMAIN, POLICY, Health.UP)
    await breakers.reset(DOMAIN)

    history = (await breakers.state(DOMAIN)).history

    assert [(one.old, one.new) for one in history] == [
        ("closed", "open"),
        ("half-open", "ramping"),
        ("ramping", "closed"),
    ]


async def test_one_of_fifty_requests_goes_first_while_ramping(
    breakers: BreakerBackend, clock: VirtualClock
) -> None:
    await ban(breakers)
    await clock.sleep(901)
    await breakers.admit(DOMAIN, POLICY)
    await breakers.record(DOMAIN, POLICY, Health.UP)

    admissions = await asyncio.gather(*(breakers.admit(DOMAIN, POLICY) for _ in range(50)))

    assert [admission.is_allowed for admission in admissions].count(True) == 1


async def test_successes_handed_over_keep_it_closed(breakers: BreakerBackend) -> None:
    policy = BreakerPolicy(threshold=100)
    for _ in range(30):
        await breakers.record(DOMAIN, policy, Health.DOWN, successes=((1.0, 3),))

    assert (await breakers.state(DOMAIN)).phase(EPOCH) is Phase.CLOSED
    assert (await breakers.state(DOMAIN)).rate(policy, EPOCH) == pytest.approx(0.25)


async def test_all_are_listed_by_domain(breakers: BreakerBackend) -> None:
    await ban(breakers)
    await breakers.record("b.test", POLICY, Health.DOWN)

    known = await breakers.all()

    assert sorted(known) == ["a.test", "b.test"]
    assert known["a.test"] == await breakers.state("a.test")


async def test_a_result_returns_the_transition_that_it_caused(breakers: BreakerBackend) -> None:
    opened = await breakers.record(DOMAIN, POLICY, Health.BANNED)
    again = await breakers.record(DOMAIN, POLICY, Health.BANNED)

    assert opened.transition is not None
    assert opened.transition.new == Phase.OPEN
    assert again.transition is None


async def test_a_row_of_an_older_longline_is_read(clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "limits.sqlite"
    backend = SqliteBreakerBackend(path, clock)
    await ban(backend)
    old = {
        "failures": 10,
        "trips": 1,
        "trips_in_a_row": 1,
        "opened_at": EPOCH,
        "open_until": EPOCH + 60,
        "probe_until": None,
    }
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE cells SET state = ?", (json.dumps(old),))
    connection.close()

    state = await backend.state(DOMAIN)

    assert state.phase(EPOCH) is Phase.OPEN
    assert (state.trips, state.reason, state.history) == (1, "", ())
    await backend.close()
