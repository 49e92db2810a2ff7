"""A stage of the pipeline: a draft of a record in, a draft out, and nothing changed in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from longline.model import Note
from longline.pipeline.frozen import frozen


@dataclass(frozen=True, slots=True)
class Draft:
    """What an item has become so far; its data cannot be changed, at any depth."""

    key: str
    url: str
    source: str
    data: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", frozen(self.data))
        object.__setattr__(self, "provenance", frozen(self.provenance))

    def with_data(self, data: Mapping[str, Any], *notes: Note, **changes: Any) -> Draft:
        """Return the same draft with other data, and with these notes beside its own."""
        return replace(self, data=data, notes=(*self.notes, *notes), **changes)


class Stage(Protocol):
    """Makes a draft of a draft; the same one of the same, and without asking anybody.

    Raises NothingToStore for what is no record (it is skipped with the reason), and
    UnexpectedShape for what does not fit (it is quarantined).
    """

    name: str

    def __call__(self, draft: Draft) -> Draft:
        """Return the draft as it leaves this stage."""
