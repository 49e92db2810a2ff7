"""Fields of manifests whose values are files: URLs that a record refers to, downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urljoin

from longline.sources.base import Visit

FILE_KINDS = frozenset({"file", "image"})
"""Types of fields whose URLs are downloaded."""


class FileField(Protocol):
    """What fields of all manifests have in common."""

    @property
    def type(self) -> str | None:
        """The type of its values."""

    @property
    def required(self) -> bool:
        """Whether a record needs it."""


def has_files(fields: Mapping[str, FileField] | None) -> bool:
    """Return whether any of these fields, or of the fields of an object, is a file."""
    return any(
        one.type in FILE_KINDS or has_files(getattr(one, "fields", None))
        for one in (fields or {}).values()
    )


async def download_files(
    visit: Visit,
    fields: Mapping[str, FileField],
    values: Mapping[str, Any],
    base: str,
    at: str = "",
) -> dict[str, Any]:
    """Return the values with what refers to files in place of their URLs.

    A file that cannot be had is None, with a note.

    Args:
        visit: downloads them.
        fields: the fields that the values have.
        values: URLs, lists of them, and objects with them; they are not changed.
        base: the URL that relative URLs refer to.
        at: the path of the object that the values belong to.

    Raises:
        FetchError: a required file cannot be had, or the item has to wait.
        UnexpectedShape: a required file has no URL.
    """
    found = dict(values)
    for name, one in fields.items():
        value, path = found.get(name), f"{at}{name}"
        inner = getattr(one, "fields", None)
        if value is None or not (one.type in FILE_KINDS or has_files(inner)):
            continue
        if inner is not None and isinstance(value, list):
            found[name] = [
                await download_files(visit, inner, part, base, f"{path}[{number}].")
                for number, part in enumerate(value)
            ]
        elif inner is not None:
            found[name] = await download_files(visit, inner, value, base, f"{path}.")
        elif isinstance(value, list):
            found[name] = [
                await _download(visit, one, part, base, f"{path}[{number}]")
                for number, part in enumerate(value)
            ]
        else:
            found[name] = await _download(visit, one, value, base, path)
    return found


async def _download(visit: Visit, one: FileField, value: Any, base: str, path: str) -> Any:
    url = urljoin(base, value) if isinstance(value, str) else str(value)
    return await visit.download(url, field=path, required=one.required, image=one.type == "image")
