"""Material: all that the layers left of one try, and enough to make its record once more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from longline.core.errors import text_of
from longline.core.json_values import NoData, kind_of_value, to_json
from longline.core.model import Note
from longline.pipeline.errors import ValidationFailed

_FORMAT = 2  # the first had only the results, and no name for them
_NO_DATA, _SHOWN = "longline.no_data", "shown"  # how a value that is none is kept
_PARTS = ("results", "notes", "provenance", "origins", "layers")


@dataclass(frozen=True, slots=True)
class Material:
    """What a record is made of.

    `provenance` names the layer and address each field came from, `origins` replaces that for
    single fields; `layers` says how each layer ended. `problems` is what was wrong with it.
    """

    results: Mapping[str, Mapping[str, Any]]
    notes: Sequence[Note] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    layers: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def as_raw(self, error: BaseException | None = None) -> dict[str, Any]:
        """Return it as it is kept with an item, with all that an error says is wrong with it."""
        # On the busy path of every item, so nothing is copied: that is left to whoever writes it.
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
                error.problems if isinstance(error, ValidationFailed) else [text_of(error)]
            )
        return raw


def pack_raw(raw: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return what a try was made of as ASCII, which every database holds; None: even that fails.

    The library's own JSON writes half a surrogate pair and numbers of any size. What is no data is
    kept as its type and how it shows itself, and is none either when it is made a record again.
    """
    try:
        return None if raw is None else {"packed": json.dumps(raw, default=_plain)}
    except (TypeError, ValueError, RecursionError):
        return None


def unpack_material(raw: Any) -> Material:
    """Return the material that was kept with an item, in this format or in an older one."""
    if isinstance(raw, Mapping) and isinstance(raw.get("packed"), str):
        raw = json.loads(raw["packed"], object_hook=_unpacked)
    if not isinstance(raw, Mapping):
        return Material({})
    if not isinstance(raw.get("format"), int):  # a layer may well be called format
        results = {name: one for name, one in raw.items() if isinstance(one, Mapping)}
        return Material(results, layers=dict.fromkeys(results, "ok"))
    kept = {name: raw.get(name) or {} for name in _PARTS}
    notes = tuple(Note(str(one["field"]), str(one["text"])) for one in kept.pop("notes"))
    return Material(**kept, notes=notes, problems=tuple(raw.get("problems") or ()))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    try:
        return json.loads(to_json(value))
    except TypeError:
        return {_NO_DATA: kind_of_value(value), _SHOWN: _shown(value)}


def _shown(value: Any) -> str:
    if isinstance(value, NoData):
        return value.shown
    try:
        return repr(value)
    except Exception:  # noqa: BLE001  # the code of a source, which may do anything
        return object.__repr__(value)


def _unpacked(found: dict[str, Any]) -> Any:
    is_data = set(found) != {_NO_DATA, _SHOWN}
    return found if is_data else NoData(found[_NO_DATA], found[_SHOWN])
