"""Fields of items, each item an element of a list or a page of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.places import (
    ADDRESS_ATTRIBUTES,
    ASIDE,
    HEADINGS,
    IMAGE_ATTRIBUTES,
    NAMELESS,
    Place,
    PlaceCandidate,
    Root,
    Trust,
    field_name,
    itemprop_places,
    kind_of,
    labelled_places,
    last_word,
    places_on_page,
    repeated_places,
    title_place,
    value_at,
)
from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
    data_selectors,
    following,
    found_by,
    is_utility,
    module_name,
    module_selectors,
    names_of,
    own_selectors,
    own_text,
    place_among,
)
from longline.devtools.propose.structure import Group, spread_sample
from longline.sources.html.content import node_text

MAX_FIELDS = 25
_SAMPLED = 12
_MOST_PLACES = 400
_LONGEST = 5000  # characters; more is a page, not a field
_PROGRAMS = "en"  # how programs write numbers for other programs
_SELDOM = 0.3  # of the items; what says its name may be missing as often
_FEWEST_FILLED = 0.5  # of the items, for places without a name; all of three and fewer


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
    by_structure = _structural_places(trees, is_page=True) if len(trees) > 1 else []
    return _choose_fields(trees, [*title_place(trees), *seen, *by_structure], locale)


def fields_of_elements(group: Group, locale: str | None) -> list[ProposedField]:
    """Return the fields of the elements of a list, and of the element after each."""
    sample = spread_sample(group.nodes, _SAMPLED)
    seen = _each_once(
        one for node in sample for one in (*itemprop_places(node), *labelled_places(node))
    )
    needed = max(2, _SELDOM * len(sample))
    seen = [one for one in seen if sum(value_at(n, one[1]) is not None for n in sample) >= needed]
    seen += _structural_places(sample, is_page=False)
    if group.followers:
        after = [one for node in sample if (one := following(node)) is not None]
        for name, place, trust in _structural_places(after, is_page=False):
            if not place.get("many"):
                own = place["css"].removeprefix("@text")
                css = f"+ dd{own}" if own.startswith("@") else f"+ dd {own}".strip()
                seen.append((name, {**place, "css": css}, trust))
    return _choose_fields(sample, seen, locale)


def without_clashes(fields: Iterable[ProposedField]) -> list[ProposedField]:
    """Return the fields, with a number behind names that an earlier field has."""
    used: set[str] = set()
    named = []
    for one in fields:
        name, number = one.name, 2
        while name in used:
            name, number = f"{one.name}_{number}", number + 1
        used.add(name)
        named.append(replace(one, name=name))
    return named


# ---------------- Choose the places that hold a field

_TITLE_NAMES = frozenset({"title", "name", "headline", "heading", "subject"})
_VAGUE_WORDS = """
    txt value val wrapper inner outer container content item box cell col column row block
    body main wrap left right top bottom info data span div field link href a p li list group small
    strong bold large primary secondary muted media figure object element style
"""
_VAGUE_NAMES = frozenset(_VAGUE_WORDS.split())


def _each_once(seen: Iterable[PlaceCandidate]) -> list[PlaceCandidate]:
    found: dict[str, PlaceCandidate] = {}
    for one in seen:
        found.setdefault(repr(one[1]), one)
    return list(found.values())


def _choose_fields(
    roots: Sequence[Root], seen: Sequence[PlaceCandidate], locale: str | None
) -> list[ProposedField]:
    """Return the places that hold a field; of places with the same values, the first."""
    found: list[tuple[ProposedField, tuple[str | None, ...]]] = []
    for name, place, trust in seen[:_MOST_PLACES]:
        values = tuple(value_at(root, place) for root in roots)
        if not any(values) or _is_furniture(values, trust):
            continue
        if not any(_is_within(values, other) for _, other in found):
            found.append((_make_field(name, place, values, locale, trust), values))
    # A field whose values a later one has, too, and in more items: `h3 a` next to `h3`.
    fields = [
        field
        for field, values in found
        if field.is_required
        or not any(_is_within(values, other) and other != values for _, other in found)
    ]
    if not any(one.name in _TITLE_NAMES for one in fields):
        # Without a better name, what comes first and differs is what people call the item by.
        for number, one in enumerate(fields):
            if one.name == NAMELESS and len(set(one.samples)) > 0.8 * len(one.samples):
                fields[number] = replace(one, name="title")
                break
    fields.sort(key=lambda one: one.name != "title")
    return without_clashes(fields[:MAX_FIELDS])


def _is_within(values: Sequence[str | None], other: Sequence[str | None]) -> bool:
    """Return True if another field has the same values wherever this one has any."""
    return all(value is None or value == own for value, own in zip(values, other, strict=True))


def _is_furniture(values: Sequence[str | None], trust: Trust) -> bool:
    """Return True if it is not a field: the same everywhere, mostly empty, or a whole page."""
    filled = [value for value in values if value]
    if any(len(value) > _LONGEST for value in filled):
        return True
    needed = 1.0 if len(values) <= 3 else _FEWEST_FILLED  # noqa: PLR2004
    if trust is Trust.WEAK and len(filled) < needed * len(values):
        return True
    return trust <= Trust.LIST and len(values) > 1 and len(set(filled)) == 1


def _make_field(
    name: str, place: Place, values: Sequence[str | None], locale: str | None, trust: Trust
) -> ProposedField:
    samples = [value for value in values if value]
    kind = own_locale = None
    css = str(place.get("css", ""))
    if css.endswith(ADDRESS_ATTRIBUTES):
        kind = "url"
    elif not place.get("many"):
        kind = kind_of(name, samples, locale)
        if kind is None and ("json_ld" in place or css.endswith("@content")):
            kind = kind_of(name, samples, _PROGRAMS)
            own_locale = _PROGRAMS if kind else None
    if kind in {"money", "date", "datetime"} and (name in _VAGUE_NAMES or name == NAMELESS):
        name = "price" if kind == "money" else "date"
    is_required = trust is Trust.REQUIRED and None not in values
    filled = len(samples) / len(values)
    return ProposedField(name, place, samples, kind, is_required, own_locale, filled)


# ---------------- Places by the structure that the items share

_MOST_LEAVES = 300
_AROUND = 4  # elements around a value that a selector may name
_STEPS = 6  # of a selector by position
_SENTENCE = 60  # characters
_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "option", "button"})
_CUT = ("…", "...")


def _structural_places(roots: Sequence[Root], *, is_page: bool) -> list[PlaceCandidate]:
    """Return places by the structure that the items share, in the order of the items."""
    counts: Counter[str] = Counter()
    first: dict[str, tuple[LexborNode, int]] = {}
    repeated: dict[str, PlaceCandidate] = {}
    for root in roots:
        top = root.body if isinstance(root, LexborHTMLParser) else root
        for place, node, rank in _places_in(top, is_page=is_page) if top is not None else ():
            counts[place] += 1
            first.setdefault(place, (node, rank))
        for one in () if is_page else repeated_places(root):
            repeated.setdefault(str(one[1]["css"]), one)
    needed = _FEWEST_FILLED * len(roots)
    several = [
        one
        for css, one in repeated.items()
        if sum(root.css_first(css) is not None for root in roots) >= needed
    ]
    in_lists = {
        node.mem_id for one in several for root in roots for node in root.css(one[1]["css"])
    }
    headers = {} if is_page or not roots else _table_headers(roots[0])
    chosen: list[PlaceCandidate] = []
    for selector in sorted(first, key=lambda one: (first[one][1], -counts[one])):
        node, _ = first[selector]
        if counts[selector] < needed or node.mem_id in in_lists:
            continue
        values = [value for root in roots if (value := value_at(root, {"css": selector}))]
        name = _name_of(selector, node, values, headers)
        chosen.append((name, {"css": selector}, Trust.WEAK))
    return [*chosen, *several]


def _places_in(top: LexborNode, *, is_page: bool) -> Iterator[tuple[str, LexborNode, int]]:
    """Yield the places of values in an item: `css` or `css@attribute`, the element, its rank."""
    for number, node in enumerate(_leaves(top, is_page=is_page)):
        selectors = [""] if node.mem_id == top.mem_id else _relative_selectors(top, node)
        for rank, selector in enumerate(selectors):
            if selector:
                found = found_by(top, selector)
                # It must find this element first, or alone.
                if found[:1] != [node.mem_id] or (is_page and len(found) > 1):
                    continue
            for place in _readings(node, selector):
                yield place, node, number * 100 + rank


def _leaves(top: LexborNode, *, is_page: bool) -> list[LexborNode]:
    """Return the elements below that have a text of their own, an image, a link or a time."""
    leaves: list[LexborNode] = []
    headings: list[LexborNode] = []
    stack = [top]
    while stack and len(leaves) < _MOST_LEAVES:
        here = stack.pop()
        if here.tag in _UNSEEN or (is_page and here.tag in ASIDE):
            continue
        has_value = here.tag in {"img", "time"} or (here.tag == "a" and here.attributes.get("href"))
        if has_value or own_text(here):
            leaves.append(here)
        elif here.tag in HEADINGS and not is_page:
            headings.append(here)
        stack.extend(reversed(children_of(here)))
    # What is in a heading may be a link in some items and not in others.
    return [*leaves, *headings]


def _relative_selectors(top: LexborNode, node: LexborNode) -> Iterator[str]:
    """Yield selectors of an element inside an item, the most lasting first."""
    own = [one for one in own_selectors(node) if not one.startswith("#")]
    tag = node.tag or "*"
    between = []
    for outer in ancestors(node):
        if outer.mem_id == top.mem_id:
            break
        between.append(outer)
    places = [place for outer in between[:_AROUND] for place in _named_selectors(outer)]
    yield from (one for one in own if one != tag and not _is_by_look(one))
    yield from (f"{place} {tag}" for place in places)
    if tag not in {"div", "span", "p", "td", "a", "li"}:
        yield tag
    yield from (f"{one.tag} {tag}" for one in between[:2] if one.tag in {*HEADINGS, "dt", "dd"})
    nth = _nth_child(node)
    yield from (f"{place} {nth}" for place in places)
    if tag == "td":
        yield nth
    yield tag
    yield from (one for one in own if _is_by_look(one))
    if len(between) < _STEPS:
        steps = [_nth_child(one) for one in (*reversed(between), node)]
        yield " > ".join([top.tag or "*", *steps])


def _nth_child(node: LexborNode) -> str:
    siblings = children_of(node.parent) if node.parent is not None else [node]
    return f"{node.tag}:nth-child({place_among(siblings, node)})"


def _named_selectors(node: LexborNode) -> Iterator[str]:
    yield from (f"{node.tag}.{name}" for name in names_of(node))
    yield from data_selectors(node)
    yield from module_selectors(node)


def _is_by_look(selector: str) -> bool:
    names = re.findall(r"\.([\w-]+)", selector)
    return bool(names) and all(is_utility(name) for name in names)


def _readings(node: LexborNode, selector: str) -> Iterator[str]:
    """Yield what to read of an element: its text, and the attributes that hold more."""
    attributes = node.attributes
    if node.tag == "img":
        filled = (name for name in IMAGE_ATTRIBUTES if attributes.get(name))
        source = next((n for n in filled if not str(attributes[n]).startswith("data:")), None)
        if source is not None:
            yield f"{selector}@{source}"
        return
    if node.tag == "time" and attributes.get("datetime"):
        yield f"{selector}@datetime"
        return
    text = node_text(node)
    if text and not selector:
        if text == own_text(node):  # else it is the text of all fields together
            yield "@text"
    elif text:
        title = attributes.get("title") or ""
        is_cut = text.endswith(_CUT) and title.startswith(text.rstrip("….")[:10])
        yield f"{selector}@title" if is_cut else selector
    href = attributes.get("href") or ""
    if node.tag == "a" and href and not href.startswith(("#", "javascript:")):
        yield f"{selector}@href"


# ---------------- Names by class, column or what they are


def _table_headers(root: Root) -> dict[int, str]:
    """Return the header of each column when the item is a row of a table."""
    if not isinstance(root, LexborNode) or root.tag != "tr":
        return {}
    table = next((one for one in ancestors(root) if one.tag == "table"), None)
    for row in table.css("tr") if table is not None else ():
        cells = children_of(row)
        if len(cells) > 1 and all(cell.tag == "th" for cell in cells):
            return {n: text for n, cell in enumerate(cells, start=1) if (text := node_text(cell))}
    return {}


def _name_of(
    selector: str, node: LexborNode, values: Sequence[str], headers: Mapping[int, str]
) -> str:
    """Return the name of the field at a place."""
    if selector.endswith(ADDRESS_ATTRIBUTES[1:]):
        return "image"
    if selector.endswith("@href"):
        return "url"
    if node.tag == "time":
        return "date"
    near = [node, *islice(ancestors(node), 2)]
    cell = next((one for one in (node, *ancestors(node)) if one.tag == "td"), None)
    if headers and cell is not None and cell.parent is not None:
        header = headers.get(place_among(children_of(cell.parent), cell))
        if header:
            return field_name(header)
    name = _name_by_class(node)
    if name is None and any(one.tag in HEADINGS for one in near):
        return "title"
    is_long = any(len(value) > _SENTENCE for value in values)
    return name or ("text" if is_long else NAMELESS)


def _name_by_class(node: LexborNode) -> str | None:
    """Return the name that a class or an attribute gives an element, or the one around it."""
    outer = node.parent
    for one in (node, outer) if outer is not None and len(children_of(outer)) == 1 else (node,):
        prop = one.attributes.get("itemprop")
        marked = one.attributes.get("data-testid") or one.attributes.get("data-qa")
        for name in (prop, *names_of(one), marked, module_name(one)):
            word = last_word(name) if name else None
            if word and word not in _VAGUE_NAMES and len(word) > 1:
                return "title" if word in _TITLE_NAMES - {"name"} else word
    return None
