"""What a source raises that is no `Exception` is a bug of its own: neither silence nor the end."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings
from longline.core.errors import FailureKind
from longline.core.model import JobState
from longline.engine.extractor import StrayCancellation, is_of_the_process, no_stray_cancellation
from longline.orchestrator import Orchestrator
from tests.virtual import VirtualClock

ODD = """
import asyncio

from longline import Item, Source, layer

class Odd(Source):
    name = "odd"

    async def discover(self, visit):
        for number in range({found}):
            yield Item(str(number), "https://odd.test")
        {end}

    @layer()
    async def page(self, visit):
        if visit.item.key == "1":
            raise {error}
        return {{"n": visit.item.key}}
"""


@pytest.mark.parametrize(
    "error", ["asyncio.CancelledError", "GeneratorExit", "BaseException", "SystemExit(3)"]
)
async def test_an_item_whose_code_raises_what_would_end_its_task_fails_as_a_bug(
    tmp_path: Path, clock: VirtualClock, error: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.format(found=3, end="pass", error=error))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        report = await longline.execute(str(path))
        items = await longline.store.queue.finished(report.job)

    assert report.state is JobState.PARTIAL
    assert [row["kind"] for row in items] == [None, FailureKind.BUG, None]


@pytest.mark.real_time
async def test_a_keyboard_interrupt_of_a_layer_is_a_bug_of_its_item(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.format(found=3, end="pass", error="KeyboardInterrupt"))

    async with Orchestrator(settings=Settings(home=tmp_path)) as longline:
        with longline.handling_signals():
            report = await longline.execute(str(path))
        items = await longline.store.queue.finished(report.job)

    assert report.state is JobState.PARTIAL
    assert [row["kind"] for row in items] == [None, FailureKind.BUG, None]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("asyncio.CancelledError", "CancelledError"),
        ("GeneratorExit", "GeneratorExit()"),
        ("SystemExit(3)", "SystemExit(3)"),
    ],
)
async def test_discovery_that_raises_what_would_end_its_task_fails_the_job(
    tmp_path: Path, clock: VirtualClock, error: str, told: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.format(found=0, end=f"raise {error}", error=error))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        report = await longline.execute(str(path))

    assert report.state is JobState.FAILED
    assert told in str(report.reason)


async def test_a_cancellation_that_was_asked_for_goes_through() -> None:
    async def wait() -> None:
        with no_stray_cancellation():
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_that_was_not_is_an_error() -> None:
    with pytest.raises(StrayCancellation), no_stray_cancellation():
        raise asyncio.CancelledError


def _exit(*_told: object) -> None:
    sys.exit(1)


class _Exiting:
    def __call__(self, *_told: object) -> None:
        sys.exit(1)

    def leave(self, *_told: object) -> None:
        sys.exit(1)


@pytest.mark.parametrize(
    "handler", [_exit, functools.partial(_exit, "word"), _Exiting(), _Exiting().leave]
)
def test_an_exit_that_a_signal_asks_for_is_of_the_process(handler: Callable[..., Any]) -> None:
    before = signal.signal(signal.SIGUSR2, handler)
    try:
        with pytest.raises(SystemExit) as asked:
            os.kill(os.getpid(), signal.SIGUSR2)
        with pytest.raises(SystemExit) as own:
            sys.exit(1)

        assert is_of_the_process(asked.value)
        assert not is_of_the_process(own.value)
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_an_exit_that_a_signal_asks_a_child_for_is_of_the_process(
    number: signal.Signals,
) -> None:
    code = f"""
import os, signal
from billiard.common import reset_signals
from longline.engine.extractor import is_of_the_process
signal.signal({int(number)}, signal.SIG_DFL)  # it may be ignored where these tests run
reset_signals()
try:
    os.kill(os.getpid(), {int(number)})
except SystemExit as error:
    print(is_of_the_process(error))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout == "True\n"
