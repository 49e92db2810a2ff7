"""What `longline run FILE.yaml` is given: a job file, or a manifest, which is a source itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longline.config.documents import read_document
from longline.config.manifests.kinds import KEY, manifest_in
from longline.config.manifests.pipeline import with_files
from longline.config.spec import read_spec

SUFFIXES = (".yaml", ".yml")


def read_file(path: Path) -> dict[str, Any]:
    """Return what a file says of a job, by the names of JobSpec.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    document = read_document(path)
    if KEY not in document.values:
        return _with_manifest(read_spec(path), path.parent)
    manifest_in(document)
    return {"source": str(path), "manifest": with_files(document.values, path.parent)}


def _with_manifest(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a job's values with the manifest that it names as its source, if it names one."""
    source = values.get("source")
    if not isinstance(source, str) or not source.endswith(SUFFIXES):
        return values
    path = folder / source
    document = read_document(path)
    manifest_in(document)
    return {
        **values,
        "source": str(path),
        "manifest": with_files(document.values, path.parent),
    }
