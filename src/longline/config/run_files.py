"""What `longline run FILE.yaml` is given: a job file, or a manifest, which is a source itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longline.config.documents import Document, read_document
from longline.config.errors import SourceIsAddress
from longline.config.job_spec import JobSpec, make_spec, read_spec
from longline.config.manifests.kinds import KEY, manifest_in
from longline.config.manifests.pipeline import below, with_files
from longline.core.redaction import redact_url

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
        raise SourceIsAddress(redact_url(reference))
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
        return _with_paths(read_spec(path), document)
    manifest_in(document)
    return {"source": str(path), "manifest": with_files(document.values, path.parent)}


def _with_paths(values: dict[str, Any], document: Document) -> dict[str, Any]:
    """Return a job's values with its paths as they are meant, and the manifest that it names.

    Paths in a file count from the folder of the file, wherever longline is started. A name, or
    `package.module:Class`, is not a path.
    """
    folder = document.path.parent
    if isinstance(values.get("ca_file"), str):
        values = {**values, "ca_file": below(folder, values["ca_file"])}
    source = values["source"]
    file, is_within, name = source.partition(".py:")
    if source.endswith(SUFFIXES):
        path = _existing(source, document)
        manifest = read_document(path)
        manifest_in(manifest)
        return {
            **values,
            "source": str(path),
            "manifest": with_files(manifest.values, path.parent),
        }
    if is_within:
        return {**values, "source": f"{_existing(f'{file}.py', document)}:{name}"}
    if source.endswith(".py"):
        return {**values, "source": str(_existing(source, document))}
    return values


def _existing(source: str, document: Document) -> Path:
    path = document.path.parent / Path(source).expanduser()
    if not path.is_file():
        problem = f"there is no file {path}; a path in a job file counts from the file's own folder"
        raise document.wrong(("source",), problem)
    return path


# ---------------- What one run is told, joined with what is already known of it

_JOINED = ("set", "params", "headers", "budget", "budget_per_domain")  # others are replaced whole


def merged(known: JobSpec, source: str | None, params: Mapping[str, Any]) -> JobSpec:
    """Return the spec of a run.

    Args:
        known: what was said before.
        source: another source, a job file or a manifest; its values win over those known.
        params: what is said now, by the names of JobSpec; it wins over both.

    Raises:
        ConfigError: a file is broken, a name unknown, or a value does not fit.
    """
    values = known.stated()
    if source is not None and source != known.source:
        for name in ("set", "manifest"):  # those of another source do not fit this one
            values.pop(name, None)
    if source:
        check_reference(source)
    if source and source.endswith(SUFFIXES):
        values.update(read_file(Path(source)))
    elif source:
        values["source"] = source
    for name, value in params.items():
        is_partial = name in _JOINED and isinstance(value, Mapping)
        values[name] = {**values.get(name, {}), **value} if is_partial else value
    return make_spec(values)
