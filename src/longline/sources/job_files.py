"""What `longline run REFERENCE` starts: a job file, a manifest, or a source by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longline.config.documents import Document, read_document
from longline.config.job_spec import JobSpec, make_spec, read_spec
from longline.core.errors import SourceIsAddress
from longline.core.redaction import redact_url
from longline.sources.library import SUFFIXES, check_is_job
from longline.sources.manifest import KIND, absolute_path, parse_manifest, resolve_files

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# A host with a path, or one that starts with www: a URL that was typed without its scheme.
_HOST = re.compile(r"www\.[\w.-]+(:\d+)?(/[^:]*)?|([\w-]+\.)+[a-z]{2,}(:\d+)?/[^:]*", re.IGNORECASE)
_MERGED = ("set", "params", "headers", "budget", "budget_per_domain")  # others are replaced


def check_reference(reference: str) -> None:
    """Refuse the URL of a site, which needs a manifest first.

    Raises:
        SourceIsAddress: the reference is a URL.
    """
    if _URL.match(reference):
        raise SourceIsAddress(redact_url(reference))
    is_file = reference.endswith((*SUFFIXES, ".py")) or Path(reference).exists()
    if _HOST.fullmatch(reference) and not is_file:
        raise SourceIsAddress(f"https://{reference}")


def read_job_file(path: Path) -> dict[str, Any]:
    """Return the values of a job file or manifest, by the names of JobSpec.

    Raises:
        BadFile: the file is invalid.
    """
    document = read_document(path)
    if KIND not in document.values:
        check_is_job(document)
        return _resolve_paths(read_spec(path), document)
    return _manifest_values(document)


def _manifest_values(document: Document) -> dict[str, Any]:
    parse_manifest(document)
    path = document.path
    return {"source": str(path), "manifest": resolve_files(document.values, path.parent)}


def _resolve_paths(values: dict[str, Any], document: Document) -> dict[str, Any]:
    """Return the values of a job with absolute paths, and with the manifest that it names.

    Paths are relative to the folder of the job file. A name, or `package.module:Class`, is not a
    path.
    """
    if isinstance(values.get("ca_file"), str):
        values = {**values, "ca_file": absolute_path(document.path.parent, values["ca_file"])}
    source = values["source"]
    file, is_within, name = source.partition(".py:")
    if source.endswith(SUFFIXES):
        return {**values, **_manifest_values(read_document(_existing_file(source, document)))}
    if is_within:
        return {**values, "source": f"{_existing_file(f'{file}.py', document)}:{name}"}
    if source.endswith(".py"):
        return {**values, "source": str(_existing_file(source, document))}
    return values


def _existing_file(source: str, document: Document) -> Path:
    path = document.path.parent / Path(source).expanduser()
    if not path.is_file():
        problem = f"there is no file {path}; paths are relative to the folder of the job file"
        raise document.error(("source",), problem)
    return path


def merge_spec(base: JobSpec, source: str | None, params: Mapping[str, Any]) -> JobSpec:
    """Return the spec of a run.

    Args:
        base: what was set before.
        source: another source, a job file or a manifest; its values override those of `base`.
        params: values by the names of JobSpec, which override both.

    Raises:
        ConfigError: a file is invalid, a name unknown, or a value does not fit.
    """
    values = base.stated()
    if source is not None and source != base.source:
        for name in ("set", "manifest"):  # those of another source do not apply
            values.pop(name, None)
    if source:
        check_reference(source)
    if source and source.endswith(SUFFIXES):
        values.update(read_job_file(Path(source)))
    elif source:
        values["source"] = source
    for name, value in params.items():
        is_merged = name in _MERGED and isinstance(value, Mapping)
        values[name] = {**values.get(name, {}), **value} if is_merged else value
    return make_spec(values)
