from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from longline.limits.limiter import PriorityLock, RateLimiter
from longline.limits.rate_limit import RateLimit
from tests.virtual import VirtualClock, VirtualLoop


class Waiters:
    """Tasks that wait for a lock and record the order in which they hold it."""

    def __init__(self, line: PriorityLock) -> None:
        self.line = line
        self.served: list[int] = []
        self.inside = 0

    async def visit(self, number: int, priority: int, seconds: float = 1.0) -> None:
        async with self.line.acquire(priority):
            self.inside += 1
            assert self.inside == 1
            try:
                await asyncio.sleep(seconds)
                self.served.append(number)
            finally:
                self.inside -= 1


async def serve(priorities: list[int]) -> list[int]:
    """Return the order in which tasks get the lock that all arrive while the first holds it."""
    waiters = Waiters(PriorityLock())
    async with asyncio.TaskGroup() as group:
        for number, priority in enumerate(priorities):
            group.create_task(waiters.visit(number, priority))
            await asyncio.sleep(0.001)
    return waiters.served


async def test_the_most_urgent_goes_first_and_equals_in_the_order_they_came() -> None:
    assert await serve([0, 0, 5, 0, -1, 5, 9]) == [0, 6, 2, 5, 1, 3, 4]


async def test_no_waiter_starves() -> None:
    waiters = Waiters(PriorityLock())

    async with asyncio.TaskGroup() as group:
        group.create_task(waiters.visit(0, 0))
        group.create_task(waiters.visit(1, 0))
        group.create_task(waiters.visit(2, 1))
        for number in range(3, 1500):
            await asyncio.sleep(1)  # one leaves, one arrives: an urgent one always waits
            group.create_task(waiters.visit(number, 1))

    assert 900 < waiters.served.index(1) < 1100


def test_after_a_cancellation_all_others_have_their_turn() -> None:
    @given(
        st.lists(
            st.tuples(st.integers(-2, 2), st.floats(0, 3), st.none() | st.floats(0, 6)), max_size=12
        )
    )
    def check(plans: list[tuple[int, float, float | None]]) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(leave_early(plans))

    check()


async def leave_early(plans: list[tuple[int, float, float | None]]) -> None:
    """Start tasks with a priority at given times; cancel some at another."""
    waiters = Waiters(PriorityLock())
    loop = asyncio.get_running_loop()

    async def come(number: int, priority: int, arrival: float) -> None:
        await asyncio.sleep(arrival)
        await waiters.visit(number, priority, seconds=0.5)

    tasks = []
    for number, (priority, arrival, cancelled) in enumerate(plans):
        task = asyncio.create_task(come(number, priority, arrival))
        tasks.append(task)
        if cancelled is not None:
            loop.call_later(cancelled, task.cancel)
    if tasks:
        await asyncio.wait(tasks)

    assert waiters.served == sorted(set(waiters.served), key=waiters.served.index)
    assert set(waiters.served) == {
        number for number, task in enumerate(tasks) if not task.cancelled()
    }
    assert len(waiters.line) == 0
    await asyncio.wait_for(waiters.visit(99, 0), 1.1)  # and the lock is free


async def test_a_turn_that_comes_with_a_cancellation_is_handed_on() -> None:
    waiters = Waiters(PriorityLock())
    async with asyncio.TaskGroup() as group:
        group.create_task(waiters.visit(0, 0))
        second = group.create_task(waiters.visit(1, 0))
        group.create_task(waiters.visit(2, 0))
        await asyncio.sleep(0.5)
        # In the same step of the loop: first the turn is handed to the second, then it goes away.
        asyncio.get_running_loop().call_at(1.0, second.cancel)

    assert waiters.served[0] == 0
    assert waiters.served[-1] == 2


async def test_in_a_domain_urgent_requests_overtake_those_that_wait(clock: VirtualClock) -> None:
    limiter = RateLimiter(rate=2.0, capacity=1, clock=clock)
    order: list[int] = []

    async def go(number: int, priority: int) -> None:
        await limiter.acquire("a.test", priority=priority)
        order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(go(number, 10 if number == 5 else 0))
            await clock.sleep(0.01)

    assert order == [0, 1, 5, 2, 3, 4]  # the second holds its slot already


async def test_a_slow_domain_holds_up_no_other(clock: VirtualClock) -> None:
    limiter = RateLimiter(rate=None, clock=clock, limits={"slow.test": RateLimit(0.1, 1)})
    slow = [asyncio.create_task(limiter.acquire("slow.test", priority=9)) for _ in range(5)]
    await clock.sleep(1)
    started = clock.now()

    for _ in range(100):
        await limiter.acquire("fast.test")

    assert clock.now() == started
    for task in slow:
        task.cancel()
    await asyncio.wait(slow)
