"""The catalogue of the practice web: its templates, and where each is available."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache

from longline.sandbox.seeded import chance, draw
from longline.sandbox.templates.template import Shelf, Summary, Template
from longline.sandbox.templates.titles import make_slug

_GAP_SHARE = 0.02
_KEPT = 128  # a client asks for one template in several forms, one right after the other


class Form(StrEnum):
    """The forms in which a template is published."""

    PAGE = "page"
    DETAIL = "detail"
    FLAT = "flat"
    STRAPI = "strapi"


class Catalogue:
    """The templates of a shelf, and what is missing where.

    `missing` is the share of ids that are listed in the sitemap and exist nowhere else. With
    `has_gaps`, about 2 % of the others have no flat form, 2 % neither detail nor flat form, and
    2 % neither detail nor Strapi form: each can still be had in another one.
    """

    def __init__(
        self, shelf: Shelf, seed: int, *, missing: float = 0.0, has_gaps: bool = True
    ) -> None:
        self._shelf = shelf
        self._seed = seed
        self._has_gaps = has_gaps
        self._missing = _choose_missing(shelf.ids, seed, missing)
        self._template = lru_cache(maxsize=_KEPT)(shelf.template)

    def __len__(self) -> int:
        return len(self._shelf.ids)

    def __contains__(self, template: int) -> bool:
        place = bisect_left(self._shelf.ids, template)
        return place < len(self) and self._shelf.ids[place] == template

    @property
    def ids(self) -> Sequence[int]:
        """Every id of the sitemap, smallest first."""
        return self._shelf.ids

    @property
    def missing(self) -> frozenset[int]:
        """The ids that return 404 at every URL."""
        return self._missing

    @property
    def obtainable(self) -> tuple[int, ...]:
        """The ids that are available in some form, smallest first."""
        return tuple(number for number in self.ids if number not in self._missing)

    def title(self, template: int) -> str:
        """Return the title of a template."""
        return self._shelf.title(template)

    def path(self, template: int) -> str:
        """Return the path of its page, as the sitemap has it."""
        return f"/workflows/{template}-{make_slug(self.title(template))}/"

    def summaries(self) -> Iterator[Summary]:
        """Go through what lists need, newest id first; what is missing is in no list."""
        return (self._shelf.summary(n) for n in reversed(self.ids) if n not in self._missing)

    def template(self, template: int) -> Template:
        """Return a template; it must be one of `ids`."""
        return self._template(template)

    def has(self, template: int, form: Form) -> bool:
        """Return whether this form of a template is available."""
        if template in self._missing or template not in self:
            return False
        return form not in self.gaps(template)

    def gaps(self, template: int) -> frozenset[Form]:
        """Return the forms that this template does not have."""
        if not self._has_gaps:
            return frozenset()
        place = chance(self._seed, "gap", template) / _GAP_SHARE
        return _GAPS[int(place)] if place < len(_GAPS) else frozenset()


_GAPS = (
    frozenset({Form.FLAT}),
    frozenset({Form.DETAIL, Form.FLAT}),
    frozenset({Form.DETAIL, Form.STRAPI}),
)


def _choose_missing(ids: Sequence[int], seed: int, share: float) -> frozenset[int]:
    # An exact number of them, so that a test knows what to expect of ten templates too.
    wanted = round(len(ids) * share)
    if not wanted:
        return frozenset()
    return frozenset(sorted(ids, key=lambda number: draw(seed, "missing", number))[:wanted])
