"""Deadlines that stand still while a request waits for the site's pace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Patience:
    """The deadlines of one page.

    Being polite takes time that says nothing about the site: while one of the page's requests
    stands in line, no deadline comes closer.
    """

    def __init__(self) -> None:
        self._deadlines: list[asyncio.Timeout] = []
        self._left: dict[asyncio.Timeout, float] = {}
        self._waiting = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the clock for the time of this block."""
        self._waiting += 1
        if self._waiting == 1:
            self._stop()
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._go_on()

    @contextmanager
    def counting(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Let this deadline, which has been entered, be one of those that stand still."""
        self._deadlines.append(deadline)
        if self._waiting:
            self._stop()
        try:
            yield
        finally:
            self._deadlines.remove(deadline)
            self._left.pop(deadline, None)

    def _stop(self) -> None:
        now = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            when = deadline.when()
            if when is None or deadline.expired():
                continue
            self._left[deadline] = when - now
            deadline.reschedule(None)

    def _go_on(self) -> None:
        now = asyncio.get_running_loop().time()
        for deadline, left in self._left.items():
            deadline.reschedule(now + left)
        self._left.clear()
