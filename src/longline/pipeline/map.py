"""The stage that renames, selects and drops fields, with their provenance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
        data = draft.data
        rest = {n: v for n, v in data.items() if self._keeps_rest and n not in self._picks}
        picked = {name: self._pick(draft, name) for name, pick in self._picks.items() if pick}
        origins = {name: origin for name in picked if (origin := self._origin(draft, name))}
        kept = {name: origin for name, origin in draft.provenance.items() if name in rest}
        notes = (*self._renamed_notes(draft, picked), *self._gap_notes(draft, picked))
        return replace(draft, data={**rest, **picked}, notes=notes, provenance={**kept, **origins})

    def _pick(self, draft: Draft, name: str) -> Any:
        pick = self._picks[name]
        if pick is None or pick.path is None:
            return pick and pick.value
        try:
            return find_in_data(pick.path, draft.data)
        except ValueError as error:
            raise UnexpectedShape(f"item {draft.key}", f"{name}: {error}") from error

    def _origin(self, draft: Draft, name: str) -> str:
        if name not in self._roots:
            return "map, a constant"
        found = (draft.provenance.get(root) for root in sorted(self._roots[name]))
        return "; ".join(dict.fromkeys(origin for origin in found if origin))

    def _renamed_notes(self, draft: Draft, picked: Iterable[str]) -> Iterator[Note]:
        """Yield the notes under the new names of their fields, without those of dropped fields."""
        new_names = {
            root: [name for name in picked if self._roots.get(name) == frozenset({root})]
            for root in {note.field for note in draft.notes if note.field in draft.data}
        }
        for note in draft.notes:
            is_kept = self._keeps_rest and note.field not in self._picks
            if note.field not in new_names or is_kept:
                yield note
            yield from (Note(name, note.text) for name in new_names.get(note.field, ()))

    def _gap_notes(self, draft: Draft, picked: Mapping[str, Any]) -> Iterator[Note]:
        """Yield a note for each field that was not found and has no note yet."""
        noted = {note.field for note in draft.notes}
        for name, value in picked.items():
            roots = self._roots.get(name)
            if value is None and roots is not None and not (len(roots) == 1 and roots <= noted):
                pick = self._picks[name]
                yield Note(name, f"{pick and pick.path!r} finds nothing")
