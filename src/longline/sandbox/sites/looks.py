"""How a generated site looks: language, markup, class names and pagination, all from a number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from longline.sandbox.draws import Picks, draw

_ROOTS = ("card", "entry", "tile", "row", "thing", "teaser", "record")
_TITLES = ("title", "name", "heading", "caption")
_PRICES = ("price", "amount", "cost", "tag")
_DATES = ("date", "added", "since", "stamp")
_CODES = ("code", "ref", "sku", "no")
_TEXTS = ("text", "body", "description", "about")
_JOINS = ("__", "-", "_")
_LANGUAGES = ("en", "de", "fr", "bg")


class Frame(StrEnum):
    """What a list, and the facts on a detail page, are built of."""

    LIST = "list"
    TABLE = "table"
    CARDS = "cards"
    ARTICLES = "articles"


class Pager(StrEnum):
    """How a list goes on."""

    NEXT = "next"
    """A link that says so."""
    REL = "rel"
    """A link with rel=next and only a sign to read."""
    NUMBERS = "numbers"
    """Numbered pages in the query."""
    PATHS = "paths"
    """Numbered pages in the path."""
    OFFSET = "offset"
    """Links with an offset in the query."""


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one generated site."""

    language: str
    frame: Frame
    pager: Pager
    root: str
    title: str
    price: str
    added: str
    code: str
    text: str

    @classmethod
    def of(cls, number: int) -> Look:
        """Return the look of the site with this number."""
        picks = Picks(draw(number, "look", "site"))
        root = picks.of(_ROOTS)
        join = picks.of(_JOINS)
        parts = (_TITLES, _PRICES, _DATES, _CODES, _TEXTS)
        title, price, added, code, text = (f"{root}{join}{picks.of(names)}" for names in parts)
        return cls(
            language=picks.of(_LANGUAGES),
            frame=picks.of(tuple(Frame)),
            pager=picks.of(tuple(Pager)),
            root=root,
            title=title,
            price=price,
            added=added,
            code=code,
            text=text,
        )
