"""One manifest or job file of a library: what it is called, what it says, whether it is sound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longline.config.differences import leaves
from longline.config.documents import Document, check, read_document
from longline.config.documents_problems import Location, written_as
from longline.config.layers import Explained
from longline.config.manifests.base import Manifest
from longline.config.manifests.kinds import KEY, manifest_in
from longline.config.secrets import SecretRef
from longline.config.spec import JobSpec, make_spec
from longline.errors import BadOption, MissingExtra, UnknownSecret

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
