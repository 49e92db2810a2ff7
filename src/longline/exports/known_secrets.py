"""The secrets that a home refers to, so that no export shows them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longline.config.documents import read_document
from longline.config.library_entries import written_files
from longline.config.secrets import SecretRef, is_reference
from longline.config.settings import Settings
from longline.errors import HomeUnwritable, MissingExtra, UnknownSecret
from longline.exports.beside import beside
from longline.model import Job

KEY_FILE = "redaction.key"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """What the references of a home stand for, and those that cannot be read now."""

    values: frozenset[str]
    unreadable: tuple[str, ...]


def known_secrets(settings: Settings, jobs: Iterable[Job]) -> KnownSecrets:
    """Return what stands behind the references of all manifests, job files and past jobs.

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
    found, unreadable = set(), []
    for reference in sorted(references, key=str):
        try:
            found.add(reference.read().get_secret_value())
        except (UnknownSecret, MissingExtra):
            unreadable.append(str(reference))
    return KnownSecrets(frozenset(found), tuple(unreadable))


def stand_in_key(home: Path) -> bytes:
    """Return what the stand-ins of a home are made with, the same in every export.

    Raises:
        HomeUnwritable: it can be neither read nor made.
    """
    path = home / KEY_FILE
    try:
        if not path.exists():
            _make_key(path)
        return path.read_bytes()[:_KEY_BYTES]
    except OSError as error:
        raise HomeUnwritable(str(path), error.strerror or str(error)) from error


def _make_key(path: Path) -> None:
    with beside(path) as made:
        made.chmod(0o600)
        made.write_bytes(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):  # of two exports, one makes it
            path.hardlink_to(made)


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
