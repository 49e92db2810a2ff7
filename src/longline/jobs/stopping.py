"""Being told to stop: the first signal stops a run well, a second one at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TOGETHER = 0.5  # seconds; `timeout` signals a program and its group: that is one wish, not two


@contextlib.contextmanager
def handling_signals(
    interrupt: Callable[[], None], on_stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Call `interrupt` at the first SIGINT or SIGTERM, and cancel this task at a later second one.

    Args:
        interrupt: stops what runs, well.
        on_stop: called at the first one, to tell a person what happens now.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    first = float("-inf")

    def stop() -> None:
        nonlocal first
        if first <= loop.time() < first + _TOGETHER:
            return
        if first > float("-inf"):
            if task is not None:
                task.cancel()
            return
        first = loop.time()
        interrupt()
        if on_stop:
            on_stop()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
