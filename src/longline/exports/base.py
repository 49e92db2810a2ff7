"""Export: one format; and how a file comes to be there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from longline.errors import DestinationFull, DestinationUnwritable
from longline.exports.beside import beside

Row = dict[str, Any]
Rows = Callable[[], Iterable[Row]]
"""Reads the records from the start each time it is called; a format may need two passes."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Export(Protocol):
    """Writes records in one format, in bounded memory; packages add some by entry points.

    It is given the records as JSON Lines shows them.
    """

    def __call__(self, rows: Rows, target: BinaryIO) -> int:
        """Write all rows; return how many."""


@contextmanager
def written_whole(
    path: Path, *, may_replace: bool = True, makes_folder: bool = False
) -> Iterator[BinaryIO]:
    """Open a file beside `path` and rename it into place when all of it is on disk.

    With `makes_folder`, folders above it are made if they are missing.

    Raises:
        DestinationUnwritable: it cannot be written; what was at `path` before is untouched.
        DestinationFull: there is no room for it; the same.
    """
    place = path.resolve()  # of a link, what it points to is replaced, not the link
    try:
        if path.exists() and not path.is_file():  # renaming over a device would destroy it
            raise DestinationUnwritable(str(path), "it is there, and not a file")
        check_folder(path, makes_folder=makes_folder)
        with beside(place) as made:
            with made.open("wb") as target:
                yield target
                target.flush()
                os.fsync(target.fileno())
            if may_replace:
                made.replace(place)
            else:
                place.hardlink_to(made)  # unlike a rename, it fails when something is there
    except OSError as error:
        raise unwritable(str(path), error) from error


def check_folder(path: Path, *, makes_folder: bool) -> None:
    """See that the folder of a file is there, or make it: a name that was mistyped is not.

    Raises:
        DestinationUnwritable: it is not there.
        OSError: it cannot be made.
    """
    folder = path.resolve().parent
    if makes_folder:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        kind = "is not a folder" if folder.exists() else "does not exist"
        remedy = "make it first; `longline export --mkdir` does so"
        raise DestinationUnwritable(str(path), f"the folder {folder} {kind}: {remedy}")


def unwritable(place: str, error: OSError) -> DestinationUnwritable | DestinationFull:
    """Return what to say when a place cannot be written: is the word wrong, or is it full?"""
    problem = error.strerror or str(error)
    if error.errno in _FULL:
        return DestinationFull(place, problem)
    return DestinationUnwritable(place, problem)
