"""Fields of items of one kind, each item an element of a list or a page of its own.

A field is a place that most items have and whose value differs between them. Places that say what
they hold (JSON-LD, itemprop, labels, table headers) come before places that only have a class or a
position.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import orjson
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
    data_selectors,
    following,
    found_by,
    group_selector,
    is_utility,
    module_name,
    module_selectors,
    names_of,
    own_selectors,
    own_text,
    place_among,
    unique_selector,
)
from longline.devtools.propose.structure import spread_sample
from longline.devtools.propose.values import field_name, kind_of, last_word
from longline.sources.html.places import select_following
from longline.sources.html.text import text_of

Root = LexborHTMLParser | LexborNode
Place = Mapping[str, Any]
"""Where a manifest finds a value: {"css": …}, {"json_ld": …}, {"css": …, "many": True}."""

MOST_FIELDS = 25
_LONGEST = 5000  # characters; more is a page, not a field
_PROGRAMS = "en"  # how programs write numbers for other programs
_SAMPLED = 12
_MOST_PLACES = 400
_MOST_LEAVES = 300
_FEWEST_FILLED = 0.5
_SELDOM = 0.3  # of the items; what says its name may be missing as often
_FEW = 3  # items; a field must be on all of so few
_AROUND = 4  # elements around a value that a selector may name
_STEPS = 6  # of a selector by position
_SENTENCE = 60  # characters
_IGNORED = """
    WebSite WebPage Organization BreadcrumbList ImageObject SearchAction SiteNavigationElement
    CollectionPage ItemList ListItem
"""
_IGNORED_TYPES = frozenset(_IGNORED.split())
_METAS = {
    "description": 'meta[name="description"]',
    "image": 'meta[property="og:image"]',
    "published": 'meta[property="article:published_time"]',
    "author": 'meta[name="author"]',
    "price": 'meta[property="product:price:amount"]',
    "currency": 'meta[property="product:price:currency"]',
}
_ATTRIBUTES = {"meta": "content", "img": "src", "time": "datetime", "a": "href", "link": "href"}
_SOURCES = ("data-src", "data-original", "data-lazy-src", "data-lazy", "src")
_ADDRESSES = ("@href", *(f"@{name}" for name in _SOURCES))
_LABELS = "dt, th, b, strong, .label"
_ASIDE = frozenset({"nav", "header", "footer", "aside", "form", "script", "style", "noscript"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "option", "button"})
_LONGEST_LABEL = 40
_DEEPEST = 2
_LABELLED = re.compile(r"^([^\W\d][^:\n]{1,28}):\s*(\S.*)$", re.DOTALL)
_BLOCKS = frozenset({"div", "section", "blockquote", "td", "article"})
_TEXTS = re.compile(
    r"(?:^|[-_])(?:content|text|body|desc\w*|summary|excerpt|message|comment|quote|intro|teaser)$",
    re.IGNORECASE,
)
_CUT = ("…", "...")
_VAGUE_WORDS = """
    txt value val wrapper inner outer container content item box cell col column row block
    body main wrap left right top bottom info data span div field link href a p li list group small
    strong bold large primary secondary muted media figure object element style
"""
_NAMELESS = "field"
_TITLES = frozenset({"title", "name", "headline", "heading", "subject"})
_VAGUE = frozenset(_VAGUE_WORDS.split())


class Trust(IntEnum):
    """How sure it is that a place holds a field."""

    WEAK = 0
    """Only its class or its position speaks for it: its values must differ."""
    LIST = 1
    """Several values: an item may have none."""
    NAMED = 2
    """The page says what it is."""
    REQUIRED = 3
    """And every item must have it."""


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


Seen = tuple[str, Place, Trust]


def fields_of_pages(trees: Sequence[LexborHTMLParser], locale: str | None) -> list[ProposedField]:
    """Return the fields that pages of one kind have; with more pages, the choice is surer."""
    seen = _each_once(one for tree in trees for one in _on_page(tree))
    # On one page alone, nothing tells a value from a label.
    by_structure = _by_structure(trees, is_page=True) if len(trees) > 1 else []
    return _chosen(trees, [*_title(trees), *seen, *by_structure], locale)


def fields_of_elements(
    nodes: Sequence[LexborNode], locale: str | None, *, has_followers: bool = False
) -> list[ProposedField]:
    """Return the fields of the elements of a list, and of the element after each."""
    sample = spread_sample(nodes, _SAMPLED)
    seen = _each_once(
        one for node in sample for one in (*_from_itemprops(node), *_from_labels(node))
    )
    needed = max(2, _SELDOM * len(sample))
    seen = [one for one in seen if sum(value_at(n, one[1]) is not None for n in sample) >= needed]
    seen += _by_structure(sample, is_page=False)
    if has_followers:
        after = [one for node in sample if (one := following(node)) is not None]
        tag = after[0].tag
        for name, place, trust in _by_structure(after, is_page=False):
            if not place["css"].startswith("+") and not place.get("many"):
                own = place["css"].removeprefix("@text")
                css = f"+ {tag}{own}" if own.startswith("@") else f"+ {tag} {own}".strip()
                seen.append((name, {**place, "css": css}, trust))
    return _chosen(sample, seen, locale)


def value_at(root: Root, place: Place) -> str | None:
    """Return the text at a place."""
    if place.get("many"):
        return ", ".join(filter(None, map(text_of, root.css(place["css"])))) or None
    if path := place.get("json_ld"):
        return _in_json_ld(root, path)
    selector, _, attribute = place["css"].partition("@")
    node = _first_at(root, selector)
    if node is None:
        return None
    is_text = attribute in {"", "text"}
    value = (text_of(node) if is_text else node.attributes.get(attribute) or "").strip() or None
    if value is not None and (pattern := place.get("match")):
        found = re.search(pattern, value)
        return found[1] if found else None
    return value


def _first_at(root: Root, selector: str) -> LexborNode | None:
    if selector.startswith("+"):
        return next(iter(select_following(root, selector, lambda node, css: node.css(css))), None)
    if selector:
        return root.css_first(selector)
    return root if isinstance(root, LexborNode) else None


def _each_once(seen: Iterable[Seen]) -> list[Seen]:
    return list(
        {repr(place): (name, place, trust) for name, place, trust in reversed(list(seen))}.values()
    )[::-1]


def _chosen(roots: Sequence[Root], seen: Sequence[Seen], locale: str | None) -> list[ProposedField]:
    """Return the places that hold a field; of places with the same values, the first."""
    found: list[ProposedField] = []
    known: list[tuple[str | None, ...]] = []
    for name, place, trust in seen[:_MOST_PLACES]:
        values = tuple(value_at(root, place) for root in roots)
        if not any(values) or _is_furniture(values, trust) or _is_known(values, known):
            continue
        known.append(values)
        found.append(_field(name, place, values, locale, is_required=trust is Trust.REQUIRED))
    found, known = _without_parts(found, known)
    return without_clashes(_ordered(_without_wrappers(found, known))[:MOST_FIELDS])


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
    if not any(one.name in _TITLES for one in named):
        # Without a better name, what comes first is what people call the item by.
        place = next((n for n, one in enumerate(named) if one.name == _NAMELESS), None)
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
    needed = 1.0 if len(values) <= _FEW else _FEWEST_FILLED
    if trust is Trust.WEAK and len(filled) < needed * len(values):
        return True
    return trust <= Trust.LIST and len(values) > 1 and len(set(filled)) == 1


def _field(
    name: str,
    place: Place,
    values: Sequence[str | None],
    locale: str | None,
    *,
    is_required: bool,
) -> ProposedField:
    samples = [value for value in values if value]
    kind = own_locale = None
    if str(place.get("css", "")).endswith(_ADDRESSES):
        kind = "url"
    elif not place.get("many"):
        kind = kind_of(name, samples, locale)
        if kind is None and _is_for_programs(place):
            kind = kind_of(name, samples, _PROGRAMS)
            own_locale = _PROGRAMS if kind else None
    if kind in {"money", "date", "datetime"} and (name in _VAGUE or name.startswith(_NAMELESS)):
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


def _on_page(tree: LexborHTMLParser) -> Iterator[Seen]:
    """Yield places of a page that say what they hold, the surest first."""
    yield from _from_json_ld(tree)
    yield from _from_itemprops(tree)
    yield from _from_labels(tree)
    yield from _from_times(tree)
    yield from _from_classes(tree)
    yield from _from_groups(tree)
    yield from _from_metas(tree)
    yield from _from_images(tree)


def _title(trees: Sequence[LexborHTMLParser]) -> list[Seen]:
    """Return the first heading that every page has, with a text of its own on each."""
    for css in ("main h1, article h1", "h1", "main h2, article h2", "h2", "h3"):
        for heading in trees[0].css(css):
            selector = unique_selector(trees[0], heading) if text_of(heading) else None
            if selector is None:
                continue
            values = [value_at(tree, {"css": selector}) for tree in trees]
            if None not in values and len(set(values)) == len(values):
                return [("title", {"css": selector}, Trust.REQUIRED)]
    return []


def _from_json_ld(tree: LexborHTMLParser) -> Iterator[Seen]:
    for kind, thing in json_ld_of(tree):
        for path in _paths(thing, _DEEPEST):
            yield field_name(path), {"json_ld": f"{kind}.{path}"}, Trust.NAMED


def json_ld_of(root: Root) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects that a page's JSON-LD is about, with their types."""
    for script in root.css('script[type="application/ld+json"]'):
        try:
            value = orjson.loads(script.text())
        except orjson.JSONDecodeError:
            continue
        several = value if isinstance(value, list) else [value]
        for one in several:
            graph = one.get("@graph") if isinstance(one, dict) else None
            for thing in graph if isinstance(graph, list) else [one]:
                kind = thing.get("@type") if isinstance(thing, dict) else None
                if isinstance(kind, str) and kind.isalpha() and kind not in _IGNORED_TYPES:
                    yield kind, thing


def _paths(thing: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield the ways to the plain values of an object."""
    for name, value in thing.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        if isinstance(value, str | int | float) and value != "":
            yield name
        elif isinstance(value, dict) and depth > 1:
            yield from (f"{name}.{path}" for path in _paths(value, depth - 1))
        elif isinstance(value, list) and value and isinstance(value[0], str | int | float):
            yield f"{name}[0]"
        elif isinstance(value, list) and value and isinstance(value[0], dict) and depth > 1:
            yield from (f"{name}[0].{path}" for path in _paths(value[0], depth - 1))


def _in_json_ld(root: Root, path: str) -> str | None:
    kind, *steps = re.split(r"\.|(?=\[)", path)
    value: Any = next((thing for name, thing in json_ld_of(root) if name == kind), None)
    for step in steps:
        if step == "[0]":
            value = value[0] if isinstance(value, list) and value else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def _from_itemprops(root: Root) -> Iterator[Seen]:
    for node in root.css("[itemprop]:not([itemscope])"):
        prop = node.attributes.get("itemprop") or ""
        selector = (
            unique_selector(root, node)
            if isinstance(root, LexborHTMLParser)
            else (f'[itemprop="{prop}"]' if '"' not in prop else None)
        )
        if selector:
            yield field_name(prop), {"css": f"{selector}{_attribute(node)}"}, Trust.NAMED


def _from_labels(root: Root) -> Iterator[Seen]:
    for label in root.css(_LABELS):
        text = text_of(label)
        value = _labelled_value(label)
        if not text or len(text) > _LONGEST_LABEL or value is None or not text_of(value):
            continue
        is_labelled = label.tag in {"dt", "th"} or text.rstrip().endswith(":")
        if not is_labelled or _is_aside(label):
            continue
        own = unique_selector(root, value) if names_of(value) else None
        words = text.replace('"', "").rstrip()
        by_label = f'{label.tag}:lexbor-contains("{words}") + {value.tag}'
        name = field_name(text)
        if own is not None and (word := last_word(names_of(value)[0])):
            name = word  # the same in every language, which a label is not
        yield name, {"css": own or by_label}, Trust.NAMED


def _labelled_value(label: LexborNode) -> LexborNode | None:
    after = following(label)
    return after if after is not None and after.tag in {"dd", "td", "span", "p", "div"} else None


def _from_times(tree: LexborHTMLParser) -> Iterator[Seen]:
    node = tree.css_first("main time[datetime], article time[datetime], time[datetime]")
    if node is not None and (selector := unique_selector(tree, node)):
        yield "date", {"css": f"{selector}@datetime"}, Trust.NAMED


def _from_classes(tree: LexborHTMLParser) -> Iterator[Seen]:
    """Yield elements that their own class names, and that contain nothing but text."""
    for node in tree.css("body [class]"):
        names = names_of(node)
        if not names or _is_aside(node) or not _is_leaf(node):
            continue
        if selector := unique_selector(tree, node):
            name = last_word(names[0]) or field_name(names[0])
            yield name, {"css": f"{selector}{_attribute(node, is_text=True)}"}, Trust.WEAK


def _from_groups(root: Root) -> Iterator[Seen]:
    """Yield elements of one class next to each other: tags, authors, colours."""
    for parent in root.css("body *") if isinstance(root, LexborHTMLParser) else root.css("*"):
        alike: defaultdict[str, list[LexborNode]] = defaultdict(list)
        for child in parent.iter():
            if child.tag in {"td", "th"}:
                continue  # the columns of a row are values of different kinds
            if (names := names_of(child)) and not child.css("dt, th, b, strong"):
                alike[names[0]].append(child)
        for name, nodes in alike.items():
            is_list = len(nodes) > 1 and all(map(_is_leaf, nodes)) and not _is_aside(parent)
            if is_list and (selector := group_selector(root, nodes)):
                place = {"css": selector, "many": True}
                yield last_word(name) or field_name(name), place, Trust.LIST


def _is_leaf(node: LexborNode) -> bool:
    return not any(names_of(child) for child in node.css("[class]") if child != node)


def _from_metas(tree: LexborHTMLParser) -> Iterator[Seen]:
    for name, selector in _METAS.items():
        if tree.css_first(selector) is not None:
            yield name, {"css": f"{selector}@content"}, Trust.WEAK


def _from_images(tree: LexborHTMLParser) -> Iterator[Seen]:
    image = tree.css_first("main img[src], article img[src]")
    if image is not None and (selector := unique_selector(tree, image)):
        yield "image", {"css": f"{selector}@src"}, Trust.WEAK


def _attribute(node: LexborNode, *, is_text: bool = False) -> str:
    """Return `@name` where an attribute says more than the text."""
    if node.attributes.get("content"):
        return "@content"
    name = _ATTRIBUTES.get(node.tag or "")
    if name is None or (is_text and node.tag == "a") or not node.attributes.get(name):
        return ""
    return f"@{name}"


def _is_aside(node: LexborNode) -> bool:
    return node.tag in _ASIDE or any(one.tag in _ASIDE for one in ancestors(node))


def _by_structure(roots: Sequence[Root], *, is_page: bool) -> list[Seen]:
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
        self._repeated: dict[str, Seen] = {}
        self._headers = _table_headers(roots[0]) if roots and not is_page else {}

    def places(self) -> list[Seen]:
        """Return a place for each value that most items have."""
        for root in self._roots:
            self._collect(root)
        if not self._is_page:
            for root in self._roots:
                for name, place, trust in _from_groups(root):
                    self._repeated.setdefault(str(place["css"]), (name, place, trust))
        chosen: list[Seen] = []
        order = sorted(self._seen, key=lambda one: (self._seen[one][1], -self._found[one]))
        needed = _FEWEST_FILLED * len(self._roots)
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

    def _collect(self, root: Root) -> None:
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
        if here.tag in _UNSEEN or (is_page and here.tag in _ASIDE):
            continue
        has_value = here.tag in {"img", "time"} or (here.tag == "a" and here.attributes.get("href"))
        if has_value or own_text(here) or _is_block_of_text(here):
            leaves.append(here)
        elif here.tag in _HEADINGS and not is_page:
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
        if outer.tag in _HEADINGS or outer.tag in {"dt", "dd", "figure", "header", "footer"}:
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
        source = next((name for name in _SOURCES if _is_address(attributes.get(name))), None)
        if source is not None:
            yield f"{selector}@{source}"
        return
    if node.tag == "time" and attributes.get("datetime"):
        yield f"{selector}@datetime"
        return
    text = text_of(node)
    if text and not selector:
        if text == own_text(node):  # else it is the text of all fields together
            yield "@text"
    elif text:
        title = attributes.get("title") or ""
        is_cut = text.endswith(_CUT) and title.startswith(text.rstrip("….")[:10])
        yield f"{selector}@title" if is_cut else selector
    if node.tag == "a" and _is_link(attributes.get("href")):
        yield f"{selector}@href"


def _is_address(text: str | None) -> bool:
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
            return {n: text for n, cell in enumerate(cells, start=1) if (text := text_of(cell))}
    return {}


def _labelled(selector: str, values: Sequence[str | None]) -> list[Seen]:
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
        if (is_heading or name in _TITLES - {"name"}) and not self._has_title:
            self._has_title = True
            return "title"
        is_long = any(len(value) > _SENTENCE for value in values if value)
        return name or ("text" if is_long else _NAMELESS)

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
        return any(one is not None and one.tag in _HEADINGS for one in near)


def _by_kind(selector: str, node: LexborNode) -> str | None:
    if selector.endswith(_ADDRESSES[1:]):
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
            if word and word not in _VAGUE and len(word) > 1:
                return word
    return None
