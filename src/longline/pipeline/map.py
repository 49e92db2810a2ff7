"""The stage that renames, selects and drops fields, with their provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from longline.config.expressions import compile_path, find
from longline.core.errors import UnexpectedShape
from longline.core.model import Note
from longline.pipeline.manifest import REST, Step
from longline.pipeline.stages import Draft, checked_step, to_plain

_OF_FIRST = frozenset(
    {"subexpression", "index_expression", "projection", "value_projection", "flatten", "slice"}
    | {"filter_projection", "pipe"}
)


def find_in_data(path: str, data: Mapping[str, Any]) -> Any:
    """Return the value at a path (jmespath) in data; None when there is none.

    Raises:
        ValueError: a function of the path does not accept its argument.
    """
    # Functions of jmespath recognise types by the names of their classes.
    return find(path, to_plain(data) if _has_function(path) else data)


@lru_cache(maxsize=4096)
def _has_function(path: str) -> bool:
    return _contains_function(compile_path(path).parsed)


def _contains_function(node: Any) -> bool:
    if not isinstance(node, Mapping):
        return False
    is_function = node["type"] == "function_expression"
    return is_function or any(map(_contains_function, node["children"]))


def _roots_of(node: Any) -> Iterator[str]:
    """Yield the fields of a record at which a parsed path begins."""
    if not isinstance(node, Mapping):
        return  # a number of a slice
    if node["type"] == "field":
        yield node["value"]
    elif node["type"] in _OF_FIRST:
        yield from _roots_of(node["children"][0])
    elif node["type"] != "expref":  # an expression about the entries of a list, not the record
        for child in node["children"]:
            yield from _roots_of(child)


class Map:
    """Makes the fields of a record from collected fields.

    Args:
        fields: the fields of the record, each with its path (jmespath), `{"value": …}` for a
            constant, or None to drop it. `"*": "*"` keeps all other fields.
    """

    name = "map"

    def __init__(self, fields: Mapping[str, Any]) -> None:
        written = checked_step(Step, map=dict(fields)).map or {}
        self._keeps_rest = REST in written
        self._picks = {name: pick for name, pick in written.items() if name != REST}
        self._roots = {
            name: frozenset(_roots_of(compile_path(pick.path).parsed))
            for name, pick in self._picks.items()
            if pick is not None and pick.path is not None
        }

    def __call__(self, draft: Draft) -> Draft:
        rest = {n: v for n, v in draft.data.items() if self._keeps_rest and n not in self._picks}
        picked: dict[str, Any] = {}
        origins = {name: origin for name, origin in draft.provenance.items() if name in rest}
        notes = [note for note in draft.notes if note.field not in draft.data or note.field in rest]
        for name, pick in self._picks.items():
            if pick is None:
                continue
            if pick.path is None:
                picked[name], origins[name] = pick.value, "map, a constant"
                continue
            try:
                picked[name] = find_in_data(pick.path, draft.data)
            except ValueError as error:
                raise UnexpectedShape(f"item {draft.key}", f"{name}: {error}") from error
            roots = self._roots[name]
            found = [draft.provenance[root] for root in sorted(roots) if root in draft.provenance]
            if found:
                origins[name] = "; ".join(dict.fromkeys(found))
            # A note follows the only field that a path reads.
            own = [note.text for note in draft.notes if {note.field} == roots]
            if picked[name] is None and not own:
                own = [f"{pick.path!r} finds nothing"]
            notes += [Note(name, text) for text in own]
        return replace(draft, data={**rest, **picked}, notes=tuple(notes), provenance=origins)
