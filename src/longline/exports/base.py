"""Export: one format; and how a file comes to be there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from longline.errors import DestinationUnwritable

Row = dict[str, Any]
Rows = Callable[[], Iterable[Row]]
"""Reads the records from the start each time it is called; a format may need two passes."""


class Export(Protocol):
    """Writes records in one format, in bounded memory."""

    def __call__(self, rows: Rows, target: BinaryIO) -> int:
        """Write all rows; return how many."""


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` and rename it into place when all of it is on disk.

    Raises:
        DestinationUnwritable: it cannot be written; what was at `path` before is untouched.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        beside.replace(path)
    except OSError as error:
        raise DestinationUnwritable(str(path), error.strerror or str(error)) from error
    finally:
        beside.unlink(missing_ok=True)
