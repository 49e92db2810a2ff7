"""Material: all that the layers left of one try, and enough to make its record once more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longline.errors import Misfit
from longline.model import Note

_FORMAT = 2  # the first had only the results, and no name for them
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
            raw["problems"] = error.problems if isinstance(error, Misfit) else [str(error)]
        return raw


def material_of(raw: Any) -> Material:
    """Return the material that was kept with an item, in this format or in an older one."""
    if isinstance(raw, Mapping) and isinstance(raw.get("packed"), str):
        raw = json.loads(raw["packed"])
    if not isinstance(raw, Mapping):
        return Material({})
    if not isinstance(raw.get("format"), int):  # a layer may well be called format
        results = {name: one for name, one in raw.items() if isinstance(one, Mapping)}
        return Material(results, layers=dict.fromkeys(results, "ok"))
    kept = {name: raw.get(name) or {} for name in _PARTS}
    notes = tuple(Note(str(one["field"]), str(one["text"])) for one in kept.pop("notes"))
    return Material(**kept, notes=notes, problems=tuple(raw.get("problems") or ()))
