"""Write files atomically: a destination has the whole new file, or the old one unchanged.

A file is written under a temporary name next to its destination, locked while an export writes it,
and renamed at the end. Exports remove what killed exports left behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from longline.core.errors import DestinationUnwritable, LonglineError

_WORK = ".work"
_MIN_AGE = 5.0  # seconds; a younger file may not be locked yet by the export that created it
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DestinationFull(LonglineError):
    """No disk space is left for an export."""

    exit_code = 4
    path: str
    problem: str
    message = "no disk space is left for {path} ({problem}); the previous export is unchanged"
    hint = "Free some space and run the same command again."


@contextmanager
def atomic_write(
    path: Path, *, may_replace: bool = True, makes_folder: bool = False
) -> Iterator[BinaryIO]:
    """Open a temporary file next to `path`, and rename it to `path` once it is on disk.

    With `makes_folder`, missing folders above it are created.

    Raises:
        DestinationUnwritable: it cannot be written; an earlier file at `path` is unchanged.
        DestinationFull: no disk space is left; the same.
    """
    place = path.resolve()  # the target of a link is replaced, not the link
    try:
        if path.exists() and not path.is_file():  # renaming over a device would destroy it
            raise DestinationUnwritable(str(path), "it exists but is not a file")
        check_parent_folder(path, makes_folder=makes_folder)
        with temporary_sibling(place) as temporary:
            with temporary.open("wb") as target:
                yield target
                target.flush()
                os.fsync(target.fileno())
            if may_replace:
                temporary.replace(place)
            else:
                place.hardlink_to(temporary)  # unlike a rename, it fails if the file exists
    except OSError as error:
        raise destination_error(str(path), error) from error


@contextmanager
def temporary_sibling(place: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """Create a temporary file or folder next to `place`, and remove it at the end.

    Temporary files of killed exports to the same place are removed first.

    Raises:
        OSError: it cannot be created.
    """
    _remove_leftovers(place)
    path = place.parent / f".{place.name}.{secrets.token_hex(4)}.part"
    if is_folder:
        path.mkdir()
    else:
        path.touch(exist_ok=False)
    lock = _open_for_lock(path)
    try:
        with suppress(OSError):  # a file system without locks, where nothing is ever removed either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    finally:
        _remove_path(path)
        os.close(lock)


@contextmanager
def working_folder(target: BinaryIO) -> Iterator[Path]:
    """Create a temporary folder next to an open file, where there is disk space.

    The system's folder for temporary files is often in memory; it is used only for a target without
    a name, such as standard output.
    """
    parent = folder_of(target)
    if parent is None:
        with tempfile.TemporaryDirectory(prefix="longline-") as folder:
            yield Path(folder)
        return
    path = parent / f"{Path(target.name).name}{_WORK}"
    path.mkdir()
    try:
        yield path
    finally:
        _remove_path(path)


def folder_of(target: BinaryIO) -> Path | None:
    """Return the folder of an open file; None when it has no name."""
    name = getattr(target, "name", None)
    return Path(name).parent if isinstance(name, str) and Path(name).is_file() else None


def check_parent_folder(path: Path, *, makes_folder: bool) -> None:
    """Create the folder of a file, or raise DestinationUnwritable if it does not exist."""
    folder = path.resolve().parent
    if makes_folder:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_dir():
        kind = "is not a folder" if folder.exists() else "does not exist"
        remedy = "create it first, or use `longline export --mkdir`"
        raise DestinationUnwritable(str(path), f"the folder {folder} {kind}: {remedy}")


def destination_error(place: str, error: OSError) -> DestinationUnwritable | DestinationFull:
    """Return our error for an OSError at a destination."""
    problem = error.strerror or str(error)
    if error.errno in _FULL:
        return DestinationFull(place, problem)
    return DestinationUnwritable(place, problem)


def _remove_leftovers(place: Path) -> None:
    ours = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):  # a folder may be writable without being readable
        for path in [one for one in place.parent.iterdir() if ours.fullmatch(one.name)]:
            with suppress(OSError):  # it is locked, or another export has removed it
                lock = _open_for_lock(path)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if time.time() - os.fstat(lock).st_mtime > _MIN_AGE:
                        _remove_path(path.with_name(path.name + _WORK))
                        _remove_path(path)
                finally:
                    os.close(lock)


def _open_for_lock(path: Path) -> int:
    # Some network file systems lock only what is open for writing, which a folder cannot be.
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR
    return os.open(path, access | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove_path(path: Path) -> None:
    with suppress(OSError):  # it was renamed, or never created
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
