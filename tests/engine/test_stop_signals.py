"""Signals that stop a run, and one that does not under nohup."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from longline.engine.runtime import handling_signals


async def heard(number: signal.Signals) -> list[str]:
    """Return what is called when this process gets a signal."""
    calls: list[str] = []
    with handling_signals(lambda: calls.append("stop")):
        os.kill(os.getpid(), number)
        # The loop reads signals from a pipe: two rounds after the next are plenty.
        for _ in range(5):
            await asyncio.sleep(0)
    return calls


@pytest.mark.real_time
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stops_the_run(number: signal.Signals) -> None:
    assert await heard(number) == ["stop"]


@pytest.mark.real_time
async def test_under_nohup_a_hangup_changes_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert await heard(signal.SIGHUP) == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
