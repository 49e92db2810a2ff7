"""Content of an HTML page: visible text, JSON-LD, microdata and Open Graph."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
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
_BAD_ESCAPE = re.compile(r"(\\[\\\"/bfnrtu])|\\(?=.)", re.DOTALL)
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
    place = 0
    while gap := _BETWEEN.match(cleaned, place):
        try:
            value, place = LENIENT.raw_decode(cleaned, gap.end())
        except (json.JSONDecodeError, RecursionError):  # also at the end
            break
        values.append(replace_surrogates(value, text))
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
    return _BAD_ESCAPE.sub(r"\1", text) if "\\" in text else text


class Microdata:
    """The items of a page (https://html.spec.whatwg.org/multipage/microdata.html).

    An item is a dict as in JSON-LD: `@type`, `@id`, and its properties; a repeated property is a
    list. `itemref` adds the plain properties of other elements, but no items.
    """

    def __init__(self, tree: LexborHTMLParser, base: str) -> None:
        self._base = base
        self._items: dict[int, dict[str, Any]] = {}
        self._owners: dict[int, Sequence[dict[str, Any]]] = {}
        """The items that properties in an element belong to, by element."""
        referring: dict[str, list[dict[str, Any]]] = {}
        for node in tree.css("[itemscope]"):
            types = (node.attributes.get("itemtype") or "").split()
            name = (node.attributes.get("itemid") or "").strip()
            item = {**({"@type": types} if types else {}), **({"@id": name} if name else {})}
            self._items[node.mem_id] = item
            self._owners[node.mem_id] = (item,)
            for one in (node.attributes.get("itemref") or "").split():
                referring.setdefault(one, []).append(item)
        for node in tree.css("[id]") if referring else ():
            if owners := referring.pop(node.attributes.get("id") or "", None):
                self._owners.setdefault(node.mem_id, owners)
        for node in tree.css("[itemprop]") if self._items else ():
            self._add_property(node)

    def within(self, node: LexborNode | None) -> Iterable[dict[str, Any]]:
        """Return the items in an element, including itself, or in the page; outer ones first."""
        if node is None or not self._items:
            return self._items.values()
        return [self._items[one.mem_id] for one in node.css("[itemscope]")]

    def _add_property(self, node: LexborNode) -> None:
        value = self._value(node)
        here = node.parent if isinstance(value, dict) else node
        path: list[int] = []
        while here is not None and here.mem_id not in self._owners:
            path.append(here.mem_id)
            here = here.parent
        owners = self._owners[here.mem_id] if here is not None else ()
        self._owners.update(dict.fromkeys(path, owners))  # remembered, since pages nest deeply
        # The items that refer to an element are a list, the item around it is a tuple.
        if value in ("", None) or (isinstance(owners, list) and isinstance(value, dict)):
            return
        for owner in owners:
            for name in (node.attributes.get("itemprop") or "").split():
                known = owner.get(name, [])
                several = known if isinstance(known, list) else [known]
                owner[name] = [*several, value] if name in owner else value

    def _value(self, node: LexborNode) -> Any:
        if node.mem_id in self._items:
            return self._items[node.mem_id]
        attributes, tag = node.attributes, node.tag or ""
        if tag in _ADDRESSES:
            address = (attributes.get(_ADDRESSES[tag]) or "").strip()
            return urljoin(self._base, address) if address else None
        value = attributes.get(_VALUES.get(tag, "content"))
        return node_text(node) if value is None and tag != "meta" else (value or "").strip()


def open_graph_of(tree: LexborHTMLParser) -> dict[str, list[str]]:
    """Return the prefixed properties of a page's `meta` tags, such as og:title."""
    found: dict[str, list[str]] = {}
    for node in tree.css("meta[content]"):
        name = (node.attributes.get("property") or node.attributes.get("name") or "").strip()
        value = (node.attributes.get("content") or "").strip()
        if ":" in name and value:
            found.setdefault(name, []).append(value)
    return found
