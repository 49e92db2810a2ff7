"""Fields of items, each item an element of a list or a page of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.places import (
    ADDRESS_ATTRIBUTES,
    ASIDE,
    FEWEST_FILLED,
    HEADINGS,
    IMAGE_ATTRIBUTES,
    NAMELESS,
    TITLE_NAMES,
    VAGUE_NAMES,
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

# ---------------- Places by the structure that the items share, with names by class, column or

_MOST_LEAVES = 300
_AROUND = 4  # elements around a value that a selector may name
_STEPS = 6  # of a selector by position
_SENTENCE = 60  # characters
_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "option", "button"})
_LABELLED = re.compile(r"^([^\W\d][^:\n]{1,28}):\s*(\S.*)$", re.DOTALL)
_BLOCKS = frozenset({"div", "section", "blockquote", "td", "article"})
_TEXTS = re.compile(
    r"(?:^|[-_])(?:content|text|body|desc\w*|summary|excerpt|message|comment|quote|intro|teaser)$",
    re.IGNORECASE,
)
_CUT = ("…", "...")


def structural_places(roots: Sequence[Root], *, is_page: bool) -> list[PlaceCandidate]:
    """Return places by the structure that the items share, in the order of the items."""
    slots = _Slots(roots, is_page=is_page)
    return slots.places()


class _Slots:
    """Collects the places of values in items of one structure."""

    def __init__(self, roots: Sequence[Root], *, is_page: bool) -> None:
        self._roots = roots
        self._is_page = is_page
        self._found: Counter[str] = Counter()
        self._seen: dict[str, tuple[LexborNode, int]] = {}
        self._repeated: dict[str, PlaceCandidate] = {}
        self._headers = _table_headers(roots[0]) if roots and not is_page else {}

    def places(self) -> list[PlaceCandidate]:
        """Return a place for each value that most items have."""
        for root in self._roots:
            self._collect_places(root)
        if not self._is_page:
            for root in self._roots:
                for name, place, trust in repeated_places(root):
                    self._repeated.setdefault(str(place["css"]), (name, place, trust))
        chosen: list[PlaceCandidate] = []
        order = sorted(self._seen, key=lambda one: (self._seen[one][1], -self._found[one]))
        needed = FEWEST_FILLED * len(self._roots)
        names = _Naming(self._headers)
        repeated = [
            one
            for one in self._repeated.values()
            if sum(root.css_first(one[1]["css"]) is not None for root in self._roots) >= needed
        ]
        several = {
            node.mem_id
            for _, place, _ in repeated
            for root in self._roots
            for node in root.css(place["css"])
        }
        for selector in order:
            node, _ = self._seen[selector]
            if self._found[selector] < needed or node.mem_id in several:
                continue
            values = [value_at(root, {"css": selector}) for root in self._roots]
            chosen += _labelled(selector, values) or [
                (names.name_of(selector, node, values), {"css": selector}, Trust.WEAK)
            ]
        return [*chosen, *repeated]

    def _collect_places(self, root: Root) -> None:
        top = root.body if isinstance(root, LexborHTMLParser) else root
        if top is None:
            return
        for number, node in enumerate(_leaves(top, is_page=self._is_page)):
            for rank, selector in enumerate(self._selectors(top, node)):
                for place in _readings(node, selector):
                    self._found[place] += 1
                    if place not in self._seen:
                        self._seen[place] = node, number * 100 + rank

    def _selectors(self, top: LexborNode, node: LexborNode) -> Iterator[str]:
        """Yield selectors that find this element first, or alone, in the item."""
        if node.mem_id == top.mem_id:
            yield ""  # read as `@text`, or `@href` of a link
            return
        for selector in _relative(top, node):
            found = found_by(top, selector)
            if found and found[0] == node.mem_id and (len(found) == 1 or not self._is_page):
                yield selector


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
        if has_value or own_text(here) or _is_block_of_text(here):
            leaves.append(here)
        elif here.tag in HEADINGS and not is_page:
            headings.append(here)
        stack.extend(reversed(children_of(here)))
    # What is in a heading may be a link in some items and not in others.
    return [*leaves, *headings]


def _is_block_of_text(node: LexborNode) -> bool:
    """Return True if a class says that an element holds a text with markup of its own."""
    return node.tag in _BLOCKS and any(_TEXTS.search(name) for name in names_of(node))


def _relative(top: LexborNode, node: LexborNode) -> Iterator[str]:
    """Yield selectors of an element inside an item, the most lasting first."""
    own = [one for one in own_selectors(node) if not one.startswith("#")]
    tag = node.tag or "*"
    around = [one for one, _ in zip(_between(top, node), range(_AROUND), strict=False)]
    places = [place for outer in around for place in _named_selectors(outer)]
    yield from (one for one in own if one != tag and not _is_by_look(one))
    yield from (f"{place} {tag}" for place in places)
    if tag not in {"div", "span", "p", "td", "a", "li"}:
        yield tag
    for outer in around[:2]:
        if outer.tag in HEADINGS or outer.tag in {"dt", "dd", "figure", "header", "footer"}:
            yield f"{outer.tag} {tag}"
    nth = f"{tag}:nth-child({place_among(children_of(node.parent or top), node)})"
    yield from (f"{place} {nth}" for place in places)
    if tag == "td":
        yield nth
    yield tag
    yield from (one for one in own if _is_by_look(one))
    yield from _by_position(top, node)


def _between(top: LexborNode, node: LexborNode) -> Iterator[LexborNode]:
    """Yield the elements between an item and a value in it, the nearest first."""
    for outer in ancestors(node):
        if outer.mem_id == top.mem_id:
            return
        yield outer


def _by_position(top: LexborNode, node: LexborNode) -> Iterator[str]:
    chain = [node, *_between(top, node)]
    if len(chain) <= _STEPS:
        steps = [
            f"{one.tag}:nth-child({place_among(children_of(one.parent or top), one)})"
            for one in reversed(chain)
        ]
        yield " > ".join([top.tag or "*", *steps])


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
        source = next(
            (name for name in IMAGE_ATTRIBUTES if _is_image_address(attributes.get(name))), None
        )
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
    if node.tag == "a" and _is_link(attributes.get("href")):
        yield f"{selector}@href"


def _is_image_address(text: str | None) -> bool:
    return bool(text) and not str(text).startswith("data:")


def _is_link(href: str | None) -> bool:
    return bool(href) and not str(href).startswith(("#", "javascript:"))


def _table_headers(root: Root) -> dict[int, str]:
    """Return the header of each column when the item is a row of a table."""
    if not isinstance(root, LexborNode) or root.tag != "tr":
        return {}
    table = next((one for one in ancestors(root) if one.tag == "table"), None)
    if table is None:
        return {}
    for row in table.css("tr"):
        cells = [cell for cell in children_of(row) if cell.tag in {"th", "td"}]
        if len(cells) > 1 and all(cell.tag == "th" for cell in cells):
            return {n: text for n, cell in enumerate(cells, start=1) if (text := node_text(cell))}
    return {}


def _labelled(selector: str, values: Sequence[str | None]) -> list[PlaceCandidate]:
    """Return the field of a text such as `Rooms: 3`, without its label."""
    filled = [value for value in values if value]
    parts = [_LABELLED.match(value) for value in filled]
    labels = {part[1] for part in parts if part}
    if not filled or None in parts or len(labels) != 1 or "@" in selector:
        return []
    label = labels.pop()
    place = {"css": selector, "match": rf"^{re.escape(label)}:\s*(.+)$"}
    return [(field_name(label), place, Trust.WEAK)]


class _Naming:
    """Names fields by their class, their column or what they are; the title is named once."""

    def __init__(self, headers: Mapping[int, str]) -> None:
        self._headers = headers
        self._has_title = False

    def name_of(self, selector: str, node: LexborNode, values: Sequence[str | None]) -> str:
        """Return the name of the field at a place."""
        if known := _by_kind(selector, node) or self._by_column(node):
            return known
        name = _by_class(node)
        is_heading = name is None and self._is_heading(node)
        if (is_heading or name in TITLE_NAMES - {"name"}) and not self._has_title:
            self._has_title = True
            return "title"
        is_long = any(len(value) > _SENTENCE for value in values if value)
        return name or ("text" if is_long else NAMELESS)

    def _by_column(self, node: LexborNode) -> str | None:
        cell = (
            node if node.tag == "td" else next((o for o in ancestors(node) if o.tag == "td"), None)
        )
        if cell is None or cell.parent is None or not self._headers:
            return None
        header = self._headers.get(place_among(children_of(cell.parent), cell))
        return field_name(header) if header else None

    def _is_heading(self, node: LexborNode) -> bool:
        near = [node, node.parent, node.parent.parent if node.parent else None]
        return any(one is not None and one.tag in HEADINGS for one in near)


def _by_kind(selector: str, node: LexborNode) -> str | None:
    if selector.endswith(ADDRESS_ATTRIBUTES[1:]):
        return "image"
    if selector.endswith("@href"):
        return "url"
    return "date" if node.tag == "time" else None


def _by_class(node: LexborNode) -> str | None:
    """Return the name that a class or an attribute gives an element, or the one around it."""
    outer = node.parent
    for one in (node, outer) if outer is not None and len(children_of(outer)) == 1 else (node,):
        prop = one.attributes.get("itemprop")
        marked = one.attributes.get("data-testid") or one.attributes.get("data-qa")
        made = module_name(one)
        for name in (prop, *names_of(one), marked, made):
            word = last_word(name) if name else None
            if word and word not in VAGUE_NAMES and len(word) > 1:
                return word
    return None


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


def fields_of_elements(group: Group, locale: str | None) -> list[ProposedField]:
    """Return the fields of the elements of a list, and of the element after each."""
    sample = spread_sample(group.nodes, _SAMPLED)
    seen = _each_once(
        one for node in sample for one in (*itemprop_places(node), *labelled_places(node))
    )
    needed = max(2, _SELDOM * len(sample))
    seen = [one for one in seen if sum(value_at(n, one[1]) is not None for n in sample) >= needed]
    seen += structural_places(sample, is_page=False)
    if group.followers:
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
