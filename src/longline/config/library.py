"""All that is configured, as one picture that is replaced whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from longline.config.documents import read_content
from longline.config.documents_words import nearest
from longline.config.layers import settings_file
from longline.config.library_entries import Entry, check_secrets, read_entry, written_files
from longline.config.settings import Settings, load_settings
from longline.errors import BadFile, BadOption, ConfigError

_TRIES = 5
_QUIET = 200  # milliseconds without another change before files are read

Marks = Mapping[Path, tuple[int, int, bytes]]
"""What changes when a file does: its number, its time, and all that stands in it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The settings and every manifest and job file, all of one moment; it never changes."""

    number: int
    settings: Settings
    entries: Mapping[str, Entry]

    def get(self, name: str) -> Entry:
        """Return a manifest or a job by its name.

        Raises:
            BadOption: there is none.
        """
        if name in self.entries:
            return self.entries[name]
        meant = nearest(name, self.entries)
        hint = f"; did you mean {meant!r}?" if meant else ""
        known = ", ".join(self.entries) or "none"
        raise BadOption("NAME", f"there is no {name!r} here{hint} Known are: {known}")

    def load(self, name: str) -> Entry:
        """Return a manifest or a job by its name, when every secret that it refers to is there.

        Raises:
            BadOption: there is none of this name.
            BadFile: a secret is missing.
        """
        entry = self.get(name)
        check_secrets(entry)
        return entry


@dataclass(frozen=True, slots=True)
class Survey:
    """What the files say at one moment, whether it can be used or not."""

    settings: Settings
    entries: Mapping[str, Entry]
    problems: tuple[ConfigError, ...]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How a reload went: the picture that counts from now on, and what was wrong."""

    snapshot: Snapshot
    problems: tuple[ConfigError, ...]
    is_new: bool


def survey(settings: Settings) -> Survey:
    """Read every manifest and job file, the broken ones too."""
    entries: dict[str, Entry] = {}
    problems: list[ConfigError] = []
    for path in written_files(settings.sources):
        try:
            entry = read_entry(path)
            _refuse_second(entry, entries)
        except BadFile as error:
            problems.append(error)
        else:
            entries[entry.name] = entry
    return Survey(settings, MappingProxyType(entries), tuple(problems))


class Library:
    """Gives out the newest snapshot that was sound as a whole.

    Args:
        load: reads the settings, which say where the files are.
        on_change: told each new snapshot.
        on_problem: told each problem that made us keep the old one.
    """

    def __init__(
        self,
        load: Callable[[], Settings] = load_settings,
        *,
        on_change: Callable[[Snapshot], object] = lambda _: None,
        on_problem: Callable[[ConfigError], object] = lambda _: None,
    ) -> None:
        self._load = load
        self._on_change = on_change
        self._on_problem = on_problem
        self._lock = threading.Lock()
        self._snapshot = self._first()

    @property
    def snapshot(self) -> Snapshot:
        """What counts now; who took it keeps it, whatever is reloaded."""
        return self._snapshot

    def reload(self) -> Reloaded:
        """Read everything again; it counts only if all of it is sound."""
        with self._lock:
            known = self._snapshot
            problems, found = self._read()
            is_new = found is not None and not _is_same(found, known)
            if found is not None and is_new:
                self._snapshot = Snapshot(known.number + 1, found.settings, found.entries)
            told = Reloaded(self._snapshot, problems, is_new)
        for problem in problems:
            self._on_problem(problem)
        if is_new:
            self._on_change(told.snapshot)
        return told

    async def watch(self, *, stop: asyncio.Event | None = None) -> None:
        """Reload whenever a file changes, until `stop` is set."""
        from watchfiles import awatch  # noqa: PLC0415  # only long-running processes watch files

        stop = stop or asyncio.Event()
        while not stop.is_set():
            places = self._places()
            changes = awatch(
                *places, recursive=False, stop_event=stop, debounce=_QUIET, step=_QUIET
            )
            async for _ in changes:
                await asyncio.to_thread(self.reload)
                if self._places() != places:  # a folder has come or gone
                    break

    def _first(self) -> Snapshot:
        problems, found = self._read()
        if found is None:
            raise problems[0]
        return Snapshot(1, found.settings, found.entries)

    def _read(self) -> tuple[tuple[ConfigError, ...], Survey | None]:
        """Return what the files say; None when they cannot be used, or do not stand still."""
        for _ in range(_TRIES):
            try:
                settings = self._load()
            except ConfigError as error:
                return (error,), None
            before = _marks(settings)
            found = survey(settings)
            if _marks(settings) == before:  # otherwise some files are new and some are old
                return found.problems, None if found.problems else found
        return (BadOption("sources", "files change faster than they can be read"),), None

    def _places(self) -> list[Path]:
        """Return the folders to watch; the one above where a folder is not there yet."""
        wanted = [*self._snapshot.settings.sources, settings_file() or Path()]
        folders = [one if one.is_dir() else one.absolute().parent for one in wanted]
        return sorted({folder for folder in folders if folder.is_dir()})


def _refuse_second(entry: Entry, entries: Mapping[str, Entry]) -> None:
    if entry.name in entries:
        first = entries[entry.name].document.path
        problem = f"{first} is called {entry.name!r}, too; give one of them another name"
        raise entry.document.wrong(("name",), problem)


def _is_same(found: Survey, known: Snapshot) -> bool:
    texts = {name: (one.document.path, one.document.tree) for name, one in found.entries.items()}
    before = {name: (one.document.path, one.document.tree) for name, one in known.entries.items()}
    return found.settings == known.settings and texts == before


def _marks(settings: Settings) -> Marks:
    found = {}
    for path in filter(None, [*written_files(settings.sources), settings_file()]):
        # What cannot be read is told by the survey. The time alone is too coarse: two edits within
        # one tick of the system's clock have the same.
        with contextlib.suppress(OSError, BadFile):
            stat = path.stat()
            found[path] = (stat.st_ino, stat.st_mtime_ns, read_content(path))
    return found
