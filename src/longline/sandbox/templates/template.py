"""The template model, and the interface of its origins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Summary:
    """What lists are sorted and filtered by; `created` is in seconds since the epoch."""

    id: int
    title: str
    categories: tuple[str, ...]
    views: int
    created: float


@dataclass(frozen=True, slots=True)
class Template:
    """A template, cut the way the answers need it.

    `detail` is the detail answer without `id`, `name` and `workflow`; `extras` are fields that only
    other answers have. `integrations` are the address part and the name of each app in it.
    """

    id: int
    name: str
    workflow: Mapping[str, Any]
    detail: Mapping[str, Any]
    extras: Mapping[str, Any] = field(default_factory=dict)
    integrations: Sequence[tuple[str, str]] = ()


class Shelf(Protocol):
    """Where templates come from."""

    @property
    def ids(self) -> Sequence[int]:
        """Every id there is, smallest first."""

    def title(self, template: int) -> str:
        """Return the title; costs little."""

    def summary(self, template: int) -> Summary:
        """Return what lists need; costs little."""

    def template(self, template: int) -> Template:
        """Return all of it."""
