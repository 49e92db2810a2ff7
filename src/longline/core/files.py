"""Files of a home: readable by their owner only, from the moment they are made.

What sites sent, cookies, queries and passwords are in them. The mode is given when a file is
created, so there is no time in which others can open it, whatever the umask says.

A home that a group shares has the mode 2770 (`chmod 2770 HOME`). Members of its group then get the
same rights to what is made there. Others never do.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_FILE = 0o600
_FOLDER = 0o700
_GROUP_OF_FILE = 0o060
_GROUP_OF_FOLDER = 0o070
_OTHERS = 0o007
_READ_OR_WRITE = 0o066  # of a folder; to pass through one shows nothing of what is in it


def make_private_folder(path: Path, *, is_home: bool = False) -> None:
    """Make a folder unless it is there; those above it get the usual mode.

    A home is shared only if its own mode says so, not because the folder above it is.

    Raises:
        OSError: it cannot be made.
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
    """Make an empty file unless it is there, for a library that would make it for all to read.

    SQLite gives its -wal and -shm files the mode of the database.

    Raises:
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        os.close(private_opener(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))


def private_opener(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as `open(…, opener=private_opener)` asks for; a new one is private.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, flags, _FILE)
    if flags & os.O_CREAT and _is_shared(Path(path).parent):
        with suppress(OSError):  # it is another member's
            os.fchmod(descriptor, _FILE | _GROUP_OF_FILE)
    return descriptor


def _is_shared(folder: Path) -> bool:
    """Say whether a folder belongs to a group, and to nobody else."""
    mode = folder.stat().st_mode
    return mode & _OTHERS == 0 and mode & _GROUP_OF_FOLDER == _GROUP_OF_FOLDER


@dataclass(frozen=True, slots=True)
class Exposed:
    """A file or folder that others may read or write, and the mode that it should have."""

    path: Path
    mode: int
    wanted: int


def exposed_in(home: Path) -> Iterator[Exposed]:
    """Yield what others may read or write in a home, the home itself first.

    Links are not followed, and what belongs to other users (the data of PostgreSQL when root runs
    it) is left out.
    """
    if not home.is_dir():
        return
    home = home.resolve()  # it may be a link itself
    yield from _judged(home, is_shared=False)
    is_shared = _is_shared(home)
    for folder, _, files in os.walk(home, onerror=None):
        place = Path(folder)
        if place != home:
            yield from _judged(place, is_shared=is_shared)
        for name in files:
            yield from _judged(place / name, is_shared=is_shared)


def _judged(path: Path, *, is_shared: bool) -> Iterator[Exposed]:
    try:
        found = path.lstat()
    except OSError:  # it is gone
        return
    is_folder = stat.S_ISDIR(found.st_mode)
    if found.st_uid != os.geteuid() or not (is_folder or stat.S_ISREG(found.st_mode)):
        return
    mode = stat.S_IMODE(found.st_mode)
    if is_folder and (is_shared or _is_shared(path)):
        wrong = mode & _OTHERS
    elif is_folder:
        wrong = mode & _READ_OR_WRITE
    else:
        wrong = mode & (_OTHERS if is_shared else _OTHERS | _GROUP_OF_FOLDER)
    if wrong:
        # Of a folder that is not shared, the right to pass through goes with the others.
        keep = _OTHERS if is_shared else _OTHERS | _GROUP_OF_FOLDER
        yield Exposed(path, mode, mode & ~keep)


def make_private(found: Exposed) -> bool:
    """Take the rights of others away; False when the file system does not keep modes."""
    try:
        found.path.chmod(found.wanted, follow_symlinks=False)
    except NotImplementedError:
        found.path.chmod(found.wanted)
    except OSError:
        return False
    return stat.S_IMODE(found.path.lstat().st_mode) == found.wanted
