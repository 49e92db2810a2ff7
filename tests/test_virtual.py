from __future__ import annotations

import asyncio
import time

import pytest

from tests.virtual import EPOCH, VirtualClock


async def test_an_hour_of_sleep_takes_no_time(clock: VirtualClock) -> None:
    started = time.monotonic()

    await clock.sleep(3600)

    assert clock.now() == pytest.approx(EPOCH + 3600)
    assert time.monotonic() - started < 3600 / 100


async def test_concurrent_sleeps_last_as_long_as_the_longest(clock: VirtualClock) -> None:
    await asyncio.gather(clock.sleep(10), clock.sleep(30), clock.sleep(20))

    assert clock.now() == pytest.approx(EPOCH + 30)


async def test_time_stops_while_a_thread_works(clock: VirtualClock) -> None:
    async with asyncio.timeout(1):
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.05)

    assert clock.now() == pytest.approx(EPOCH)
