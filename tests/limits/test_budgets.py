from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize

from longline.config.job_spec import BudgetSpec
from longline.core.clock import Clock
from longline.core.errors import BudgetSpent
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.limits.budget import Budgets, BudgetUsage, exceeded_limit
from tests.limit_backends import SqliteStates
from tests.virtual import VirtualClock

URL = "https://a.test/1"


def budgets(
    clock: Clock,
    total: BudgetSpec,
    per_domain: BudgetSpec | None = None,
    *,
    states: StateBackend[BudgetUsage],
) -> Budgets:
    return Budgets("job", states, clock, total=total, per_domain=per_domain or BudgetSpec())


@given(limit=st.integers(1, 100), spent=st.integers(0, 200))
def test_a_request_may_go_until_the_limit_is_reached(limit: int, spent: int) -> None:
    found = exceeded_limit(BudgetSpec(requests=limit), BudgetUsage(requests=spent), 0.0)

    assert (found is None) == (spent < limit)


async def test_no_request_goes_beyond_the_budget(clock: VirtualClock) -> None:
    budget = budgets(clock, BudgetSpec(requests=2), states=MemoryStateBackend(clock))
    await budget.spend("a.test", URL)
    await budget.spend("b.test", URL)

    with pytest.raises(BudgetSpent) as spent:
        await budget.spend("a.test", URL)

    assert "2 requests" in spent.value.limit


async def test_each_domain_has_its_own(clock: VirtualClock) -> None:
    budget = budgets(clock, BudgetSpec(), BudgetSpec(requests=1), states=MemoryStateBackend(clock))
    await budget.spend("a.test", URL)
    await budget.spend("b.test", URL)

    with pytest.raises(BudgetSpent) as spent:
        await budget.spend("a.test", URL)

    assert "1 request" in spent.value.limit
    assert "a.test" in spent.value.limit


async def test_an_exhausted_budget_refuses_without_the_backend(clock: VirtualClock) -> None:
    budget = budgets(clock, BudgetSpec(requests=1), states=MemoryStateBackend(clock))
    budget.check("a.test", URL)
    await budget.spend("a.test", URL)

    with pytest.raises(BudgetSpent):
        budget.check("a.test", URL)


async def test_bytes_count_when_they_have_come(clock: VirtualClock) -> None:
    budget = budgets(clock, BudgetSpec(bytes=ByteSize(100)), states=MemoryStateBackend(clock))
    await budget.spend("a.test", URL)
    assert budget.receive("a.test", 150)
    await budget.report("a.test")

    with pytest.raises(BudgetSpent) as spent:
        budget.check("a.test", URL)

    assert "100 bytes" in spent.value.limit


async def test_time_is_that_of_the_run(clock: VirtualClock) -> None:
    budget = budgets(clock, BudgetSpec(seconds=60), states=MemoryStateBackend(clock))
    await budget.spend("a.test", URL)
    await clock.sleep(60)

    with pytest.raises(BudgetSpent) as spent:
        budget.check("a.test", URL)

    assert "60 s" in spent.value.limit


async def test_processes_that_share_a_file_share_the_budget(
    clock: VirtualClock, tmp_path: Path
) -> None:
    files = [SqliteStates(tmp_path / "pace.sqlite", "budget", BudgetUsage, clock) for _ in range(3)]
    several = [budgets(clock, BudgetSpec(requests=10), states=file) for file in files]

    async def spend(budget: Budgets) -> int:
        count = 0
        try:
            while True:
                await budget.spend("a.test", URL)
                count += 1
        except BudgetSpent:
            return count

    counts = await asyncio.gather(*(spend(one) for one in several))
    for file in files:
        await file.close()

    assert sum(counts) == 10


async def test_the_next_job_finds_nothing_spent(clock: VirtualClock) -> None:
    states = MemoryStateBackend[BudgetUsage](clock)
    budget = budgets(clock, BudgetSpec(requests=1), BudgetSpec(requests=1), states=states)
    await budget.spend("a.test", URL)

    await budget.forget()

    assert await states.all() == {}
