"""Manifests and job files as pages use them: found by name, read once per change, and saved."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from longline.config.documents import Document, parse_document, read_content, write_document
from longline.config.job_spec import JobSpec
from longline.config.plugins import SOURCES, plugin_names
from longline.config.settings import Settings
from longline.core.errors import (
    BadFile,
    BadOption,
    BadSource,
    ConflictError,
    DestinationUnwritable,
    LonglineError,
    NotFoundError,
)
from longline.core.files import replacing
from longline.monitoring.alerts.manifest_rules import source_rules_in
from longline.scheduling.definitions import definitions_in
from longline.server.web.context import Web
from longline.sources.loader import (
    BUILT_IN,
    SUFFIXES,
    Entry,
    Survey,
    parse_entry,
    read_entry,
    survey,
    yaml_files,
)
from longline.sources.manifest import Manifest
from longline.storage.scheduling.launches import Launch

RESERVED = frozenset({"new", "of", "edit", "save", "run", "check", "accept", ".", ".."})
"""Names that are other pages below /sources."""
_MOST_FILES = 5_000  # whose content is kept in memory
_MOST_NAME = 100  # characters of an unknown name in an error


class NoSuchSource(NotFoundError):
    """This home has no source of this name."""

    name: str
    message = "there is no source {name!r}"


class NotTheSameFile(ConflictError):
    """A file was changed by someone else since it was opened for editing."""

    path: str
    message = "{path} was changed since you opened it; nothing was saved"
    hint = "Compare your text with the file below, and save again."


class NameTaken(ConflictError):
    """Another file has the name of a new source."""

    name: str
    path: str
    message = "there is a source {name!r} already: {path}"
    hint = "Change `name` in the manifest."


def source_url(name: str) -> str:
    """Return the page of a source; a name that a path cannot carry is in the query."""
    if name in RESERVED or "/" in name or "\\" in name or not name:
        return f"/sources/of?{urlencode({'name': name})}"
    return f"/sources/{quote(name, safe='')}"


async def read_sources(settings: Settings) -> Survey:
    """Read the files of all sources; those that have not changed are not read again."""
    return await asyncio.to_thread(survey, settings, _read_cached)


def _read_cached(path: Path) -> Entry:
    try:
        found = path.stat()
    except OSError:
        return read_entry(path)  # raises the error
    entry = _read_version(path, found.st_mtime_ns, found.st_size)
    if isinstance(entry, BadFile):
        raise entry
    return entry


@lru_cache(_MOST_FILES)
def _read_version(path: Path, _changed_at: int, _size: int) -> Entry | BadFile:
    try:
        return read_entry(path)
    except BadFile as error:
        return error


def other_sources() -> Sequence[str]:
    """Return the names of the sources that longline and plugins bring."""
    return _sources_installed_in(tuple(sys.path))


@lru_cache(1)  # reading what is installed takes 30 ms
def _sources_installed_in(_path: tuple[str, ...]) -> Sequence[str]:
    return sorted({*BUILT_IN, *plugin_names(SOURCES)})


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A source of this home: its file if it has one, or why that is invalid.

    `reference` is what a run of it starts from; None: nothing can start it. `last_options` are
    those of its last job, if it has no file with its own.
    """

    name: str
    entry: Entry | None
    problem: BadFile | None
    reference: str | None
    last_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest; None for other kinds of sources."""
        found = self.entry.model if self.entry else None
        return found if isinstance(found, Manifest) else None

    @property
    def job_file(self) -> JobSpec | None:
        """The settings of a job file; None for other kinds of sources."""
        found = self.entry.model if self.entry else None
        return found if isinstance(found, JobSpec) else None

    @property
    def path(self) -> Path | None:
        """Its file."""
        if self.entry is not None:
            return self.entry.document.path
        return Path(self.problem.path) if self.problem else None


async def find_source(web: Web, name: str) -> KnownSource | None:
    """Return a source by its name: of a file, built in, or of earlier jobs; None: unknown."""
    found = await read_sources(web.settings)
    if entry := found.entries.get(name):
        return KnownSource(name, entry, None, str(entry.document.path))
    for problem in found.problems:
        if isinstance(problem, BadFile) and Path(problem.path).stem == name:
            return KnownSource(name, None, problem, None)
    jobs = await web.store.jobs.list(source=name, limit=1)
    settings = jobs[0].settings if jobs else {}
    options: Mapping[str, Any] = settings.get("set") or {}
    if name in other_sources():
        return KnownSource(name, None, None, name, options)
    if jobs:
        return KnownSource(name, None, None, settings.get("source"), options)
    is_known = await web.store.projections.rows("sources", keys=[name])
    return KnownSource(name, None, None, None) if is_known else None


async def known_source(web: Web, name: str) -> KnownSource:
    """Return a source by its name, as `find_source` does.

    Raises:
        NoSuchSource: there is none.
    """
    known = await find_source(web, name) if name and "\x00" not in name else None
    if known is None:
        raise NoSuchSource(name[:_MOST_NAME])
    return known


def reference_of(known: KnownSource) -> str:
    """Return what a run of a source starts from.

    Raises:
        ConfigError: its file is invalid, or it has none.
    """
    if known.reference is None:
        raise known.problem or BadOption("source", f"{known.name!r} has no file to run")
    return known.reference


async def launch_source(
    web: Web,
    known: KnownSource,
    params: Mapping[str, Any],
    *,
    priority: int = 0,
    key: str | None = None,
) -> Launch:
    """Submit a run of a source to the executor, as `longline run --detach` does.

    Raises:
        LonglineError: it cannot be run; nothing was submitted.
    """
    reference = reference_of(known)
    try:
        return await web.orchestrator.launch(reference, params, priority=priority, key=key)
    except LonglineError:
        raise
    except Exception as error:  # the code of a source may raise anything
        problem = f"its code raised {error!r:.500}"
        raise BadSource(known.name, problem) from error


# ---------------- Editing


def editable_file(settings: Settings, text: str) -> Path:
    """Return the path of a file of a source; only those in the folders of the settings.

    Raises:
        BadOption: it is not one of them.
    """
    for path in yaml_files(settings.sources):
        if str(path) == text:
            return path
    raise BadOption("file", f"{text!r:.200} is not a file of a source of this server")


def version_of(content: bytes) -> str:
    """Return what identifies the content of a file."""
    return hashlib.sha256(content).hexdigest()


def read_text(path: Path) -> tuple[str, str]:
    """Return the text of a file for an editor, and its version; raise BadFile if unreadable."""
    content = read_content(path)
    return content.decode("utf-8-sig", "replace").replace("\r\n", "\n"), version_of(content)


def parse_text(text: str, path: Path) -> Entry:
    """Return the manifest or job file in a text that a browser has sent.

    Raises:
        BadFile: it is invalid, with the position.
    """
    # A lone surrogate cannot be in a file.
    document = parse_document(text.encode("utf-8", "replace"), path)
    entry = parse_entry(document)
    definitions_in(document)
    source_rules_in(document)
    return entry


def from_browser(text: str) -> str:
    """Return a text as it belongs in a file: browsers send CRLF, and no last line end."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    return f"{plain}\n"


def save_text(path: Path, text: str, version: str) -> Entry:
    """Replace the text of a file, if it still has the version that was edited.

    Raises:
        BadFile: the text is invalid; nothing was saved.
        NotTheSameFile: the file was changed meanwhile.
        DestinationUnwritable: it cannot be written.
    """
    content = read_content(path)
    if version_of(content) != version:
        raise NotTheSameFile(str(path))
    entry = parse_text(text, path)
    document = entry.document
    if b"\r\n" in content:
        document = Document(path, text.replace("\n", "\r\n"), document.tree)
    write_document(document)
    return entry


def new_file(settings: Settings, found: Survey, text: str) -> tuple[Path, Entry]:
    """Return where a new manifest belongs: in the first folder of the setting `sources`.

    Raises:
        BadFile: it is invalid.
        BadOption: there is no folder, or the name cannot be used.
        NameTaken: another file has its name.
    """
    folders = [path for path in settings.sources if path.suffix not in SUFFIXES]
    if not folders:
        raise BadOption("sources", "the setting names no folder; add one to save sources in")
    entry = parse_text(text, folders[0] / "new.yaml")
    if not isinstance(entry.model, Manifest):
        raise entry.document.error((), "it is not a manifest: `manifest: html` is missing")
    if entry.name in RESERVED:
        raise BadOption("name", f"{entry.name!r} is reserved; choose another name")
    path = folders[0] / f"{entry.name}.yaml"
    if entry.name in found.entries:
        raise NameTaken(entry.name, str(found.entries[entry.name].document.path))
    if path.exists():
        raise NameTaken(entry.name, str(path))
    return path, entry


def write_new(path: Path, text: str) -> None:
    """Write a new file, and the folder above it; raise DestinationUnwritable if it cannot."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            draft.write_text(text, "utf-8", newline="")
    except OSError as error:
        raise DestinationUnwritable(str(path), error.strerror or str(error)) from error
