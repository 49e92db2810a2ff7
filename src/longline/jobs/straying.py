"""What a source's code raises that would end more than its item.

Cancellations that nobody asked for (it awaited something that was cancelled elsewhere), and errors
that are no `Exception`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import traceback
from collections.abc import Iterator
from types import CodeType
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
    """Say whether an error is no bug of the code it came out of, but is to end what runs it.

    SystemExit and KeyboardInterrupt are bugs, unless the handler of a signal raised them: that ends
    the process, not an item.
    """
    if isinstance(error, GeneratorExit):
        # The code raised it itself, unless its coroutine is being closed: then no task is at it.
        return _current_task() is None
    if isinstance(error, SystemExit):
        return _is_of_a_signal(error)
    if isinstance(error, KeyboardInterrupt):
        # Python's own handler leaves no frame. Where a loop handles SIGINT, it is not installed.
        is_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return is_python or _is_of_a_signal(error)
    return isinstance(error, asyncio.CancelledError)


def _is_of_a_signal(error: BaseException) -> bool:
    """Say whether an error came out of the handler of a signal, which is called in any code."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a handler; None for one that has none, as those of the system."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs any more
        return None
