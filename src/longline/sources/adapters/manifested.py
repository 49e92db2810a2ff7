"""What every manifest says, as the attributes of the class that it becomes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from pydantic import Field, create_model

from longline.config.manifests.base import Manifest, Parameter
from longline.core.errors import DiscoveryFailed
from longline.core.model import Cursor, Item
from longline.sources.base import Options

_TYPES: Mapping[str, type] = {"text": str, "integer": int, "number": float, "boolean": bool}


def attributes_of(manifest: Manifest) -> dict[str, Any]:
    """Return name, options, pace, headers and the like by the names that a source has for them."""
    return {
        "__doc__": manifest.about or f"The source {manifest.name}, from a manifest.",
        "__module__": __name__,
        "name": manifest.name,
        "version": manifest.version,
        "Options": options_of(manifest.parameters),
        "rate": None if manifest.rate == "unlimited" else manifest.rate,
        "burst": manifest.burst,
        "max_in_flight": manifest.max_in_flight,
        "headers": manifest.headers,
        "cookies": True if manifest.cookies is None else manifest.cookies,
        "auth": manifest.auth,
        "cache": manifest.cache,
        "ca_file": manifest.ca_file,
        "private_hosts": manifest.private_hosts,
        "expects": manifest.expects,
        "volatile": manifest.volatile,
        "usually_empty": manifest.usually_empty,
        "transport": manifest.transport,
        "pipeline": manifest.pipeline,
    }


def options_of(parameters: Mapping[str, Parameter]) -> type[Options]:
    """Return the model of what a user may set; a parameter without a default must be set."""
    fields: dict[str, Any] = {name: _field(one) for name, one in parameters.items()}
    model: type[Options] = create_model("ManifestOptions", __base__=Options, **fields)
    return model


def _field(parameter: Parameter) -> tuple[Any, Any]:
    default: Any = ... if parameter.default is None else parameter.default
    return _TYPES[parameter.type], Field(default=default, description=parameter.about or None)


# ---------------- A list without a single item: a failure for every kind of manifest, unless it

Found = AsyncGenerator[Item | Cursor, None]


async def not_empty(found: Found, source: str, advice: str) -> Found:
    """Yield what discovery finds.

    Args:
        found: the items and cursors.
        source: its name.
        advice: what to look at when nothing is found.

    Raises:
        DiscoveryFailed: there was no item.
    """
    is_empty = True
    async with aclosing(found) as stream:
        async for one in stream:
            is_empty = is_empty and isinstance(one, Cursor)
            yield one
    if is_empty:
        problem = f"no item was found: {advice}, or write may_be_empty: true"
        raise DiscoveryFailed(source, problem)
