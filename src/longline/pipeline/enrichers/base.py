"""Enricher: something that adds fields to a record, and says where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from longline.core.model import Note


@dataclass(frozen=True, slots=True)
class Addition:
    """What an enricher adds: fields, why one is empty, and what they were made of."""

    fields: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    origin: str = ""


class Enricher(Protocol):
    """Adds to a record; the same to the same one, at once, and without asking anybody.

    What it cannot know is None with a note, never a guess. One that may say something else another
    year has a `version`, too: of its library, its rates, its table.
    """

    name: str

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        """Return what to add to this data, which cannot be changed."""


def empty_addition(field: str, why: str, origin: str) -> Addition:
    """Return the addition of an empty field."""
    return Addition({field: None}, (Note(field, why),), origin)
