"""Places on a page that may hold a field: JSON-LD, meta, itemprop, labels, classes, lists."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any

import orjson
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.authoring.naming import field_name, last_word
from longline.authoring.selecting import ancestors, classes_of, group_selector, unique_selector
from longline.sources.adapters.html_text import text_of

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
_LABELS = "dt, th, b, strong, .label"
_ASIDE = frozenset({"nav", "header", "footer", "aside", "form", "script", "style", "noscript"})
_LONGEST_LABEL = 40
_DEEPEST = 2


class Trust(IntEnum):
    """How sure it is that something is a field."""

    WEAK = 0
    """Only its class or its place speaks for it: on every page it must be something else."""
    LIST = 1
    """Several of a kind: on a page there may be none."""
    TOLD = 2
    """The page says what it is."""
    REQUIRED = 3
    """And every page must have it."""


Seen = tuple[str, Mapping[str, Any], Trust]
"""A name, a place, and how sure it is."""


def candidates(tree: LexborHTMLParser) -> Iterator[Seen]:
    """Yield what may be a field, the surest places first."""
    yield from _heading(tree)
    yield from _from_json_ld(tree)
    yield from _from_itemprops(tree)
    yield from _from_labels(tree)
    yield from _from_times(tree)
    yield from _from_classes(tree)
    yield from _from_groups(tree)
    yield from _from_metas(tree)
    yield from _from_images(tree)


def _heading(tree: LexborHTMLParser) -> Iterator[Seen]:
    heading = tree.css_first("main h1, article h1, h1")
    if heading is not None and text_of(heading) and (selector := unique_selector(tree, heading)):
        yield "title", {"css": selector}, Trust.REQUIRED


def _from_json_ld(tree: LexborHTMLParser) -> Iterator[Seen]:
    for kind, thing in things(tree):
        for path in _paths(thing, _DEEPEST):
            yield field_name(path), {"json_ld": f"{kind}.{path}"}, Trust.TOLD


def things(tree: LexborHTMLParser) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects that a page's JSON-LD is about, by their types."""
    for script in tree.css('script[type="application/ld+json"]'):
        try:
            told = orjson.loads(script.text())
        except orjson.JSONDecodeError:
            continue
        several = told if isinstance(told, list) else [told]
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


def _from_itemprops(tree: LexborHTMLParser) -> Iterator[Seen]:
    for node in tree.css("[itemprop]:not([itemscope])"):
        if selector := unique_selector(tree, node):
            name = field_name(node.attributes.get("itemprop") or "")
            yield name, {"css": f"{selector}{_attribute(node)}"}, Trust.TOLD


def _from_labels(tree: LexborHTMLParser) -> Iterator[Seen]:
    for label in tree.css(_LABELS):
        text = text_of(label)
        value = _sibling(label)
        if not text or len(text) > _LONGEST_LABEL or value is None or not text_of(value):
            continue
        is_labelled = label.tag in {"dt", "th"} or text.rstrip().endswith(":")
        if not is_labelled or _is_aside(label):
            continue
        own = unique_selector(tree, value) if classes_of(value) else None
        words = text.replace('"', "").rstrip()
        by_label = f'{label.tag}:lexbor-contains("{words}") + {value.tag}'
        name = field_name(text)
        if own is not None and _tells(value):
            name = last_word(classes_of(value)[0]) or name
        yield name, {"css": own or by_label}, Trust.TOLD


def _tells(node: LexborNode) -> bool:
    """Say whether a class is a better name than a label: it is the same in every language."""
    return bool(last_word(classes_of(node)[0]))


def _sibling(node: LexborNode) -> LexborNode | None:
    after = node.next
    while after is not None and not after.is_element_node:
        after = after.next
    return after if after is not None and after.tag in {"dd", "td", "span", "p", "div"} else None


def _from_times(tree: LexborHTMLParser) -> Iterator[Seen]:
    node = tree.css_first("main time[datetime], article time[datetime], time[datetime]")
    if node is not None and (selector := unique_selector(tree, node)):
        yield "date", {"css": f"{selector}@datetime"}, Trust.TOLD


def _from_classes(tree: LexborHTMLParser) -> Iterator[Seen]:
    """Yield elements whose own class names them, and that hold nothing but their text."""
    for node in tree.css("body [class]"):
        if not classes_of(node) or _is_aside(node) or not _is_leaf(node):
            continue
        if selector := unique_selector(tree, node):
            name = last_word(classes_of(node)[0]) or field_name(classes_of(node)[0])
            yield name, {"css": f"{selector}{_attribute(node, is_text=True)}"}, Trust.WEAK


def _from_groups(tree: LexborHTMLParser) -> Iterator[Seen]:
    """Yield elements of one class that stand side by side: tags, authors, colours."""
    for parent in tree.css("body *"):
        alike: defaultdict[str, list[LexborNode]] = defaultdict(list)
        for child in parent.iter():
            if (names := classes_of(child)) and not child.css("dt, th, b, strong"):
                alike[names[0]].append(child)
        for name, nodes in alike.items():
            is_list = len(nodes) > 1 and all(map(_is_leaf, nodes)) and not _is_aside(parent)
            if is_list and (selector := group_selector(tree, nodes)):
                place = {"css": selector, "many": True}
                yield last_word(name) or field_name(name), place, Trust.LIST


def _is_leaf(node: LexborNode) -> bool:
    return not any(classes_of(child) for child in node.css("[class]") if child != node)


def _from_metas(tree: LexborHTMLParser) -> Iterator[Seen]:
    for name, selector in _METAS.items():
        if tree.css_first(selector) is not None:
            yield name, {"css": f"{selector}@content"}, Trust.WEAK


def _from_images(tree: LexborHTMLParser) -> Iterator[Seen]:
    image = tree.css_first("main img[src], article img[src]")
    if image is not None and (selector := unique_selector(tree, image)):
        yield "image", {"css": f"{selector}@src"}, Trust.WEAK


def _attribute(node: LexborNode, *, is_text: bool = False) -> str:
    """Return `@name` where an attribute tells more than the text."""
    if node.attributes.get("content"):
        return "@content"
    name = _ATTRIBUTES.get(node.tag or "")
    if name is None or (is_text and node.tag == "a") or not node.attributes.get(name):
        return ""
    return f"@{name}"


def _is_aside(node: LexborNode) -> bool:
    return node.tag in _ASIDE or any(one.tag in _ASIDE for one in ancestors(node))
