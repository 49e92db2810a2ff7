"""Which kinds of manifests there are, and the way from what is written to a manifest."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from longline.config.documents import Document, check, read_document
from longline.config.manifests.base import Manifest
from longline.core.errors import BadFile, BadOption

# Imported only when one is used: a run of one kind does not pay for the others.
_MODELS = {
    "html": "longline.config.manifests.html:HtmlManifest",
    "api": "longline.config.manifests.api:ApiManifest",
    "command": "longline.config.manifests.command:CommandManifest",
}
KINDS = tuple(_MODELS)
KEY = "manifest"
"""What every manifest begins with, and no job file has: its kind."""


def model_of(kind: Any) -> type[Manifest]:
    """Return the model of a kind.

    Raises:
        BadOption: there is no such kind.
    """
    if not isinstance(kind, str) or kind not in _MODELS:
        raise BadOption(KEY, f"must be one of {', '.join(KINDS)}, not {kind!r:.60}")
    module, _, name = _MODELS[kind].partition(":")
    model: type[Manifest] = getattr(importlib.import_module(module), name)
    return model


def read_manifest(path: Path) -> Manifest:
    """Read a manifest from a file.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    return manifest_in(read_document(path))


def manifest_in(document: Document) -> Manifest:
    """Return the manifest that a document holds.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    try:
        model = model_of(document.values.get(KEY))
    except BadOption as error:
        raise BadFile(str(document.path), str(error), *document.place((KEY,))) from error
    return check(document, model)


def make_manifest(values: Mapping[str, Any]) -> Manifest:
    """Return the manifest that a job has kept.

    Raises:
        BadOption: it does not fit this version.
    """
    try:
        return model_of(values.get(KEY)).model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or KEY
        raise BadOption(name, first["msg"]) from None
