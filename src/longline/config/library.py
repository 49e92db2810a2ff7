"""All that is configured, as one picture that is replaced whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from longline.config.documents import (
    Document,
    Location,
    check,
    nearest,
    read_content,
    read_document,
    written_as,
)
from longline.config.errors import UnknownSecret
from longline.config.job_spec import JobSpec, make_spec
from longline.config.manifests.base import Manifest
from longline.config.manifests.kinds import KEY, manifest_in
from longline.config.secrets import SecretRef
from longline.config.settings import Explained, Settings, load_settings, settings_file
from longline.core.errors import BadFile, BadOption, ConfigError, MissingExtra

# ---------------- What two configurations say differently, value by value


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that is not the same; `change` tells a None that was said from one that was not."""

    path: str
    before: Any
    after: Any
    change: str
    """added, removed or changed."""


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return what must be done to `before` to make it `after`, in the order of the names."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return [
        Difference(written_as(loc), old.get(loc), new.get(loc), _change(loc in old, loc in new))
        for loc in [*old, *(loc for loc in new if loc not in old)]
        if (loc in old, old.get(loc)) != (loc in new, new.get(loc))
    ]


def leaves(value: Any, loc: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield every value that holds no other, with its location."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from leaves(below, (*loc, str(name)))
    elif isinstance(value, list | tuple) and value:
        for number, below in enumerate(value):
            yield from leaves(below, (*loc, number))
    else:
        yield loc, value


def _change(was: bool, is_now: bool) -> str:  # noqa: FBT001  # two claims, named
    if was and is_now:
        return "changed"
    return "added" if is_now else "removed"


# ---------------- One manifest or job file of a library: what it is called, what it says, whether

SUFFIXES = (".yaml", ".yml")
JOB = "job"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that was read and found sound."""

    name: str
    kind: str
    """html, api, command, or job."""
    document: Document
    model: Manifest | JobSpec

    @property
    def values(self) -> dict[str, Any]:
        """What the file says, anew each time."""
        return self.document.values

    @property
    def about(self) -> str:
        """One sentence on what it is for."""
        if isinstance(self.model, JobSpec):
            return f"a job of {self.model.source}"
        return self.model.about


def read_entry(path: Path) -> Entry:
    """Read one manifest or job file.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    return entry_in(read_document(path))


def entry_in(document: Document) -> Entry:
    """Return what a document stands for.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    if document.node((KEY,)) is not None:
        manifest = manifest_in(document)
        return Entry(manifest.name, document.values[KEY], document, manifest)
    check(document, JobSpec)
    try:
        spec = make_spec(document.values)
    except BadOption as error:
        raise document.wrong(error.option.split("."), error.problem) from error
    return Entry(document.path.stem, JOB, document, spec)


def explain_entry(entry: Entry) -> list[Explained]:
    """Say of every value where it comes from: a line of the file, or a default."""
    path = entry.document.path
    said = [
        Explained(written_as(loc), value, f"{path}:{entry.document.place(loc)[0]}")
        for loc, value in leaves(entry.values)
    ]
    every = entry.model.model_dump(mode="json", by_alias=True)
    names = (name for name in every if entry.document.node((name,)) is None and name != KEY)
    return [*said, *(Explained(name, every[name], "default") for name in names)]


def written_files(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the YAML files of folders, in order; a file that is named itself is one of them."""
    for place in places:
        if not place.is_dir():
            yield from (place,) if place.suffix in SUFFIXES else ()
            continue
        # What begins with . or # is what an editor keeps for itself.
        names = (one for one in place.iterdir() if not one.name.startswith((".", "#")))
        yield from sorted(one for one in names if one.suffix in SUFFIXES)


def check_secrets(entry: Entry) -> None:
    """See that every secret that a file refers to can be read.

    Raises:
        BadFile: one cannot; says where it is referred to.
    """
    for reference in _references(entry.model):
        try:
            reference.check()
        except (UnknownSecret, MissingExtra) as error:
            loc = _place_of(reference, entry.document)
            raise entry.document.wrong(loc, str(error)) from None


def _references(model: Manifest | JobSpec) -> Iterator[SecretRef]:
    if model.auth is not None:
        yield from model.auth.references()
    hosts = model.cookies.values() if isinstance(model.cookies, Mapping) else ()
    values = (value for cookies in hosts for value in cookies.values())
    yield from (value for value in values if isinstance(value, SecretRef))


def _place_of(reference: SecretRef, document: Document) -> Location:
    """Return where a secret is referred to: as `env:NAME`, or as {env: NAME}."""
    for loc, text in document.texts():
        if _is(reference, text):
            return loc
        if _is(reference, {str(loc[-1]): text}):
            return loc[:-1]
    return ("auth",)


def _is(reference: SecretRef, written: object) -> bool:
    try:
        return SecretRef.parse(written) == reference
    except (ValueError, RuntimeError):  # it is another text; RuntimeError: no home for a ~
        return False


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
