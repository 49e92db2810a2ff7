"""Cancellations that nobody asked for: a source awaited something that was cancelled elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

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
