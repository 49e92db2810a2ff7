"""Browsers that outlived whoever started them: each is written down, found again and ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from longline.private import make_private_file, make_private_folder

MARK = "--longline-browser="
"""The argument by which our browsers are known; Chromium itself does not look at it."""
_PROFILE = "--user-data-dir="
_OWN_PROFILES = "playwright_"  # the library makes the profiles, and calls them so
_ENDING = ".json"
_GOODBYE = 3.0  # seconds between asking and killing


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that a browser belongs to; its start time, since a pid is used again."""

    host: str
    pid: int
    started: float

    @classmethod
    def here(cls) -> Owner:
        """Return this process."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    @property
    def is_dead(self) -> bool:
        """Whether it surely is no more; of other hosts nothing is known."""
        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < 0.02  # noqa: PLR2004  # two clock ticks
            return not is_same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False


class Note:
    """The note that says whose browser this is, made before the browser starts."""

    def __init__(self, folder: Path) -> None:
        owner = Owner.here()
        self.token = f"{owner.pid}-{secrets.token_hex(8)}"
        self._file = folder / f"{self.token}{_ENDING}"
        make_private_folder(folder)
        make_private_file(self._file)
        self._file.write_bytes(orjson.dumps(asdict(owner)))

    @property
    def argument(self) -> str:
        """What to start the browser with."""
        return MARK + self.token

    def note_profile(self) -> None:
        """Write down the browser's profile folder, too, so that it can be removed after a crash."""
        profiles = [path for one in _marked(self.token) if (path := _profile_of(one))]
        if profiles:
            values = {**asdict(Owner.here()), "profile": str(profiles[0])}
            self._file.write_bytes(orjson.dumps(values))

    def remove(self) -> None:
        """Forget the browser, which has ended; what is left of it is ended now."""
        _end(_marked(self.token))
        for profile in _noted_profile(self._file):
            shutil.rmtree(profile, ignore_errors=True)
        self._file.unlink(missing_ok=True)


def sweep(folder: Path) -> int:
    """End the browsers whose owners are dead, remove what they left; return how many notes.

    A browser ends with its owner by itself; this is for the one that could not, and for folders
    that a power cut left behind.
    """
    stale = [file for file in sorted(folder.glob(f"*{_ENDING}")) if _is_stale(file)]
    for file in stale:
        token = file.name.removesuffix(_ENDING)
        left = _marked(token)
        profiles = {path for one in left if (path := _profile_of(one))} | _noted_profile(file)
        _end(left)
        for profile in profiles:
            shutil.rmtree(profile, ignore_errors=True)
        file.unlink(missing_ok=True)
    return len(stale)


def _is_stale(file: Path) -> bool:
    values = _read(file)
    try:
        owner = Owner(str(values["host"]), int(values["pid"]), float(values["started"]))
    except (KeyError, TypeError, ValueError):
        return False  # being written at this moment, or not ours
    return owner.is_dead


def _read(file: Path) -> dict[str, Any]:
    try:
        values = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return values if isinstance(values, dict) else {}


def _noted_profile(file: Path) -> set[Path]:
    path = Path(str(_read(file).get("profile", "")))
    # A note is a file that anybody may edit: nothing else is ever removed.
    return {path} if path.name.startswith(_OWN_PROFILES) else set()


def _marked(token: str) -> list[psutil.Process]:
    """Return the processes that were started with our mark."""
    return [process for process, words in _command_lines() if MARK + token in words]


def _command_lines() -> Iterator[tuple[psutil.Process, list[str]]]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            yield process, process.cmdline()


def _profile_of(process: psutil.Process) -> Path | None:
    with contextlib.suppress(psutil.Error):
        for word in process.cmdline():
            path = Path(word.removeprefix(_PROFILE))
            if word.startswith(_PROFILE) and path.name.startswith(_OWN_PROFILES):
                return path
    return None


def _end(processes: Iterable[psutil.Process]) -> None:
    """End processes and all that they started: gently, then surely."""
    every: set[psutil.Process] = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            every |= {process, *process.children(recursive=True)}
    for process in every:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _gone, alive = psutil.wait_procs(every, timeout=_GOODBYE)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=_GOODBYE)
