"""An object with coroutines, for code without an event loop: each call returns when it is done."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Blocking(Generic[T]):
    """Holds an async object open on a loop in a thread of its own.

    Its coroutine methods are called here as if they were functions; everything else is passed on.
    """

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        self._context = context
        self._target: Any = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="longline-loop", daemon=True
        )
        self._thread.start()
        try:
            self._target = self._call(context.__aenter__())
        except BaseException:
            self._end()
            raise

    def __getattr__(self, name: str) -> Any:
        # The object itself may lead those without a loop here.
        found = object.__getattribute__(self._target, name)
        if not inspect.iscoroutinefunction(found):
            return found

        @functools.wraps(found)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(found(*args, **kwargs))

        return call

    def close(self) -> None:
        """Close the object and end the loop."""
        try:
            self._call(self._context.__aexit__(None, None, None))
        finally:
            self._end()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            self._stop_well(future)
            raise

    def _stop_well(self, future: Future[Any]) -> None:
        """Have what runs come to a good end, of which the loop hears from nobody else."""
        interrupt = getattr(self._target, "interrupt", future.cancel)
        self._loop.call_soon_threadsafe(interrupt)
        try:
            wait([future])
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(_wind_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def is_in_loop() -> bool:
    """Say whether an event loop runs in this thread, so that somebody can await."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _wind_up() -> None:
    """Let what was cancelled come to its end before the loop is closed."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
