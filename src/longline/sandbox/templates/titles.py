"""Titles, slugs and authors: the cheap facts of a template, made without the rest of it."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from longline.sandbox.seeded import Picks, draw
from longline.sandbox.templates import words

_CYRILLIC_PERCENT = 2
_ODD_PERCENT = 5  # with the Cyrillic ones
_NOT_IN_A_SLUG = re.compile(r"[^a-z0-9]+")


def make_title(seed: int, template: int, *, odd_shapes: bool) -> str:
    """Return the title of a template; a few are not ASCII when odd shapes are wanted."""
    picks = Picks(draw(seed, "title", template))
    return picks.of(_patterns(picks.below(100), odd_shapes=odd_shapes)).format(
        verb=picks.of(words.VERBS),
        thing=picks.of(words.THINGS),
        app=picks.of(words.APPS),
        other=picks.of(words.APPS),
        model=picks.of(words.MODELS),
    )


def is_cyrillic(title: str) -> bool:
    """Return whether the title is in Bulgarian or Russian."""
    return title.startswith(tuple(text.split(maxsplit=1)[0] for text in words.CYRILLIC_TITLES))


def make_slug(title: str) -> str:
    """Return the readable part of a page's address: small letters, digits and hyphens."""
    ascii_title = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_A_SLUG.sub("-", ascii_title).strip("-") or "template"


def make_author(seed: int, number: int, site: str) -> dict[str, Any]:
    """Return the author of this number as the answers show one."""
    picks = Picks(draw(seed, "author", number))
    first, last = picks.of(words.FIRST_NAMES), picks.of(words.LAST_NAMES)
    bio = picks.of((None, *words.BIOS))
    username = f"{first}{last}{number}".lower()
    return {
        "id": 1000 + number,
        "name": f"{first} {last}",
        "username": username,
        "bio": bio,
        "verified": picks.below(10) < 6,  # noqa: PLR2004  # six of ten
        "links": [f"https://{username}.example"] if picks.below(2) else [],
        "avatar": f"{site}/avatars/{number}.png",
    }


def _patterns(percent: int, *, odd_shapes: bool) -> tuple[str, ...]:
    if not odd_shapes or percent >= _ODD_PERCENT:
        return words.TITLE_PATTERNS
    return words.CYRILLIC_TITLES if percent < _CYRILLIC_PERCENT else words.ODD_TITLE_PATTERNS
