"""Places that say what they hold: JSON-LD, itemprop, labels, classes, metadata."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.places import (
    PlaceCandidate,
    Root,
    Trust,
    is_aside,
    json_ld_of,
    value_at,
)
from longline.devtools.propose.selectors import (
    following,
    group_selector,
    names_of,
    unique_selector,
)
from longline.devtools.propose.values import field_name, last_word
from longline.sources.html.content import text_of

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
_LONGEST_LABEL = 40
_DEEPEST = 2


def places_on_page(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
    """Yield places of a page that say what they hold, the surest first."""
    yield from _from_json_ld(tree)
    yield from itemprop_places(tree)
    yield from labelled_places(tree)
    yield from _from_times(tree)
    yield from _from_classes(tree)
    yield from repeated_places(tree)
    yield from _from_metas(tree)
    yield from _from_images(tree)


def title_place(trees: Sequence[LexborHTMLParser]) -> list[PlaceCandidate]:
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


def _from_json_ld(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
    for kind, thing in json_ld_of(tree):
        for path in _paths(thing, _DEEPEST):
            yield field_name(path), {"json_ld": f"{kind}.{path}"}, Trust.NAMED


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


def itemprop_places(root: Root) -> Iterator[PlaceCandidate]:
    """Yield the elements with an `itemprop`."""
    for node in root.css("[itemprop]:not([itemscope])"):
        prop = node.attributes.get("itemprop") or ""
        selector = (
            unique_selector(root, node)
            if isinstance(root, LexborHTMLParser)
            else (f'[itemprop="{prop}"]' if '"' not in prop else None)
        )
        if selector:
            yield field_name(prop), {"css": f"{selector}{_attribute(node)}"}, Trust.NAMED


def labelled_places(root: Root) -> Iterator[PlaceCandidate]:
    """Yield the elements after a label: `dt`, `th`, or text with a colon."""
    for label in root.css(_LABELS):
        text = text_of(label)
        value = _labelled_value(label)
        if not text or len(text) > _LONGEST_LABEL or value is None or not text_of(value):
            continue
        is_labelled = label.tag in {"dt", "th"} or text.rstrip().endswith(":")
        if not is_labelled or is_aside(label):
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


def _from_times(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
    node = tree.css_first("main time[datetime], article time[datetime], time[datetime]")
    if node is not None and (selector := unique_selector(tree, node)):
        yield "date", {"css": f"{selector}@datetime"}, Trust.NAMED


def _from_classes(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
    """Yield elements that their own class names, and that contain nothing but text."""
    for node in tree.css("body [class]"):
        names = names_of(node)
        if not names or is_aside(node) or not _is_leaf(node):
            continue
        if selector := unique_selector(tree, node):
            name = last_word(names[0]) or field_name(names[0])
            yield name, {"css": f"{selector}{_attribute(node, is_text=True)}"}, Trust.WEAK


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


def _is_leaf(node: LexborNode) -> bool:
    return not any(names_of(child) for child in node.css("[class]") if child != node)


def _from_metas(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
    for name, selector in _METAS.items():
        if tree.css_first(selector) is not None:
            yield name, {"css": f"{selector}@content"}, Trust.WEAK


def _from_images(tree: LexborHTMLParser) -> Iterator[PlaceCandidate]:
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
