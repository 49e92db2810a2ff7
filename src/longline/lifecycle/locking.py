"""One `longline up` or `down` at a time in a home."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from longline.config.settings import unwritable
from longline.errors import LifecycleBusy

_FILE = "up.lock"
_PATIENCE = 120.0  # seconds; longer than either takes
_LOOK = 0.05


@contextlib.contextmanager
def alone_in(home: Path, *, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the lock of a home; the system lets go of it when a process dies.

    Raises:
        LifecycleBusy: another process has held it for longer than `patience`.
        HomeUnwritable: the file belongs to another user.
        StoreFull: there is no room for it.
    """
    try:
        handle = os.open(home / _FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise unwritable(home / _FILE, error) from error
    try:
        _lock(handle, home, patience)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, home: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() > deadline:
            raise LifecycleBusy(str(home), patience)
        time.sleep(_LOOK)
