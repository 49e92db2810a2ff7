"""Export: one format; and how a file comes to be there whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from longline.core.errors import DestinationFull, DestinationUnwritable

# ---------------- Work in progress beside its place: locked while somebody is at it, swept up

_WORK = ".work"


@contextmanager
def beside(place: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """Give an empty file or folder next to `place`; what is left of it in the end is removed.

    What exports to the same place left behind when they were killed is removed first.

    Raises:
        OSError: it cannot be made there.
    """
    _sweep(place)
    lock = None
    while lock is None:  # somebody who sweeps may take it before it is locked
        path = place.parent / f".{place.name}.{secrets.token_hex(4)}.part"
        lock = _made(path, is_folder=is_folder)
    try:
        yield path
    finally:
        _remove(path)
        os.close(lock)


@contextmanager
def working_folder(target: BinaryIO) -> Iterator[Path]:
    """Give a folder for the work on an open file, next to it, where there is room.

    Memory often stands behind the folder of temporary files, which only a file without a name of
    its own, such as standard output, makes do with.
    """
    parent = folder_of(target)
    if parent is None:
        with tempfile.TemporaryDirectory(prefix="longline-") as folder:
            yield Path(folder)
        return
    path = parent / f"{Path(target.name).name}{_WORK}"
    lock = None
    while lock is None:
        lock = _made(path, is_folder=True)
    try:
        yield path
    finally:
        _remove(path)
        os.close(lock)


def folder_of(target: BinaryIO) -> Path | None:
    """Return the folder that an open file is in; None when it has no name."""
    name = getattr(target, "name", None)
    return Path(name).parent if isinstance(name, str) and Path(name).is_file() else None


def _sweep(place: Path) -> None:
    ours = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}\.part(?:{re.escape(_WORK)})?")
    with suppress(OSError):  # whoever may not read the folder may still write to it
        for path in [one for one in place.parent.iterdir() if ours.fullmatch(one.name)]:
            _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    with suppress(OSError):  # it is locked, or somebody else has removed it
        lock = _opened(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        finally:
            os.close(lock)


def _made(path: Path, *, is_folder: bool) -> int | None:
    """Make and lock a file or folder; None when somebody took it for a leftover in between."""
    if is_folder:
        path.mkdir()
    else:
        path.touch(exist_ok=False)
    try:
        lock = _opened(path)
    except FileNotFoundError:
        return None
    with suppress(BlockingIOError):
        _lock(lock)
        if _is_at(path, lock):
            return lock
    os.close(lock)
    return None


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks, on which nothing is ever swept either
        return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _opened(path: Path) -> int:
    # Some network file systems lock only what is open for writing, which a folder never is.
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR
    return os.open(path, access | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove(path: Path) -> None:
    with suppress(OSError):  # it is in its place by now, or never came to be
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


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
