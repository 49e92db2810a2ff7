"""The parts of a page that are not its content: menus, headers, footers, side columns."""

from __future__ import annotations

import re
from collections.abc import Mapping

from selectolax.lexbor import LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
)
from longline.devtools.propose.structure import FEWEST, INVISIBLE_TAGS
from longline.sources.html.content import text_of

_ASIDE = frozenset({"nav", "header", "footer", "aside"})
_PARTS_OF_LISTS = frozenset({"tr", "tbody", "td", "th", "article"})
_SIDE = re.compile(
    r"(?:^|[-_ ])(?:side(?:bar|nav)?|mega\w*|\w*menu|top-?nav|refine\w*|nav(?:bar|igation)?|"
    r"foot(?:er)?|breadcrumbs?|pagination|pager|"
    r"related|recommend(?:ed|ations?)?|comments?|filters?|facets?|widget|social|share|cookie|"
    r"carousel|slider|tagcloud|tag-cloud|most-read|popular|trending|toolbar|dropdown|modal|header|"
    r"languages?|lang|categories|tags)(?:$|[-_ ])",
    re.IGNORECASE,
)
_ENTRIES = "input[type=text], input[type=search], input[type=password], select, textarea"
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST_NAME = 60  # characters of class and id; more are those of the page as a whole
_WRAPPER = 0.75  # of the page's text; an element with more is the page, whatever it is called
_LINKED = 0.8  # of the text of a menu is in links


class PageParts:
    """The parts of a page that are not its content: menus, headers, footers, side columns."""

    def __init__(self, body: LexborNode | None, sizes: Mapping[int, int]) -> None:
        self._ids: set[int] = set()
        self._known: dict[int, bool] = {}
        self.text_size = 0
        """Characters of text in these parts."""
        if body is None:
            return
        whole = sizes.get(body.mem_id, 0)
        self._collect_parts(body, sizes, whole, is_by_tag=True)
        # What is called a menu and holds most of the rest is a wrapper of the page.
        self._collect_parts(body, sizes, whole - self.text_size, is_by_tag=False)

    def has(self, node: LexborNode) -> bool:
        """Return True if an element is one of these parts or inside of one."""
        if not self._ids:
            return False
        passed = []
        found = False
        for one in (node, *ancestors(node)):
            known = self._known.get(one.mem_id)
            if known is not None or one.mem_id in self._ids:
                found = known is not False
                break
            passed.append(one.mem_id)
        self._known.update(dict.fromkeys(passed, found))
        return found

    def _collect_parts(
        self, body: LexborNode, sizes: Mapping[int, int], whole: int, *, is_by_tag: bool
    ) -> None:
        stack = children_of(body)
        while stack:
            node = stack.pop()
            if node.tag in INVISIBLE_TAGS or node.mem_id in self._ids:
                continue
            is_side = _is_side_tag(node) if is_by_tag else _is_side_name(node)
            size = sizes.get(node.mem_id, 0)
            if is_side and not (size > _WRAPPER * whole and _is_wrapper(node)):
                self._ids.add(node.mem_id)
                self.text_size += size - sum(
                    sizes.get(one.mem_id, 0)
                    for one in node.css("*")
                    if one.mem_id in self._ids and one.mem_id != node.mem_id
                )
            else:
                stack.extend(children_of(node))


def _has_rows(table: LexborNode) -> bool:
    """Return True if a table holds rows of data, and is not a layout for a menu."""
    rows = [children_of(row) for row in table.css("tr")]
    return sum(len(cells) > 2 for cells in rows) > FEWEST  # noqa: PLR2004


def _is_wrapper(node: LexborNode) -> bool:
    """Return True if an element holds more than a menu does: tables, headings, running text."""
    if node.tag == "nav":
        return False
    if node.css_first("h1, main, article, table") is not None:
        return True
    return not _is_linked(node)


def _is_linked(node: LexborNode) -> bool:
    """Return True if most of the text of an element is in links."""
    linked = sum(len(text_of(link)) for link in node.css("a[href]"))
    return linked >= _LINKED * len(text_of(node))


def _is_side_tag(node: LexborNode) -> bool:
    if node.tag in _ASIDE:
        return True
    return node.attributes.get("role") in {"navigation", "complementary", "contentinfo", "banner"}


def _is_side_name(node: LexborNode) -> bool:
    if node.tag == "form":
        # Some put the whole list into a form, and some each item.
        return len(node.css(_ENTRIES)) > 1 and node.css_first("article, h3, table, img") is None
    if node.tag in _PARTS_OF_LISTS:
        return False  # `tr.header-border`: the name describes its look
    words = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}"
    words = _CAMEL.sub(" ", words)
    # A class of the page as a whole says nothing of its parts: `has-sidebar`, `with-menu`.
    return (
        len(words) < _LONGEST_NAME
        and bool(_SIDE.search(words))
        and not re.search(r"has-|with", words)
        and (node.tag != "table" or not _has_rows(node))
    )
