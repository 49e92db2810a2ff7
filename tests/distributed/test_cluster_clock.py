"""The clock of a worker follows the database's, also while it works for hours."""

from __future__ import annotations

import asyncio
import time

import pytest

from longline.core.clock import SharedClock
from longline.core.errors import StoreGone, UnknownJob
from longline.engine.runtime import in_background

HOUR = 3600.0


class Database:
    """Has a time that is off by some seconds, and takes its time to tell it."""

    def __init__(self, ahead: float = 0.0, *, seconds: float = 0.0) -> None:
        self.ahead = ahead
        self.seconds = seconds
        self.is_gone = False
        self.asked = 0

    async def now(self) -> float:
        self.asked += 1
        if self.is_gone:
            raise StoreGone("postgresql://db/longline", "nobody answers", 60.0)
        there = time.time() + self.ahead
        await asyncio.to_thread(time.sleep, self.seconds)
        return there


async def test_a_clock_shows_the_time_of_the_database() -> None:
    clock, database = SharedClock(), Database(HOUR)

    ahead = await clock.follow(database)

    assert clock.now() == pytest.approx(time.time() + HOUR, abs=1)
    assert ahead == pytest.approx(-HOUR, abs=1)


async def test_a_clock_is_set_while_something_is_done_for_long() -> None:
    clock, database = SharedClock(), Database()

    async with in_background(clock.keep_following(database)):
        database.ahead = 5.0  # it has drifted since
        await asyncio.sleep(2 * HOUR)

    assert clock.now() == pytest.approx(time.time() + 5, abs=1)
    assert database.asked > 100


async def test_the_clock_is_not_read_after_the_work() -> None:
    clock, database = SharedClock(), Database()

    async with in_background(clock.keep_following(database)):
        pass
    await asyncio.sleep(2 * HOUR)

    assert database.asked == 0


async def test_a_database_that_is_away_leaves_the_clock_as_it_was() -> None:
    clock, database = SharedClock(), Database(HOUR)
    await clock.follow(database)
    database.is_gone = True

    async with in_background(clock.keep_following(database)):
        await asyncio.sleep(HOUR)

    assert clock.now() == pytest.approx(time.time() + HOUR, abs=1)


async def test_a_late_answer_does_not_make_a_right_clock_wrong() -> None:
    clock, database = SharedClock(), Database(HOUR)
    await clock.follow(database)
    database.seconds = 0.5

    before = clock.now() - time.monotonic()
    await clock.follow(database)

    assert clock.now() - time.monotonic() == pytest.approx(before, abs=0.1)


async def test_a_late_answer_corrects_a_clock_that_is_surely_wrong() -> None:
    clock, database = SharedClock(), Database(HOUR, seconds=0.1)

    await clock.follow(database)

    assert clock.now() == pytest.approx(time.time() + HOUR, abs=1)


async def test_what_is_done_meanwhile_fails_as_it_would_by_itself() -> None:
    clock = SharedClock()

    with pytest.raises(UnknownJob):
        async with in_background(clock.keep_following(Database())):
            raise UnknownJob("job")
