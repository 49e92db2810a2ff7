"""The manifests and job files of an installation: read, checked, explained and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from longline.config.documents import Document, check, read_document
from longline.config.job_spec import JobSpec, make_spec
from longline.config.secrets import SecretRef
from longline.config.settings import Explained, Settings
from longline.config.validation_messages import Location, format_location, nearest
from longline.core.errors import BadFile, BadOption, ConfigError, MissingExtra, UnknownSecret
from longline.core.json import diff_json
from longline.sources.manifest import KIND, Manifest, parse_manifest

SUFFIXES = (".yaml", ".yml")
JOB = "job"


@dataclass(frozen=True, slots=True)
class Entry:
    """A valid manifest or job file."""

    name: str
    kind: str
    """html, api, command, or job."""
    document: Document
    model: Manifest | JobSpec

    @property
    def values(self) -> dict[str, Any]:
        """The values of the file, as a new dict."""
        return self.document.values

    @property
    def about(self) -> str:
        """One sentence about what it is for."""
        if isinstance(self.model, JobSpec):
            return f"a job of {self.model.source}"
        return self.model.about


def read_entry(path: Path) -> Entry:
    """Read a manifest or job file.

    Raises:
        BadFile: the file is invalid.
    """
    return parse_entry(read_document(path))


def parse_entry(document: Document) -> Entry:
    """Return the manifest or job in a document.

    Raises:
        BadFile: the document is invalid.
    """
    if document.node((KIND,)) is not None:
        manifest = parse_manifest(document)
        return Entry(manifest.name, document.values[KIND], document, manifest)
    check_is_job(document)
    check(document, JobSpec)
    try:
        spec = make_spec(document.values)
    except BadOption as error:
        raise document.error(error.option.split("."), error.problem) from error
    return Entry(document.path.stem, JOB, document, spec)


def check_is_job(document: Document) -> None:
    """Check that a document without `manifest` has a `source`, or something spelled like either.

    Raises:
        BadFile: it has not.
    """
    names = document.values
    if "source" in names or any(nearest(name, ("source", KIND)) for name in names):
        return  # a misspelled name is reported as such
    problem = "it is neither a manifest (no `manifest:`) nor a job file (no `source:`)"
    raise document.error((), problem)


@dataclass(frozen=True, slots=True)
class Survey:
    """All manifests and job files: the valid ones by name, and the problems of the others."""

    settings: Settings
    entries: Mapping[str, Entry]
    problems: tuple[ConfigError, ...]


def survey(settings: Settings) -> Survey:
    """Read every manifest and job file of the source folders."""
    entries: dict[str, Entry] = {}
    problems: list[ConfigError] = []
    for path in yaml_files(settings.sources):
        try:
            entry = read_entry(path)
            if entry.name in entries:
                first = entries[entry.name].document.path
                problem = f"{first} has the name {entry.name!r}, too; rename one of them"
                raise entry.document.error(("name",), problem)
        except BadFile as error:
            problems.append(error)
        else:
            entries[entry.name] = entry
    return Survey(settings, MappingProxyType(entries), tuple(problems))


def nothing_in(folders: Sequence[Path]) -> str:
    """Return the sentence for source folders without any file."""
    named = ", ".join(str(one) if one.is_absolute() else f"./{one}" for one in folders)
    return f"no manifests or job files in the folder{'s' * (len(folders) > 1)} {named}"


def yaml_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the YAML files among paths and in folders, in order."""
    for path in paths:
        if not path.is_dir():
            yield from (path,) if path.suffix in SUFFIXES else ()
            continue
        # Files that start with . or # belong to editors.
        files = (one for one in path.iterdir() if not one.name.startswith((".", "#")))
        yield from sorted(one for one in files if one.suffix in SUFFIXES)


def explain_entry(entry: Entry) -> list[Explained]:
    """Return every value with its origin: a line of the file, or a default."""
    document = entry.document
    written = [
        Explained(format_location(loc), value, f"{document.path}:{document.place(loc)[0]}")
        for loc, value in leaves(entry.values)
    ]
    dump = entry.model.model_dump(mode="json", by_alias=True)
    names = (name for name in dump if document.node((name,)) is None and name != KIND)
    return [*written, *(Explained(name, dump[name], "default") for name in names)]


def leaves(value: Any, loc: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield every scalar and empty container with its location."""
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from leaves(below, (*loc, str(name)))
    elif isinstance(value, list | tuple) and value:
        for number, below in enumerate(value):
            yield from leaves(below, (*loc, number))
    else:
        yield loc, value


def diff_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each value that differs: its path, before, after, and added, removed or changed."""
    return [
        {
            "path": format_location(one.path),
            "before": one.values.get("old"),
            "after": one.values.get("new"),
            "change": one.change,
        }
        for one in diff_json(before, after, by_leaf=True)
    ]


def check_secrets(entry: Entry) -> None:
    """Check that every secret that a file refers to can be read.

    Raises:
        BadFile: one cannot; with the position of the reference.
    """
    for reference in _secret_references(entry.model):
        try:
            reference.check()
        except (UnknownSecret, MissingExtra) as error:
            loc = _location_of(reference, entry.document)
            raise entry.document.error(loc, str(error)) from None


def _secret_references(model: Manifest | JobSpec) -> Iterator[SecretRef]:
    if model.auth is not None:
        yield from model.auth.references()
    hosts = model.cookies.values() if isinstance(model.cookies, Mapping) else ()
    values = (value for cookies in hosts for value in cookies.values())
    yield from (value for value in values if isinstance(value, SecretRef))


def _location_of(reference: SecretRef, document: Document) -> Location:
    """Return the location of a secret reference: `env:NAME`, or {env: NAME}."""
    for loc, text in document.texts():
        if _is_reference_to(reference, text):
            return loc
        if _is_reference_to(reference, {str(loc[-1]): text}):
            return loc[:-1]
    return ("auth",)


def _is_reference_to(reference: SecretRef, value: object) -> bool:
    try:
        return SecretRef.parse(value) == reference
    except (ValueError, RuntimeError):  # not a reference; RuntimeError: no home directory for ~
        return False
