"""Work in progress beside its place: locked while somebody is at it, swept up when nobody is."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

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
