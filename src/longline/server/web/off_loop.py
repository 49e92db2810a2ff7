"""Work that pages start and wait for, such as a trial of a source, outside of their event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from longline.core.errors import ConflictError, Unexpected
from longline.core.threads import LoopThread

T = TypeVar("T")
_MOST = 3  # at the same time, of one server


class NotFree(ConflictError):
    """Other callers use all places for such work."""

    count: int
    message = "the server already works on {count} such requests"
    hint = "Try again in a minute."


class NotInTime(ConflictError):
    """The work took too long."""

    seconds: float
    message = "this took more than {seconds:g} seconds, and was stopped"
    hint = "The site may be slow, or allow few requests. Use the command line for it."


class OffLoop:
    """Runs coroutines in event loops of their own, a few at a time, each for a bounded time."""

    def __init__(self) -> None:
        self._running = 0

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, seconds: float) -> T:
        """Return the result of a coroutine that may compute for long.

        Raises:
            NotFree: too many run already.
            NotInTime: it did not end in time.
            LonglineError: the error of the work.
        """
        if self._running >= _MOST:
            raise NotFree(self._running)
        self._running += 1
        try:
            return await asyncio.to_thread(_run, work, seconds)
        finally:
            self._running -= 1


def off_loop_of(request: Request) -> OffLoop:
    """Return what all pages of an app share for such work."""
    state = request.app.state
    if not hasattr(state, "off_loop"):
        state.off_loop = OffLoop()
    found: OffLoop = state.off_loop
    return found


def _run(work: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
    async def bounded() -> T:
        try:
            async with asyncio.timeout(seconds) as limit:
                return await work()
        except TimeoutError as error:
            if not limit.expired():
                raise Unexpected(repr(error)) from error
            raise NotInTime(seconds) from None

    thread = LoopThread("longline-trial")
    try:
        return thread.run(bounded())
    finally:
        thread.close()
