"""The secrets that a home refers to, so that no export shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from longline.config.documents import read_document
from longline.config.library_entries import written_files
from longline.config.secrets import SecretRef, is_reference
from longline.config.settings import Settings
from longline.errors import MissingExtra, UnknownSecret
from longline.model import Job


def known_secrets(settings: Settings, jobs: Iterable[Job]) -> set[str]:
    """Return what stands behind the references of all manifests, job files and past jobs.

    Those that cannot be read now are left out.

    Raises:
        BadFile: a file cannot be read, so that nobody knows which secrets it refers to.
    """
    references: set[SecretRef] = set()
    for path in written_files(place for place in settings.sources if place.exists()):
        for loc, text in read_document(path).texts():
            references.update(_references(str(loc[-1]) if loc else "", text))
    for job in jobs:
        for name, text in _texts(job.settings):
            references.update(_references(name, text))
    found = set()
    for reference in references:
        with suppress(UnknownSecret, MissingExtra):
            found.add(reference.read().get_secret_value())
    return found


def _references(name: str, text: str) -> Iterator[SecretRef]:
    """Yield the reference that a text is, written as env:NAME or as {env: NAME}."""
    for written in (text, f"{name}:{text}"):
        if is_reference(written):
            with suppress(ValueError, RuntimeError):  # it only looked like one
                yield SecretRef.parse(written)


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for inner, one in value.items():
            yield from _texts(one, str(inner))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
