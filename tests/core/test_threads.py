"""Daemon threads: for blocking calls that hang, and computing that takes long."""

from __future__ import annotations

import asyncio
import threading

import pytest

from longline.core.threads import LARGE_BYTES, off_loop, use_daemon_threads


async def test_a_small_body_is_read_where_it_is() -> None:
    assert await off_loop(10, threading.get_ident) == threading.get_ident()


async def test_a_large_body_is_read_in_a_thread_of_its_own() -> None:
    assert await off_loop(LARGE_BYTES, threading.get_ident) != threading.get_ident()


@pytest.mark.real_time
async def test_a_cancelled_task_does_not_wait_for_what_is_computed() -> None:
    over = threading.Event()
    computing = asyncio.create_task(off_loop(LARGE_BYTES, over.wait, 60))
    await asyncio.sleep(0)
    computing.cancel()
    ended, _ = await asyncio.wait([computing], timeout=30)
    over.set()

    assert ended == {computing}


def test_a_loop_does_not_wait_for_a_blocking_call_that_hangs() -> None:
    over = threading.Event()

    async def run() -> str:
        use_daemon_threads()
        hanging = asyncio.get_running_loop().run_in_executor(None, over.wait, 60)
        assert await asyncio.to_thread(lambda: "quick") == "quick"
        hanging.cancel()
        return "ended"

    assert asyncio.run(run()) == "ended"
    assert not over.is_set()
    over.set()
