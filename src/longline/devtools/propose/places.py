"""Places of values in an item, and reading the value at a place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

import orjson
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
)
from longline.sources.html.content import text_of
from longline.sources.html.places import select_following

Root = LexborHTMLParser | LexborNode
Place = Mapping[str, Any]
"""Where a manifest finds a value: {"css": …}, {"json_ld": …}, {"css": …, "many": True}."""
FEWEST_FILLED = 0.5
_IGNORED = """
    WebSite WebPage Organization BreadcrumbList ImageObject SearchAction SiteNavigationElement
    CollectionPage ItemList ListItem
"""
_IGNORED_TYPES = frozenset(_IGNORED.split())
IMAGE_ATTRIBUTES = ("data-src", "data-original", "data-lazy-src", "data-lazy", "src")
ADDRESS_ATTRIBUTES = ("@href", *(f"@{name}" for name in IMAGE_ATTRIBUTES))
ASIDE = frozenset({"nav", "header", "footer", "aside", "form", "script", "style", "noscript"})
HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_VAGUE_WORDS = """
    txt value val wrapper inner outer container content item box cell col column row block
    body main wrap left right top bottom info data span div field link href a p li list group small
    strong bold large primary secondary muted media figure object element style
"""
NAMELESS = "field"
TITLE_NAMES = frozenset({"title", "name", "headline", "heading", "subject"})
VAGUE_NAMES = frozenset(_VAGUE_WORDS.split())


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


def _in_json_ld(root: Root, path: str) -> str | None:
    kind, *steps = re.split(r"\.|(?=\[)", path)
    value: Any = next((thing for name, thing in json_ld_of(root) if name == kind), None)
    for step in steps:
        if step == "[0]":
            value = value[0] if isinstance(value, list) and value else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return str(value) if isinstance(value, str | int | float) and value != "" else None


def is_aside(node: LexborNode) -> bool:
    """Return True if an element is in a menu, a header, a footer or a form."""
    return node.tag in ASIDE or any(one.tag in ASIDE for one in ancestors(node))
