"""Logs of what was started: one file each in the home, for one user to read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from longline.private import make_private_folder, private_opener

_SHOWN = 5  # lines
_TAIL = 4_096  # bytes that surely hold them


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending; nobody else can read it."""
    make_private_folder(path.parent)
    return open(path, "ab", opener=private_opener)  # Path has no opener


def last_lines(path: str) -> tuple[str, ...]:
    """Return the end of a log; nothing when it cannot be read."""
    try:
        with Path(path).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line.strip() for line in text.splitlines() if line.strip())[-_SHOWN:]
