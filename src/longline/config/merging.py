"""What one run is told, joined with what is already known of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longline.config.files import SUFFIXES, check_reference, read_file
from longline.config.spec import JobSpec, make_spec

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
