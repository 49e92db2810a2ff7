"""What the config command works on: files by path or name, and what jobs ran with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longline.cli.reading import with_store
from longline.config.differences import Difference, differences
from longline.config.documents_words import nearest
from longline.config.editing import location_of, set_value, write_document
from longline.config.files import read_file
from longline.config.library import survey
from longline.config.library_entries import (
    SUFFIXES,
    Entry,
    check_secrets,
    entry_in,
    read_entry,
    written_files,
)
from longline.config.settings import Settings
from longline.config.spec import JobSpec
from longline.errors import BadFile, BadOption, ConfigError, UnknownJob
from longline.sources.load import load_source


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a file, and where; line and column are 0 when unknown."""

    file: str
    line: int
    column: int
    problem: str
    sentence: str


def entry_of(reference: str, settings: Settings) -> Entry:
    """Return a manifest or a job file by its path or its name.

    Raises:
        ConfigError: there is none, or it is broken.
    """
    if reference.endswith(SUFFIXES):
        return read_entry(Path(reference))
    found = survey(settings)
    if reference in found.entries:
        return found.entries[reference]
    # A broken file may be the one that is meant: it is told what is wrong with it.
    for problem in found.problems:
        if isinstance(problem, BadFile) and Path(problem.path).stem == reference:
            raise problem
    meant = nearest(reference, found.entries)
    hint = f"did you mean {meant!r}? " if meant else ""
    known = ", ".join(found.entries) or "none"
    raise BadOption("NAME", f"there is no {reference!r} here; {hint}known are: {known}")


def problems_of(
    files: tuple[Path, ...], settings: Settings, *, with_secrets: bool
) -> tuple[int, list[Problem]]:
    """Return how many files there are, and what is wrong with them: one problem a file."""
    paths = list(files or written_files(settings.sources))
    found = [problem for path in paths if (problem := _problem(path, with_secrets=with_secrets))]
    if not files and not found:  # files that are sound each may still be called the same
        found = [_told(problem) for problem in survey(settings).problems]
    return len(paths), found


def set_in_file(reference: str, key: str, value: str, settings: Settings) -> list[Difference]:
    """Set one value in a file and return what that changed.

    Raises:
        ConfigError: there is no such file or place, or the file would be broken by it.
    """
    document = entry_of(reference, settings).document
    edited = set_value(document, location_of(key), value, entry_in)
    write_document(edited)
    return differences(document.values, edited.values)


def values_behind(reference: str, settings: Settings, home: Path | None) -> Mapping[str, Any]:
    """Return what a file says, or what a job ran with.

    Raises:
        ConfigError: there is no such file, name or job.
    """
    try:
        entry = entry_of(reference, settings)
    except BadOption as error:
        try:
            job = with_store(home, lambda store: store.jobs.get(reference))
        except UnknownJob:
            problem = f"{reference!r} is no file, no job, and not the name of a manifest"
            raise BadOption("config diff", problem) from error
        return job.settings.get("manifest") or job.settings
    # What a job keeps has the defaults in it, so that it can only be compared with all of them.
    return entry.model.snapshot() if isinstance(entry.model, JobSpec) else entry.values


def _problem(path: Path, *, with_secrets: bool) -> Problem | None:
    try:
        entry = read_entry(path)
        _check_source(entry)
        if with_secrets:
            check_secrets(entry)
    except ConfigError as error:
        return _told(error)
    return None


def _check_source(entry: Entry) -> None:
    """See that what a file names can be used: its source, its settings, the files beside it.

    Raises:
        ConfigError: it cannot; says where it is named.
    """
    values = read_file(entry.document.path)
    if not isinstance(entry.model, JobSpec):
        return
    try:
        source = load_source(values["source"], values.get("manifest"))
    except BadFile:
        raise
    except ConfigError as error:
        raise entry.document.wrong(("source",), str(error)) from error
    try:
        source.with_options(values.get("set") or {})
    except ConfigError as error:
        raise entry.document.wrong(("set",), str(error)) from error


def _told(error: ConfigError) -> Problem:
    if isinstance(error, BadFile):
        return Problem(error.path, error.line, error.column, error.problem, str(error))
    return Problem("", 0, 0, str(error), str(error))
