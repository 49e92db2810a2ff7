"""Fields of pages that are alike: what stands in the same place on each, and what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from longline.authoring.guessing import kind_of
from longline.authoring.naming import without_clashes
from longline.authoring.places import Seen, Trust, candidates, things
from longline.authoring.proposals import ProposedField
from longline.sources.adapters.html_text import text_of

_LONGEST = 5000  # characters; more is a page, not a field
_PROGRAMS = "en"

Trees = Sequence[LexborHTMLParser]


def propose_fields(trees: Trees, locale: str | None) -> list[ProposedField]:
    """Return fields that pages of one kind have; the more pages, the surer.

    What nothing but its class speaks for must be on every page, and be something else on each. Of
    places with the same values the first is taken.
    """
    found: list[ProposedField] = []
    known: set[tuple[str | None, ...]] = set()
    for name, place, trust in _of_all(trees):
        values = tuple(_value(tree, place) for tree in trees)
        if values in known or not any(values) or _is_furniture(values, trust):
            continue
        known.add(values)
        found.append(_field(name, place, values, locale, is_required=trust is Trust.REQUIRED))
    return without_clashes(found)


def _of_all(trees: Trees) -> Iterator[Seen]:
    """Yield the places of all pages, each once: a page may lack what another has."""
    known: set[str] = set()
    for tree in trees:
        for name, place, trust in candidates(tree):
            if (mark := repr(place)) not in known:
                known.add(mark)
                yield name, place, trust


def _field(
    name: str,
    place: Mapping[str, Any],
    values: Sequence[str | None],
    locale: str | None,
    *,
    is_required: bool,
) -> ProposedField:
    samples = [value for value in values if value]
    kind = own_locale = None
    if not place.get("many"):
        kind = kind_of(name, samples, locale)
        if kind is None and _is_for_programs(place):
            kind = kind_of(name, samples, _PROGRAMS)
            own_locale = _PROGRAMS if kind else None
    is_required = is_required and None not in values
    return ProposedField(name, place, samples, kind, is_required, own_locale)


def _is_for_programs(place: Mapping[str, Any]) -> bool:
    """Say whether programs write there for programs, with a point before the decimals."""
    return "json_ld" in place or str(place["css"]).endswith("@content")


def _is_furniture(values: Sequence[str | None], trust: Trust) -> bool:
    """Say whether it is no field: all pages have the same there, or it is a page in itself."""
    if any(len(value) > _LONGEST for value in values if value):
        return True
    if trust is Trust.WEAK and None in values:
        return True
    return trust <= Trust.LIST and len(values) > 1 and len(set(values)) == 1


def _value(tree: LexborHTMLParser, place: Mapping[str, Any]) -> str | None:
    """Return what stands in a place."""
    if place.get("many"):
        return ", ".join(filter(None, map(text_of, tree.css(place["css"])))) or None
    if path := place.get("json_ld"):
        return _in_json_ld(tree, path)
    selector, _, attribute = place["css"].partition("@")
    node = tree.css_first(selector)
    if node is None:
        return None
    return ((node.attributes.get(attribute) or "") if attribute else text_of(node)).strip() or None


def _in_json_ld(tree: LexborHTMLParser, path: str) -> str | None:
    kind, *steps = re.split(r"\.|(?=\[)", path)
    value: Any = next((thing for name, thing in things(tree) if name == kind), None)
    for step in steps:
        if step == "[0]":
            value = value[0] if isinstance(value, list) and value else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | int | float) and value != "" else None
