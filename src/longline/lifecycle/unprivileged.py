"""Who runs PostgreSQL, which refuses to be run by root."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from longline.errors import StartFailed

_ALL_OTHERS = 0o077
_USERS = ("postgres", "nobody")  # of a machine, the first that is there


def other_user(folder: Path) -> str | None:
    """Return the user who is to own a folder of the server; None when we may do so ourselves.

    Raises:
        StartFailed: nobody but root is known here.
    """
    if os.geteuid() != 0:
        return None
    if folder.exists() and folder.stat().st_uid != 0:
        return _name(folder.stat().st_uid)
    known = {one.pw_name for one in pwd.getpwall()}
    for name in _USERS:
        if name in known:
            return name
    raise StartFailed("postgres", f"root may not run it, and there is no user {_USERS[-1]}")


def hand_over(path: Path, user: str | None) -> None:
    """Give a file or folder to the user who runs the server."""
    if user is not None:
        found = pwd.getpwnam(user)
        os.chown(path, found.pw_uid, found.pw_gid)


def let_through(home: Path, user: str | None) -> None:
    """Let the user who runs the server pass through a home that is closed to all others.

    He may not list it; its files and other folders stay closed to him.
    """
    if user is None:
        return
    found, mode = pwd.getpwnam(user), stat.S_IMODE(home.stat().st_mode)
    if mode & _ALL_OTHERS == 0:
        os.chown(home, -1, found.pw_gid)
        home.chmod(mode | stat.S_IXGRP)


def check_way(folder: Path, user: str | None) -> None:
    """See that a user gets to a folder at all.

    Raises:
        StartFailed: one of the folders above is closed to others.
    """
    if user is None:
        return
    found = pwd.getpwnam(user)
    for parent in folder.parents:
        if not _is_passable(parent.stat(), found):
            problem = (
                f"root may not run it, and the user {user} cannot get to {folder}, because {parent}"
                f" is closed to others: chmod o+x {parent}, or use a home elsewhere"
            )
            raise StartFailed("postgres", problem)


def _is_passable(found: os.stat_result, user: pwd.struct_passwd) -> bool:
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == user.pw_gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise StartFailed("postgres", f"its folder belongs to the unknown user {uid}") from None
