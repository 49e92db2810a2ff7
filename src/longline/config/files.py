"""What `longline run FILE.yaml` is given: a job file, or a manifest, which is a source itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from longline.config.addresses import without_password
from longline.config.documents import read_document
from longline.config.manifests.kinds import KEY, manifest_in
from longline.config.manifests.pipeline import with_files
from longline.config.spec import read_spec
from longline.errors import SourceIsAddress

SUFFIXES = (".yaml", ".yml")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# A host with a path, or one that begins with www: what people type without its scheme.
_HOST = re.compile(r"www\.[\w.-]+(:\d+)?(/[^:]*)?|([\w-]+\.)+[a-z]{2,}(:\d+)?/[^:]*", re.IGNORECASE)


def check_reference(reference: str) -> None:
    """Refuse the address of a site, for which a manifest has to be written first.

    Raises:
        SourceIsAddress: it is one.
    """
    if _ADDRESS.match(reference):
        raise SourceIsAddress(without_password(reference))
    is_file = reference.endswith((*SUFFIXES, ".py")) or Path(reference).exists()
    if _HOST.fullmatch(reference) and not is_file:
        raise SourceIsAddress(f"https://{reference}")


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
