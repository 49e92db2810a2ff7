"""Private files: only their owner can read the files of a home, which may contain passwords.

The mode is set when a file is created, so others can never open it, whatever the umask.

A home that a group shares has the mode 2770 (`chmod 2770 HOME`). Members of the group then have
access to files that are created there; others never have.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_FILE = 0o600
_FOLDER = 0o700
_GROUP_OF_FILE = 0o060
_GROUP_OF_FOLDER = 0o070
_OTHERS = 0o007
_READ_OR_WRITE = 0o066


def make_private_folder(path: Path, *, is_home: bool = False) -> None:
    """Create a private folder; missing folders above it get the default mode.

    A home is shared only by its own mode, not by that of the folder above it.

    Raises:
        OSError: it cannot be created.
    """
    if path.is_dir():
        return
    with suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(_FOLDER)
        if not is_home and _is_shared(path.parent):
            path.chmod(stat.S_IMODE(path.stat().st_mode) | _FOLDER | _GROUP_OF_FOLDER)
        return
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def make_private_file(path: Path) -> None:
    """Create an empty private file, for a library that would create it readable by others.

    SQLite gives its -wal and -shm files the mode of the database.

    Raises:
        OSError: it cannot be created.
    """
    with suppress(FileExistsError):
        os.close(private_opener(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))


def private_opener(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, for `open(…, opener=private_opener)`; a new one is private.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, flags, _FILE)
    if flags & os.O_CREAT and _is_shared(Path(path).parent):
        with suppress(OSError):  # it belongs to another member
            os.fchmod(descriptor, _FILE | _GROUP_OF_FILE)
    return descriptor


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the name of a draft next to `path`, which replaces `path` unless the block fails.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    # Several processes may write at the same time: each needs its own name.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        yield draft
        draft.replace(path)
    finally:
        with suppress(OSError):  # it was renamed, or could not be created
            draft.unlink()


def _is_shared(folder: Path) -> bool:
    """Return whether only a group shares a folder."""
    mode = folder.stat().st_mode
    return mode & _OTHERS == 0 and mode & _GROUP_OF_FOLDER == _GROUP_OF_FOLDER


@dataclass(frozen=True, slots=True)
class Exposed:
    """A file or folder that others can read or write, and the mode that it should have."""

    path: Path
    mode: int
    wanted: int


def exposed_in(home: Path) -> Iterator[Exposed]:
    """Yield what others can read or write in a home, the home itself first.

    Links are not followed, and files of other users (PostgreSQL data if root runs it) are skipped.
    """
    if not home.is_dir():
        return
    home = home.resolve()  # it may be a link itself
    yield from _check_mode(home, is_shared=False)
    is_shared = _is_shared(home)
    for folder, _, files in os.walk(home, onerror=None):
        place = Path(folder)
        if place != home:
            yield from _check_mode(place, is_shared=is_shared)
        for name in files:
            yield from _check_mode(place / name, is_shared=is_shared)


def _check_mode(path: Path, *, is_shared: bool) -> Iterator[Exposed]:
    try:
        found = path.lstat()
    except OSError:  # it was removed
        return
    is_folder = stat.S_ISDIR(found.st_mode)
    if found.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(found.st_mode)):
        return
    mode = stat.S_IMODE(found.st_mode)
    is_shared = is_shared or (is_folder and _is_shared(path))
    unwanted = _OTHERS if is_shared else _OTHERS | _GROUP_OF_FOLDER
    # To pass through a folder (x) does not show its content.
    exposed = mode & unwanted & (_READ_OR_WRITE if is_folder and not is_shared else 0o777)
    if exposed:
        yield Exposed(path, mode, mode & ~unwanted)


def make_private(found: Exposed) -> bool:
    """Remove the rights of others; return False when the file system does not store modes."""
    try:
        found.path.chmod(found.wanted, follow_symlinks=False)
    except NotImplementedError:
        found.path.chmod(found.wanted)
    except OSError:
        return False
    return stat.S_IMODE(found.path.lstat().st_mode) == found.wanted
