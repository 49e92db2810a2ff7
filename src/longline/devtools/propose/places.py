"""Places of values in an item: reading them, naming them, and places that state what they hold."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any
from urllib.parse import urlsplit

import orjson
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import BadOption
from longline.devtools.propose.selectors import (
    ancestors,
    following,
    group_selector,
    names_of,
    unique_selector,
)
from longline.sources.html.content import node_text
from longline.sources.html.places import select_following
from longline.sources.parsing.values import read_value

Root = LexborHTMLParser | LexborNode
Place = Mapping[str, Any]
"""Where a manifest finds a value: {"css": …}, {"json_ld": …}, {"css": …, "many": True}."""
IMAGE_ATTRIBUTES = ("data-src", "data-original", "data-lazy-src", "data-lazy", "src")
ADDRESS_ATTRIBUTES = ("@href", *(f"@{name}" for name in IMAGE_ATTRIBUTES))
ASIDE = frozenset({"nav", "header", "footer", "aside", "form", "script", "style", "noscript"})
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
NAMELESS = "field"


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


PlaceCandidate = tuple[str, Place, Trust]


# ---------------- Read a value


def value_at(root: Root, place: Place) -> str | None:
    """Return the text at a place."""
    if place.get("many"):
        return ", ".join(filter(None, map(node_text, root.css(place["css"])))) or None
    if path := place.get("json_ld"):
        return _in_json_ld(root, path)
    selector, _, attribute = place["css"].partition("@")
    node: LexborNode | None = root if isinstance(root, LexborNode) else None
    if selector.startswith("+"):
        found = select_following(root, selector, lambda node, css: node.css(css))
        node = next(iter(found), None)
    elif selector:
        node = root.css_first(selector)
    if node is None:
        return None
    is_text = attribute in {"", "text"}
    return (node_text(node) if is_text else node.attributes.get(attribute) or "").strip() or None


_IGNORED = """
    WebSite WebPage Organization BreadcrumbList ImageObject SearchAction SiteNavigationElement
    CollectionPage ItemList ListItem
"""
_IGNORED_TYPES = frozenset(_IGNORED.split())


def _json_ld_of(root: Root) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects that a page's JSON-LD is about, with their types."""
    for script in root.css('script[type="application/ld+json"]'):
        try:
            value = orjson.loads(script.text())
        except orjson.JSONDecodeError:
            continue
        for one in value if isinstance(value, list) else [value]:
            graph = one.get("@graph") if isinstance(one, dict) else None
            for thing in graph if isinstance(graph, list) else [one]:
                kind = thing.get("@type") if isinstance(thing, dict) else None
                if isinstance(kind, str) and kind.isalpha() and kind not in _IGNORED_TYPES:
                    yield kind, thing


def _in_json_ld(root: Root, path: str) -> str | None:
    kind, *steps = re.split(r"\.|(?=\[)", path)
    value: Any = next((thing for name, thing in _json_ld_of(root) if name == kind), None)
    for step in steps:
        if step == "[0]":
            value = value[0] if isinstance(value, list) and value else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | int | float) and value != "" else None


# ---------------- Types and names of fields; a type only where every value can be read

_SHAPES = {
    "datetime": re.compile(r".*\d[T ]\d{1,2}:\d{2}.*", re.DOTALL),
    "date": re.compile(r"(?!\d+$).*", re.DOTALL),  # digits alone may be a year or a house number
    "integer": re.compile(r"[1-9]\d{0,8}|0"),
    "number": re.compile(r"-?\d[\d.,\s]*"),
}
_CODES = re.compile(
    r"sku|code|ref|isbn|ean|gtin|phone|tel|zip|postal|plz|number|nummer|^no$|^id$", re.IGNORECASE
)
_LONGEST_VALUE = 40
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"\W+|_+")
_SOURCE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,59}")
_LONGEST_NAME = 40


def kind_of(name: str, values: Sequence[str], locale: str | None) -> str | None:
    """Return the type that all of these values can be read as; None keeps them as text."""
    for kind in ("money", *_SHAPES):
        if values and all(_can_be(kind, value, locale) for value in values):
            # A code of digits is not a number.
            is_code = kind in {"integer", "number"} and _CODES.search(name)
            return None if is_code else kind
    return None


def _can_be(kind: str, value: str, locale: str | None) -> bool:
    if len(value) > _LONGEST_VALUE or not any(char.isdigit() for char in value):
        return False
    if kind in _SHAPES and not _SHAPES[kind].fullmatch(value):
        return False
    try:
        found = read_value(kind, value, locale=locale)
    except ValueError:
        return False
    return kind != "money" or found["currency"] is not None


def field_name(text: str) -> str:
    """Return a label or an identifier as the name of a field: `datePublished`, `Price (net)`."""
    words = [word for word in _WORDS.split(_CAMEL.sub(" ", text).lower()) if word]
    name = "_".join(word for word in words if word != "0")[:_LONGEST_NAME].strip("_")
    return name if name and not name[0].isdigit() else f"{NAMELESS}_{name}".strip("_")


def last_word(class_name: str) -> str | None:
    """Return the element part of a class name, without its block: `price` of card__price."""
    parts = [part for part in re.split(r"[-_]+", class_name) if part]
    words = [part for part in (parts[-1:] + parts[:1]) if part.isalpha()]
    return words[0].lower() if words else None


def source_name(url: str, given: str | None = None) -> str:
    """Return the given name for the source of an address, or one that is derived from it.

    Raises:
        BadOption: the given name cannot be that of a manifest.
    """
    if given is not None:
        if not _SOURCE_NAME.fullmatch(given):
            problem = "use a lower-case letter, then at most 59 of a-z, 0-9, - and _"
            raise BadOption("--name", problem)
        return given
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.")
    is_number = host.replace(".", "").isdigit() or ":" in host
    words = ["site"] if is_number else host.split(".")[:-1] or [host]
    words += [word for word in parts.path.split("/") if word][-2:]
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")
    name = name if name[:1].isalpha() else f"site-{name}".strip("-")
    return name[:_LONGEST_NAME].strip("-")


# ---------------- Places that say what they hold: JSON-LD, itemprop, labels, classes, metadata

_KNOWN_PLACES = {
    "date": "main time[datetime], article time[datetime], time[datetime]",
    "description": 'meta[name="description"]',
    "image": 'meta[property="og:image"], main img[src], article img[src]',
    "published": 'meta[property="article:published_time"]',
    "author": 'meta[name="author"]',
    "price": 'meta[property="product:price:amount"]',
    "currency": 'meta[property="product:price:currency"]',
}
_ATTRIBUTES = {"meta": "content", "img": "src", "time": "datetime", "a": "href", "link": "href"}
_LABELS = "dt, th, b, strong, .label"
_LONGEST_LABEL = 40
_DEEPEST = 2


def places_on_page(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
    """Yield places of a page that say what they hold, the surest first."""
    for kind, thing in _json_ld_of(tree):
        for path in _json_paths(thing, _DEEPEST):
            yield field_name(path), {"json_ld": f"{kind}.{path}"}, Trust.NAMED
    yield from itemprop_places(tree)
    yield from labelled_places(tree)
    yield from _class_places(tree)
    yield from repeated_places(tree)
    for name, selector in _KNOWN_PLACES.items():
        node = tree.css_first(selector)
        if node is not None:
            is_meta = node.tag == "meta"
            own = selector.partition(",")[0] if is_meta else unique_selector(tree, node)
            if own is not None:
                trust = Trust.NAMED if name == "date" else Trust.WEAK
                yield name, {"css": f"{own}{_attribute(node)}"}, trust


def title_place(trees: Sequence[LexborHTMLParser]) -> list[PlaceCandidate]:
    """Return the first heading that every page has, with a text of its own on each."""
    for css in ("main h1, article h1", "h1", "main h2, article h2", "h2", "h3"):
        for heading in trees[0].css(css):
            selector = unique_selector(trees[0], heading) if node_text(heading) else None
            if selector is None:
                continue
            values = [value_at(tree, {"css": selector}) for tree in trees]
            if None not in values and len(set(values)) == len(values):
                return [("title", {"css": selector}, Trust.REQUIRED)]
    return []


def _json_paths(thing: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield the ways to the plain values of an object."""
    for name, value in thing.items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        path = f"{name}[0]" if isinstance(value, list) else name
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, str | int | float) and first != "":
            yield path
        elif isinstance(first, dict) and depth > 1:
            yield from (f"{path}.{below}" for below in _json_paths(first, depth - 1))


def itemprop_places(root: Root) -> Iterator[PlaceCandidate]:
    """Yield the elements with an `itemprop`."""
    for node in root.css("[itemprop]:not([itemscope])"):
        prop = node.attributes.get("itemprop") or ""
        selector = f'[itemprop="{prop}"]' if '"' not in prop else None
        if isinstance(root, LexborHTMLParser):
            selector = unique_selector(root, node)
        if selector:
            yield field_name(prop), {"css": f"{selector}{_attribute(node)}"}, Trust.NAMED


def labelled_places(root: Root) -> Iterator[PlaceCandidate]:
    """Yield the elements after a label: `dt`, `th`, or text with a colon."""
    for label in root.css(_LABELS):
        text, value = node_text(label), following(label)
        if not text or len(text) > _LONGEST_LABEL or value is None or not node_text(value):
            continue
        is_labelled = label.tag in {"dt", "th"} or text.rstrip().endswith(":")
        is_value = value.tag in {"dd", "td", "span", "p", "div"}
        if not is_labelled or not is_value or is_aside(label):
            continue
        own = unique_selector(root, value) if names_of(value) else None
        words = text.replace('"', "").rstrip()
        by_label = f'{label.tag}:lexbor-contains("{words}") + {value.tag}'
        # A class is the same in every language, which a label is not.
        named = last_word(names_of(value)[0]) if own is not None else None
        yield named or field_name(text), {"css": own or by_label}, Trust.NAMED


def _class_places(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
    """Yield elements that their own class names, and that contain nothing but text."""
    for node in tree.css("body [class]"):
        names = names_of(node)
        if not names or is_aside(node) or not _is_leaf(node):
            continue
        if selector := unique_selector(tree, node):
            name = last_word(names[0]) or field_name(names[0])
            attribute = "" if node.tag == "a" else _attribute(node)
            yield name, {"css": f"{selector}{attribute}"}, Trust.WEAK


def repeated_places(root: Root) -> Iterator[PlaceCandidate]:
    """Yield elements of one class next to each other: tags, authors, colours."""
    for parent in root.css("body *") if isinstance(root, LexborHTMLParser) else root.css("*"):
        alike: defaultdict[str, list[LexborNode]] = defaultdict(list)
        for child in parent.iter():
            if child.tag in {"td", "th"}:
                continue  # the columns of a row are values of different kinds
            if (names := names_of(child)) and not child.css("dt, th, b, strong"):
                alike[names[0]].append(child)
        for name, nodes in alike.items():
            is_list = len(nodes) > 1 and all(map(_is_leaf, nodes)) and not is_aside(parent)
            if is_list and (selector := group_selector(root, nodes)):
                place = {"css": selector, "many": True}
                yield last_word(name) or field_name(name), place, Trust.LIST


def is_aside(node: LexborNode) -> bool:
    """Return True if an element is in a menu, a header, a footer or a form."""
    return any(one.tag in ASIDE for one in (node, *ancestors(node)))


def _is_leaf(node: LexborNode) -> bool:
    return not any(names_of(child) for child in node.css("[class]") if child != node)


def _attribute(node: LexborNode) -> str:
    """Return `@name` where an attribute says more than the text."""
    for name in ("content", _ATTRIBUTES.get(node.tag or "", "")):
        if name and node.attributes.get(name):
            return f"@{name}"
    return ""
