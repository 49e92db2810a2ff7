"""What becomes of a command whose output nobody reads any more, such as `| head -1`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Print in here what a command can do without: a closed standard output does not end it."""
    try:
        yield
    except OSError:
        give_up_stdout()


def give_up_stdout() -> None:
    """Let what is still to be written go nowhere, or Python complains of it when it ends."""
    with suppress(OSError):  # it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
