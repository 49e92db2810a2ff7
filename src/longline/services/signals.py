"""Signals on the way up and down: they end what goes on in order, and not in the middle of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_ALL = (signal.SIGINT, *_ENDING)
_KILLED_BY = 128  # a shell adds the number of the signal to it


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Turn signals that would end this process on the spot into SystemExit, as Ctrl-C is one.

    Those that somebody handles already are left to him.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the first thread may handle signals
        return
    unhandled = [one for one in _ENDING if signal.getsignal(one) is signal.SIG_DFL]
    for one in unhandled:
        signal.signal(one, _exit)
    try:
        yield
    finally:
        for one in unhandled:
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals wait while something is stopped, which takes a bounded time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_KILLED_BY + number)
