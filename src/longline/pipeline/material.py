"""The results of the layers of one attempt, from which its record can be made again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from longline.core.errors import error_text
from longline.core.json import NoData, kind_of_value, to_json
from longline.core.model import Note
from longline.pipeline.stages import ValidationFailed

_FORMAT = 2
_NO_DATA, _SHOWN = "longline.no_data", "shown"  # how a value that is not data is stored
_PARTS = ("results", "notes", "provenance", "origins", "layers")


@dataclass(frozen=True, slots=True)
class Material:
    """The input of the pipeline.

    `provenance` names the layer and address of each field, `origins` overrides it for some fields;
    `layers` says how each layer ended. `problems` are the reasons of a quarantine.
    """

    results: Mapping[str, Mapping[str, Any]]
    notes: Sequence[Note] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def as_raw(self, error: BaseException | None = None) -> dict[str, Any]:
        """Return it as it is stored with an item, with the problems of an error."""
        # Every item passes here, so nothing is copied; the writer encodes it.
        raw: dict[str, Any] = {
            "format": _FORMAT,
            "results": self.results,
            "notes": self.notes,
            "provenance": self.provenance,
            "origins": self.origins,
            "layers": self.layers,
        }
        if error is not None:
            raw["problems"] = (
                error.problems if isinstance(error, ValidationFailed) else [error_text(error)]
            )
        return raw


def pack_raw(raw: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return `as_raw` as ASCII JSON, which every database can store; None on failure.

    The JSON of the standard library writes lone surrogates and integers of any size. A value that
    is not data is stored as its type and its repr, and is still not data when it is read again.
    """
    try:
        return None if raw is None else {"packed": json.dumps(raw, default=_encode_value)}
    except (TypeError, ValueError, RecursionError):
        return None


def unpack_material(raw: Any) -> Material:
    """Return the material that is stored with an item; empty if there is none."""
    if isinstance(raw, Mapping) and isinstance(raw.get("packed"), str):
        raw = json.loads(raw["packed"], object_hook=_decode_object)
    if not isinstance(raw, Mapping):
        return Material({})
    kept = {name: raw.get(name) or {} for name in _PARTS}
    notes = tuple(Note(str(one["field"]), str(one["text"])) for one in kept.pop("notes"))
    return Material(**kept, notes=notes, problems=tuple(raw.get("problems") or ()))


def _encode_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    try:
        return json.loads(to_json(value))
    except TypeError:
        pass
    try:
        shown = value.shown if isinstance(value, NoData) else repr(value)
    except Exception:  # noqa: BLE001  # the code of a source, which may do anything
        shown = object.__repr__(value)
    return {_NO_DATA: kind_of_value(value), _SHOWN: shown}


def _decode_object(found: dict[str, Any]) -> Any:
    is_data = set(found) != {_NO_DATA, _SHOWN}
    return found if is_data else NoData(found[_NO_DATA], found[_SHOWN])
