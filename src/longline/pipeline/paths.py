"""Paths (jmespath) into the data of a draft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from longline.config.manifests.api_paths import compiled, find
from longline.pipeline.frozen import thawed

_OF_FIRST = frozenset(
    {"subexpression", "index_expression", "projection", "value_projection", "flatten", "slice"}
    | {"filter_projection", "pipe"}
)


def look_up(path: str, data: Mapping[str, Any]) -> Any:
    """Return what a path finds in data; None when there is nothing.

    Raises:
        ValueError: a function of the path was given what it cannot work with.
    """
    # Functions of jmespath tell types by the names of their classes, and know only plain ones.
    return find(path, thawed(data) if _has_function(path) else data)


@lru_cache(maxsize=4096)
def roots_of(path: str) -> frozenset[str]:
    """Return the fields of a record that a path begins at."""
    return frozenset(_roots(compiled(path).parsed))


@lru_cache(maxsize=4096)
def _has_function(path: str) -> bool:
    return any(node["type"] == "function_expression" for node in _nodes(compiled(path).parsed))


def _nodes(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, Mapping):
        yield node
        for child in node["children"]:
            yield from _nodes(child)


def _roots(node: Any) -> Iterator[str]:
    if not isinstance(node, Mapping):
        return  # a number of a slice
    if node["type"] == "field":
        yield node["value"]
    elif node["type"] in _OF_FIRST:
        yield from _roots(node["children"][0])
    elif node["type"] != "expref":  # an expression about the entries of a list, not the record
        for child in node["children"]:
            yield from _roots(child)
