"""How processes of a worker end: never after their parent, and by their own will when asked."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, in whatever way.

    Only Linux knows of this; elsewhere an orphan ends when Redis tells its Celery worker nothing
    any more, and what it holds expires.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)


class Drain:
    """A word that a Celery worker and its children share: begin nothing more.

    It is a byte of memory that was mapped before they were forked. A signal may come to a child
    before it has a handler, and kill it; a file may be left over; this is neither.
    """

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def begin(self) -> None:
        """Tell everybody; may be called in a signal handler."""
        self._byte[0] = 1

    @property
    def has_begun(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._byte[0] == 1
