"""The past passes again: in the order it had, whoever waits for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from longline.analysis.rediscovery import ReplayClock, Timeline


async def visit(
    clock: ReplayClock, name: str, times: list[float], log: list[tuple[float, str]]
) -> None:
    for moment in times:
        await clock.wait_until(moment)
        log.append((clock.now(), name))
    clock.end()


async def test_moments_of_several_tasks_come_in_their_order() -> None:
    timeline = Timeline()
    log: list[tuple[float, str]] = []
    clocks = [timeline.new_clock() for _ in range(3)]

    await asyncio.gather(
        visit(clocks[0], "a", [5, 6, 20], log),
        visit(clocks[1], "b", [1, 9, 10], log),
        visit(clocks[2], "c", [7], log),
    )

    assert log == [(1, "b"), (5, "a"), (6, "a"), (7, "c"), (9, "b"), (10, "b"), (20, "a")]


async def test_time_stands_still_while_somebody_works() -> None:
    timeline = Timeline()
    working, waiting = timeline.new_clock(), timeline.new_clock()
    log: list[tuple[float, str]] = []
    other = asyncio.create_task(visit(waiting, "later", [5], log))
    await asyncio.sleep(10)  # a thread, say

    log.append((working.now(), "working"))
    working.end()
    await other

    assert log == [(0, "working"), (5, "later")]


async def test_a_moment_that_has_passed_does_not_turn_time_back() -> None:
    timeline = Timeline()
    clock = timeline.new_clock()
    await clock.wait_until(9)

    await clock.wait_until(3)

    assert clock.now() == 9


async def test_a_sleep_is_as_long_as_it_says() -> None:
    timeline = Timeline()
    clock = timeline.new_clock()
    await clock.wait_until(9)

    await clock.sleep(2.5)

    assert clock.now() == 11.5


async def test_several_waits_of_one_task_do_not_lock_it_up() -> None:
    timeline = Timeline()
    clock, other = timeline.new_clock(), timeline.new_clock()
    log: list[tuple[float, str]] = []

    async def max_in_flight() -> None:
        await asyncio.gather(clock.wait_until(4), clock.wait_until(2), clock.wait_until(8))
        log.append((clock.now(), "all three"))
        clock.end()

    async with asyncio.timeout(5):
        await asyncio.gather(max_in_flight(), visit(other, "other", [3, 9], log))

    assert log == [(3, "other"), (8, "all three"), (9, "other")]


async def test_a_wait_that_is_cancelled_holds_nobody_up() -> None:
    timeline = Timeline()
    impatient, busy = timeline.new_clock(), timeline.new_clock()
    log: list[tuple[float, str]] = []

    async def give_up() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await impatient.wait_until(5)
        log.append((impatient.now(), "gave up"))
        impatient.end()

    async def work_first() -> None:
        await asyncio.sleep(0.3)  # a thread, say
        await visit(busy, "busy", [10], log)

    async with asyncio.timeout(5):
        await asyncio.gather(give_up(), work_first())

    assert log == [(0, "gave up"), (10, "busy")]


async def test_whoever_gave_up_waiting_works_and_time_stands_still() -> None:
    timeline = Timeline()
    clock, other = timeline.new_clock(), timeline.new_clock()
    log: list[tuple[float, str]] = []
    waiting = asyncio.create_task(clock.wait_until(5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    later = asyncio.create_task(visit(other, "other", [10], log))
    await asyncio.sleep(1)

    log.append((clock.now(), "working"))
    await visit(clock, "again", [7], log)
    await later

    assert log == [(0, "working"), (7, "again"), (10, "other")]


async def test_what_a_task_leaves_behind_holds_nobody_up() -> None:
    timeline = Timeline()
    clock, other = timeline.new_clock(), timeline.new_clock()
    log: list[tuple[float, str]] = []
    left = asyncio.create_task(clock.wait_until(5))
    await asyncio.sleep(0)
    clock.end()

    async with asyncio.timeout(5):
        await visit(other, "other", [3, 10], log)
        await clock.wait_until(12)
        await asyncio.wait([left])

    assert log == [(3, "other"), (10, "other")]
    assert left.cancelled()
