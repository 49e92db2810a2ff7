"""Content of an HTML page: visible text, JSON-LD, microdata and Open Graph."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from urllib.parse import urljoin

import orjson
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.json import decimal, read_json, whole_number

_INVISIBLE = frozenset({"script", "style", "template", "noscript"})
_INLINE_TAGS = """
    a abbr b bdi bdo cite code data del dfn em font i img ins kbd label mark meta q s samp small
    span strike strong sub sup time tt u var wbr
"""
_INLINE = frozenset(_INLINE_TAGS.split())
_JOINED = frozenset({"img", "meta", "wbr"})  # inline, without text of their own
_RAISED = frozenset({"sub", "sup"})
_STRUCK = frozenset({"del", "ins", "s", "strike"})
_EDGE, _RAISED_EDGE, _STRUCK_EDGE, _BLOCK = "-", "^", "~", " "
_EDGE_OF = {
    **dict.fromkeys(_INLINE - _JOINED, _EDGE),
    **dict.fromkeys(_JOINED, ""),
    **dict.fromkeys(_RAISED, _RAISED_EDGE),
    **dict.fromkeys(_STRUCK, _STRUCK_EDGE),
}


def node_text(node: LexborNode) -> str:
    """Return the text of an element on one line; "" when it has none."""
    child = node.first_child
    if child is None:
        return ""
    if child.next is None and child.is_text_node:  # as nearly always
        return " ".join((child.text_content or "").split())
    return " ".join("".join(_pieces(child)).split())


def _pieces(first: LexborNode) -> list[str]:
    """Return the texts from this node on; iterative, since pages nest deeply."""
    pieces: list[str] = []
    last = edges = ""
    stack: list[LexborNode | str] = [first]
    while stack:
        here = stack.pop()
        if isinstance(here, str):  # the end of an element
            edges += here
            continue
        if (following := here.next) is not None:
            stack.append(following)
        if here.is_text_node:
            if not (text := here.text_content):
                continue
            if edges:
                pieces.append(_separator(last, edges, text[0]))
                edges = ""
            pieces.append(text)
            last = text[-1]
        elif here.is_element_node and (tag := here.tag or "") not in _INVISIBLE:
            edge = _EDGE_OF.get(tag, _BLOCK)
            edges += edge
            if (child := here.first_child) is not None:
                stack.append(edge)
                stack.append(child)
    return pieces


def _separator(preceding: str, edges: str, following: str) -> str:
    """Return the separator of two texts: a space between blocks or between two values."""
    if _BLOCK in edges:
        return " "
    if following.isdecimal():
        if preceding.isdecimal():
            return "" if edges == _EDGE else " "  # two elements with digits are two values
        return " " if preceding.isalpha() and _RAISED_EDGE not in edges else ""  # m2 stays m2
    return " " if _STRUCK_EDGE in edges and preceding.isdecimal() and following.isalpha() else ""


LENIENT = json.JSONDecoder(
    strict=False, parse_int=whole_number, parse_float=decimal, parse_constant=str
)
"""A JSON decoder that accepts line breaks in strings, which are common and harmless."""
_SURROGATE_ESCAPE = "\\ud"
# Each alternative is bounded or reads to its end, so that hostile text takes linear time.
_NOT_JSON = re.compile(
    r"""
      (?P<text>"(?:[^"\\]|\\.)*+(?:"|\\?\Z))
    | (?:(?://|/\*)[ \t]{0,8})?(?:<!\[CDATA\[|\]\]>)(?:[ \t]{0,8}\*/)?
    | <!--[^{}\[\]"]{0,2000}?--> | (?://[ \t]{0,8})?(?:<!--|-->)
    | //[^\n]* | /\*.*?(?:\*/|\Z)
    """,
    re.DOTALL | re.VERBOSE,
)
_TEXT_OR_COMMA = re.compile(r'(?P<text>"(?:[^"\\]|\\.)*+(?:"|\\?\Z))|,(?=\s*[}\]])', re.DOTALL)
_BAD_ESCAPE = re.compile(r"\\(?:([\\\"/bfnrtu])|(.))", re.DOTALL)
_BETWEEN = re.compile(r"[\s;,\ufeff]*")
_ADDRESSES = {
    **dict.fromkeys(("audio", "embed", "iframe", "img", "source", "track", "video"), "src"),
    **dict.fromkeys(("a", "area", "link"), "href"),
    "object": "data",
}
_VALUES = {"meta": "content", "data": "value", "meter": "value", "time": "datetime"}


def read_json_ld(text: str) -> list[Any]:
    """Return the values in a JSON-LD script; an empty list if it cannot be parsed.

    Comments, CDATA marks, trailing commas, invalid escapes and several values are accepted.
    """
    try:
        return [read_json(text)]
    except orjson.JSONDecodeError:
        pass
    if '"' not in text and "&quot;" in text:
        text = html.unescape(text)
    cleaned = _TEXT_OR_COMMA.sub(_keep_text, _NOT_JSON.sub(_keep_text, text))
    values: list[Any] = []
    place = _end_of_gap(cleaned, 0)
    while place < len(cleaned):
        try:
            value, place = LENIENT.raw_decode(cleaned, place)
        except (json.JSONDecodeError, RecursionError):
            break
        values.append(replace_surrogates(value, text))
        place = _end_of_gap(cleaned, place)
    return values


def replace_surrogates(value: Any, text: str) -> Any:
    """Replace lone surrogates, which JSON can express and UTF-8 cannot."""
    if _SURROGATE_ESCAPE not in text.lower():
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _keep_text(found: re.Match[str]) -> str:
    text: str | None = found["text"]
    if text is None:
        return ""
    return _BAD_ESCAPE.sub(_fix_escape, text) if "\\" in text else text


def _fix_escape(found: re.Match[str]) -> str:
    return found[0] if found[1] else str(found[2])


def _end_of_gap(text: str, place: int) -> int:
    found = _BETWEEN.match(text, place)
    return found.end() if found else place


class Microdata:
    """The items of a page (https://html.spec.whatwg.org/multipage/microdata.html).

    An item is a dict as in JSON-LD: `@type`, `@id`, and its properties; a repeated property is a
    list.
    """

    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        self._base = base
        nodes = tree.css("[itemscope]")
        self._items = {node.mem_id: _new_item(node) for node in nodes}
        self._references = _references(tree, nodes)
        self._owners: dict[int, list[int]] = {}
        if nodes:
            for node in tree.css("[itemprop]"):
                self._add_value(node)

    def within(self, node: LexborNode | None) -> Iterable[dict[str, Any]]:
        """Return the items in an element, including itself, or in the page; outer ones first."""
        if node is None or not self._items:
            return self._items.values()
        return [self._items[one.mem_id] for one in node.css("[itemscope]")]

    def _add_value(self, node: LexborNode) -> None:
        value = self._value(node)
        if value in ("", None):
            return
        parent = node.parent
        owners = dict.fromkeys(self._owners_at(parent) if parent is not None else ())
        referring = self._references.get(node.mem_id, ())
        for owner in (*owners, *(one for one in referring if one not in owners)):
            # An item with an itemref of its own could lead back to its owner.
            is_referred = isinstance(value, dict) and owner not in self._scopes_above(node)
            if is_referred and node.css("[itemref]"):
                continue
            for name in (node.attributes.get("itemprop") or "").split():
                _add_property(self._items[owner], name, value)

    def _scopes_above(self, node: LexborNode) -> list[int]:
        above = node.parent
        while above is not None and above.mem_id not in self._items:
            above = above.parent
        return [above.mem_id] if above is not None else []

    def _owners_at(self, node: LexborNode) -> list[int]:
        """Return the items that a property directly in this element belongs to."""
        path: list[LexborNode] = []
        here: LexborNode | None = node
        while here is not None and here.mem_id not in self._owners:
            path.append(here)
            here = None if here.mem_id in self._items else here.parent
        owners = self._owners[here.mem_id] if here is not None else []
        for one in reversed(path):
            if one.mem_id in self._items:
                owners = [one.mem_id]
            elif one.mem_id in self._references:
                owners = [*owners, *self._references[one.mem_id]]
            self._owners[one.mem_id] = owners
        return owners

    def _value(self, node: LexborNode) -> Any:
        if node.mem_id in self._items:
            return self._items[node.mem_id]
        attributes, tag = node.attributes, node.tag or ""
        if tag in _ADDRESSES:
            address = (attributes.get(_ADDRESSES[tag]) or "").strip()
            return urljoin(self._base, address) if address else None
        value = attributes.get(_VALUES.get(tag, "content"))
        return node_text(node) if value is None and tag != "meta" else (value or "").strip()


def _new_item(node: LexborNode) -> dict[str, Any]:
    types = (node.attributes.get("itemtype") or "").split()
    name = (node.attributes.get("itemid") or "").strip()
    return {**({"@type": types} if types else {}), **({"@id": name} if name else {})}


def _references(tree: LexborHTMLParser, nodes: list[LexborNode]) -> dict[int, list[int]]:
    """Return the items whose `itemref` names an element, by element."""
    referring = [(node, one.split()) for node in nodes if (one := node.attributes.get("itemref"))]
    if not referring:
        return {}
    named: dict[str | None, int] = {}
    for node in tree.css("[id]"):
        named.setdefault(node.attributes.get("id"), node.mem_id)
    found: dict[int, list[int]] = defaultdict(list)
    for node, names in referring:
        for one in dict.fromkeys(names):
            if one in named and named[one] != node.mem_id:
                found[named[one]].append(node.mem_id)
    return found


def _add_property(item: dict[str, Any], name: str, value: Any) -> None:
    if name not in item:
        item[name] = value
    elif isinstance(item[name], list):
        item[name].append(value)
    else:
        item[name] = [item[name], value]


def open_graph_of(tree: LexborHTMLParser) -> dict[str, list[str]]:
    """Return the prefixed properties of a page's `meta` tags, such as og:title."""
    found: dict[str, list[str]] = {}
    for node in tree.css("meta[content]"):
        name = (node.attributes.get("property") or node.attributes.get("name") or "").strip()
        value = (node.attributes.get("content") or "").strip()
        if ":" in name and value:
            found.setdefault(name, []).append(value)
    return found
