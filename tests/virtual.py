"""Virtual time: an event loop whose clock jumps to the next timer when nobody has work to do.

Every `asyncio.sleep`, timeout and `loop.time()` in the program under test obeys it, sockets
included, as long as both ends live in this loop. Threads (the store's writer) are waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable
from typing import Any

from longline.core.clock import Clock
from longline.storage.database import Writer

EPOCH = 1_800_000_000.0
"""The virtual moment, in seconds since 1970, at which every test begins."""
_KERNEL_GRACE = 0.001  # loopback packets may be a moment on their way
_THREAD_GRACE = 0.25  # a thread that waits for the loop must not stop the clock for ever
_STORE_GRACE = 15.0  # those of the store never do, but a disk may stall


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that sleeps in no time."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._abroad: Counter[bool] = Counter()  # work in threads, by whether it is the store's
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._elapsed

    def jump(self, seconds: float) -> None:
        self._elapsed += seconds

    @property
    def thread_grace(self) -> float:
        """Seconds of real time to wait for threads; 0 when none works for this loop."""
        if self._abroad[True]:
            return _STORE_GRACE
        return _THREAD_GRACE if self._abroad[False] else 0.0

    def run_in_executor(  # type: ignore[override]  # the base class is generic over the arguments
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        is_store = isinstance(executor, Writer)
        self._abroad[is_store] += 1
        future.add_done_callback(lambda _: self._abroad.subtract([is_store]))
        return future

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  # the signature of Python 3.12 and later
    ) -> None:
        del timeout  # five minutes pass here in no time, while threads end in real time
        await super().shutdown_default_executor()


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for real when something real is under way, and jumps otherwise."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        grace = self._loop.thread_grace or self._kernel_grace()
        ready = super().select(0) or (super().select(grace) if grace else [])
        if not ready:
            self._loop.jump(timeout)
        return ready

    def _kernel_grace(self) -> float:
        # The loop has one socket for itself, on which nothing comes but from threads.
        return _KERNEL_GRACE if len(self.get_map()) > 1 else 0.0


class VirtualClock(Clock):
    """Wall time that follows the running virtual loop."""

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
