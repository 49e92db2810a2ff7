"""Enrichers add fields to a record, with their origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from longline.core.model import Note


@dataclass(frozen=True, slots=True)
class Addition:
    """The fields that an enricher adds, notes on empty ones, and their origin."""

    fields: Mapping[str, Any]
    notes: tuple[Note, ...] = ()
    origin: str = ""


class Enricher(Protocol):
    """Adds fields to a record, deterministically and without I/O.

    An unknown value is None with a note, never a guess. An enricher whose results may change has a
    `version`: that of its library, its rates or its table.
    """

    name: str

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        """Return what to add to this data, which is immutable."""


def empty_addition(field: str, why: str, origin: str) -> Addition:
    """Return the addition of an empty field."""
    return Addition({field: None}, (Note(field, why),), origin)
