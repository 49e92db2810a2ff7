"""What a source's code raises that would end more than its item.

Cancellations that nobody asked for (it awaited something that was cancelled elsewhere), and errors
that are no `Exception`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from longline.errors import StrayCancellation


@contextlib.contextmanager
def no_stray_cancellation() -> Iterator[None]:
    """Make an error of a cancellation that this task was not asked for; others go through.

    Let through, it would end the task that works on an item, and nobody would hear of it.

    Raises:
        StrayCancellation: the code inside let one through.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise StrayCancellation from error


def is_of_the_process(error: BaseException) -> bool:
    """Say whether an error is no bug of the code it came out of, but is to end what runs it."""
    if isinstance(error, GeneratorExit):
        # The code raised it itself, unless its coroutine is being closed: then no task is at it.
        return _current_task() is None
    return isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, SystemExit))


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs any more
        return None
