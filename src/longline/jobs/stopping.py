"""Being told to stop: the first signal stops a run well, a second one at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TOGETHER = 0.5  # seconds; `timeout` signals a program and its group: that is one wish, not two


@contextlib.contextmanager
def handling_signals(
    interrupt: Callable[[], None], on_stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Call `interrupt` at the first SIGINT, SIGTERM or SIGHUP; cancel this task at a later second.

    SIGHUP says that the terminal is gone. Under `nohup` it is ignored, and stays so.

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

    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [one for one in _SIGNALS if not (one is signal.SIGHUP and is_ignored)]
    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
