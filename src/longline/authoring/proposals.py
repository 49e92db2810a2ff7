"""What is proposed to an author: a manifest in the making, each part with what it was seen in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from longline.authoring.lists import ItemList
from longline.authoring.paging import Pages


@dataclass(frozen=True, slots=True)
class ProposedField:
    """A field: where it stands, what it is read as, and what was there.

    `place` is what a manifest says: {"css": …} or {"json_ld": …}.
    """

    name: str
    place: Mapping[str, Any]
    samples: Sequence[str]
    kind: str | None = None
    is_required: bool = False
    locale: str | None = None
    """Where it is written otherwise than the rest of the page."""

    def named(self, name: str) -> ProposedField:
        """Return it under another name."""
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A manifest in the making."""

    name: str
    url: str
    items: ItemList | None
    """None: the page itself is all there is."""
    pages: Pages | None = None
    fields: Sequence[ProposedField] = ()
    locale: str | None = None
    details: Sequence[str] = ()
    """Addresses of the pages that the fields were seen on."""
    notes: Sequence[str] = field(default_factory=list)

    def having(self, **changes: Any) -> Proposal:
        """Return it with some parts changed."""
        return replace(self, **changes)
