"""Fields of items of one kind, each item an element of a list or a page of its own.

A field is a place that most items have and whose value differs between them. Places that say what
they hold (JSON-LD, itemprop, labels, table headers) come before places that only have a class or a
position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.named_places import (
    itemprop_places,
    labelled_places,
    places_on_page,
    title_place,
)
from longline.devtools.propose.places import (
    ADDRESS_ATTRIBUTES,
    FEWEST_FILLED,
    NAMELESS,
    TITLE_NAMES,
    VAGUE_NAMES,
    Place,
    PlaceCandidate,
    Root,
    Trust,
    value_at,
)
from longline.devtools.propose.selectors import (
    following,
)
from longline.devtools.propose.structural_places import structural_places
from longline.devtools.propose.structure import spread_sample
from longline.devtools.propose.values import kind_of

MAX_FIELDS = 25
_LONGEST = 5000  # characters; more is a page, not a field
_PROGRAMS = "en"  # how programs write numbers for other programs
_SAMPLED = 12
_MOST_PLACES = 400
_SELDOM = 0.3  # of the items; what says its name may be missing as often
_FEW = 3  # items; a field must be on all of so few


@dataclass(frozen=True, slots=True)
class ProposedField:
    """A field: its place, its type, and values that were found there."""

    name: str
    place: Place
    samples: Sequence[str]
    kind: str | None = None
    is_required: bool = False
    locale: str | None = None
    """Where it is written differently from the rest of the page."""
    filled: float = 1.0
    """Share of the examined items that have a value."""

    def named(self, name: str) -> ProposedField:
        """Return it under another name."""
        return replace(self, name=name)

    @property
    def where(self) -> str:
        """The place in one line."""
        return str(
            self.place.get("css") or self.place.get("json_ld") or self.place.get("path") or ""
        )


def fields_of_pages(trees: Sequence[LexborHTMLParser], locale: str | None) -> list[ProposedField]:
    """Return the fields that pages of one kind have; with more pages, the choice is surer."""
    seen = _each_once(one for tree in trees for one in places_on_page(tree))
    # On one page alone, a value cannot be distinguished from a label.
    by_structure = structural_places(trees, is_page=True) if len(trees) > 1 else []
    return _choose_fields(trees, [*title_place(trees), *seen, *by_structure], locale)


def fields_of_elements(
    nodes: Sequence[LexborNode], locale: str | None, *, has_followers: bool = False
) -> list[ProposedField]:
    """Return the fields of the elements of a list, and of the element after each."""
    sample = spread_sample(nodes, _SAMPLED)
    seen = _each_once(
        one for node in sample for one in (*itemprop_places(node), *labelled_places(node))
    )
    needed = max(2, _SELDOM * len(sample))
    seen = [one for one in seen if sum(value_at(n, one[1]) is not None for n in sample) >= needed]
    seen += structural_places(sample, is_page=False)
    if has_followers:
        after = [one for node in sample if (one := following(node)) is not None]
        tag = after[0].tag
        for name, place, trust in structural_places(after, is_page=False):
            if not place["css"].startswith("+") and not place.get("many"):
                own = place["css"].removeprefix("@text")
                css = f"+ {tag}{own}" if own.startswith("@") else f"+ {tag} {own}".strip()
                seen.append((name, {**place, "css": css}, trust))
    return _choose_fields(sample, seen, locale)


def _each_once(seen: Iterable[PlaceCandidate]) -> list[PlaceCandidate]:
    return list(
        {repr(place): (name, place, trust) for name, place, trust in reversed(list(seen))}.values()
    )[::-1]


def _choose_fields(
    roots: Sequence[Root], seen: Sequence[PlaceCandidate], locale: str | None
) -> list[ProposedField]:
    """Return the places that hold a field; of places with the same values, the first."""
    found: list[ProposedField] = []
    known: list[tuple[str | None, ...]] = []
    for name, place, trust in seen[:_MOST_PLACES]:
        values = tuple(value_at(root, place) for root in roots)
        if not any(values) or _is_furniture(values, trust) or _is_known(values, known):
            continue
        known.append(values)
        found.append(_make_field(name, place, values, locale, is_required=trust is Trust.REQUIRED))
    found, known = _without_parts(found, known)
    return without_clashes(_ordered(_without_wrappers(found, known))[:MAX_FIELDS])


def _without_parts(
    fields: Sequence[ProposedField], values: Sequence[tuple[str | None, ...]]
) -> tuple[list[ProposedField], list[tuple[str | None, ...]]]:
    """Leave out fields whose values another has, too, and in more items: `h3 a` next to `h3`."""
    filled = [sum(value is not None for value in one) for one in values]
    kept = [
        place
        for place, own in enumerate(values)
        if fields[place].is_required
        or not any(
            filled[other] > filled[place] and _is_known(own, [one])
            for other, one in enumerate(values)
        )
    ]
    return [fields[place] for place in kept], [values[place] for place in kept]


def _without_wrappers(
    fields: Sequence[ProposedField], values: Sequence[Sequence[str | None]]
) -> list[ProposedField]:
    """Leave out fields that are another field with the same words around it: `by Ada (about)`."""
    kept = []
    for field, own in zip(fields, values, strict=True):
        others = [one for one in values if one is not own]
        is_text = "@" not in str(field.place.get("css", "@")) and not field.place.get("many")
        if not (is_text and any(_is_frame(own, one) for one in others)):
            kept.append(field)
    return kept


def _is_frame(outer: Sequence[str | None], inner: Sequence[str | None]) -> bool:
    pairs = [(a, b) for a, b in zip(outer, inner, strict=True) if a is not None]
    if any(b is None or b not in a or a == b for a, b in pairs) or len(pairs) <= 1:
        return False
    return len({tuple(a.split(b or "", 1)) for a, b in pairs}) == 1


def _ordered(fields: Sequence[ProposedField]) -> list[ProposedField]:
    """Put the title first; the rest stays in the order of the page."""
    named = list(fields)
    if not any(one.name in TITLE_NAMES for one in named):
        # Without a better name, what comes first is what people call the item by.
        place = next((n for n, one in enumerate(named) if one.name == NAMELESS), None)
        if place is not None and len(set(named[place].samples)) > 0.8 * len(named[place].samples):
            named[place] = named[place].named("title")
    return sorted(named, key=lambda one: one.name != "title")


def _is_known(values: Sequence[str | None], known: Sequence[Sequence[str | None]]) -> bool:
    """Return True if another field has the same values wherever this one has any."""
    return any(
        all(value is None or value == other for value, other in zip(values, one, strict=True))
        for one in known
    )


def _is_furniture(values: Sequence[str | None], trust: Trust) -> bool:
    """Return True if it is not a field: the same everywhere, mostly empty, or a whole page."""
    filled = [value for value in values if value]
    if any(len(value) > _LONGEST for value in filled):
        return True
    needed = 1.0 if len(values) <= _FEW else FEWEST_FILLED
    if trust is Trust.WEAK and len(filled) < needed * len(values):
        return True
    return trust <= Trust.LIST and len(values) > 1 and len(set(filled)) == 1


def _make_field(
    name: str,
    place: Place,
    values: Sequence[str | None],
    locale: str | None,
    *,
    is_required: bool,
) -> ProposedField:
    samples = [value for value in values if value]
    kind = own_locale = None
    if str(place.get("css", "")).endswith(ADDRESS_ATTRIBUTES):
        kind = "url"
    elif not place.get("many"):
        kind = kind_of(name, samples, locale)
        if kind is None and _is_for_programs(place):
            kind = kind_of(name, samples, _PROGRAMS)
            own_locale = _PROGRAMS if kind else None
    if kind in {"money", "date", "datetime"} and (name in VAGUE_NAMES or name.startswith(NAMELESS)):
        name = "price" if kind == "money" else "date"
    is_required = is_required and None not in values
    filled = len(samples) / len(values)
    return ProposedField(name, place, samples, kind, is_required, own_locale, filled)


def _is_for_programs(place: Place) -> bool:
    """Return True if programs write there for programs, with a point before the decimals."""
    return "json_ld" in place or str(place["css"]).endswith("@content")


def without_clashes(fields: Iterable[ProposedField]) -> list[ProposedField]:
    """Return the fields, with a number behind names that an earlier field has."""
    taken: set[str] = set()
    named = []
    for one in fields:
        name, number = one.name, 2
        while name in taken:
            name, number = f"{one.name}_{number}", number + 1
        taken.add(name)
        named.append(one.named(name))
    return named
