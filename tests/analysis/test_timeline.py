"""The past passes again: in the order it had, whoever waits for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from longline.analysis.rediscovery import Seat, Timeline


async def visit(seat: Seat, name: str, moments: list[float], log: list[tuple[float, str]]) -> None:
    for moment in moments:
        await seat.reach(moment)
        log.append((seat.now(), name))
    seat.leave()


async def test_moments_of_several_tasks_come_in_their_order() -> None:
    timeline = Timeline()
    log: list[tuple[float, str]] = []
    seats = [timeline.take_seat() for _ in range(3)]

    await asyncio.gather(
        visit(seats[0], "a", [5, 6, 20], log),
        visit(seats[1], "b", [1, 9, 10], log),
        visit(seats[2], "c", [7], log),
    )

    assert log == [(1, "b"), (5, "a"), (6, "a"), (7, "c"), (9, "b"), (10, "b"), (20, "a")]


async def test_time_stands_still_while_somebody_works() -> None:
    timeline = Timeline()
    working, waiting = timeline.take_seat(), timeline.take_seat()
    log: list[tuple[float, str]] = []
    other = asyncio.create_task(visit(waiting, "later", [5], log))
    await asyncio.sleep(10)  # a thread, say

    log.append((working.now(), "working"))
    working.leave()
    await other

    assert log == [(0, "working"), (5, "later")]


async def test_a_moment_that_has_passed_does_not_turn_time_back() -> None:
    timeline = Timeline()
    seat = timeline.take_seat()
    await seat.reach(9)

    await seat.reach(3)

    assert seat.now() == 9


async def test_a_sleep_is_as_long_as_it_says() -> None:
    timeline = Timeline()
    seat = timeline.take_seat()
    await seat.reach(9)

    await seat.sleep(2.5)

    assert seat.now() == 11.5


async def test_several_waits_of_one_task_do_not_lock_it_up() -> None:
    timeline = Timeline()
    seat, other = timeline.take_seat(), timeline.take_seat()
    log: list[tuple[float, str]] = []

    async def max_in_flight() -> None:
        await asyncio.gather(seat.reach(4), seat.reach(2), seat.reach(8))
        log.append((seat.now(), "all three"))
        seat.leave()

    async with asyncio.timeout(5):
        await asyncio.gather(max_in_flight(), visit(other, "other", [3, 9], log))

    assert log == [(3, "other"), (8, "all three"), (9, "other")]


async def test_a_wait_that_is_cancelled_holds_nobody_up() -> None:
    timeline = Timeline()
    impatient, busy = timeline.take_seat(), timeline.take_seat()
    log: list[tuple[float, str]] = []

    async def give_up() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await impatient.reach(5)
        log.append((impatient.now(), "gave up"))
        impatient.leave()

    async def work_first() -> None:
        await asyncio.sleep(0.3)  # a thread, say
        await visit(busy, "busy", [10], log)

    async with asyncio.timeout(5):
        await asyncio.gather(give_up(), work_first())

    assert log == [(0, "gave up"), (10, "busy")]


async def test_whoever_gave_up_waiting_works_and_time_stands_still() -> None:
    timeline = Timeline()
    seat, other = timeline.take_seat(), timeline.take_seat()
    log: list[tuple[float, str]] = []
    waiting = asyncio.create_task(seat.reach(5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    later = asyncio.create_task(visit(other, "other", [10], log))
    await asyncio.sleep(1)

    log.append((seat.now(), "working"))
    await visit(seat, "again", [7], log)
    await later

    assert log == [(0, "working"), (7, "again"), (10, "other")]


async def test_what_a_task_leaves_behind_holds_nobody_up() -> None:
    timeline = Timeline()
    seat, other = timeline.take_seat(), timeline.take_seat()
    log: list[tuple[float, str]] = []
    left = asyncio.create_task(seat.reach(5))
    await asyncio.sleep(0)
    seat.leave()

    async with asyncio.timeout(5):
        await visit(other, "other", [3, 10], log)
        await seat.reach(12)
        await asyncio.wait([left])

    assert log == [(3, "other"), (10, "other")]
    assert left.cancelled()
