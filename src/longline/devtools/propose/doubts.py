"""Reasons to doubt that a group of elements is the list of items of its page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from selectolax.lexbor import LexborNode

from longline.devtools.propose.selectors import ancestors, children_of
from longline.devtools.propose.structure import FEWEST, Group
from longline.http.messages import Page
from longline.sources.html.content import text_of

_SMALL_PART = 0.3  # of the text of the page; the list is usually more of it
_MUCH_BETWEEN = 0.7  # text next to the elements, compared with theirs
_SHORT = 40  # characters of an element; less, and all of it a link, is an entry of a menu
_MOST = 0.85
_LINKED = 0.75  # of the text of menus is in links
_FEW = 5
_ALIKE = 0.85  # of their structure is shared by the items of most lists
_SOME = 0.2  # share of more elements inside the items from which these may be the items
_LEFT_OUT = 0.1  # share of further elements of the same structure from which a warning is given
_INSIDE = 0.6  # of the text of the list; repeated elements inside with more may be the items
_MOST_SAID = 500  # characters of an element that states the number of items
_AMOUNT = r"\d{1,3}(?:[.,\s]\d{3})+|\d+"
_RANGE = re.compile(
    rf"(?<![\d.,/-])({_AMOUNT})\s*(?:-|\u2013|\u2014|to|bis|à|a|al|до)\s*({_AMOUNT})"
    rf"\s*(?:\w+\s+)?(?:of|von|sur|de|di|из|/)\s*(?:\w+\s+){{0,2}}({_AMOUNT})(?![\d.,/-])",
    re.IGNORECASE,
)


def find_doubts(page: Page, group: Group, others: Sequence[Group]) -> Iterator[tuple[str, str]]:
    """Yield a code and a sentence for each reason to doubt the choice of a group."""
    yield from _about_place(group)
    yield from _about_structure(group, others)
    count = len(group.nodes)
    if (stated := _stated_count(page)) is not None and stated != count:
        yield "stated_count", f"The page states {stated} items, {count} were found."


def _about_place(group: Group) -> Iterator[tuple[str, str]]:
    count = len(group.nodes)
    if group.is_aside:
        yield "side_list", "The items are in a menu, a header, a footer or a side column."
    if _is_links_alone(group.nodes):
        yield (
            "only_links",
            "The items hold links and no further text: they may be a menu or categories.",
        )
    if _is_part_of_rows(group.nodes):
        yield "part_of_rows", "The items are parts of table rows: each row may be an item."
    if group.has_several_tables:
        yield "several_tables", "The items are rows of tables whose columns have different names."
    if count < _FEW:
        yield "few_items", f"Only {count} elements of the same structure were found."
    if group.coverage < _SMALL_PART:
        yield (
            "small_part",
            f"The items hold {group.coverage:.0%} of the page's text: the list may be another.",
        )


def _about_structure(group: Group, others: Sequence[Group]) -> Iterator[tuple[str, str]]:
    count = len(group.nodes)
    if group.homogeneity < _ALIKE and not group.odd:
        yield (
            "mixed_items",
            f"The items share only {group.homogeneity:.0%} of their structure.",
        )
    elif group.odd:
        yield (
            "mixed_items",
            f"{len(group.odd)} of {count} elements differ from the others: they may not be items.",
        )
    if group.left_out >= max(2, _LEFT_OUT * count):
        yield (
            "left_out",
            f"{group.left_out} or more elements of the same structure are not among the items.",
        )
    elif group.between > _MUCH_BETWEEN:
        yield (
            "text_between",
            "Other elements next to the items hold as much text: the items may be incomplete.",
        )
    if (inner := _list_inside(group, others)) is not None:
        yield (
            "list_inside",
            f"The items contain {len(inner.nodes)} elements {inner.selector}, which may be items.",
        )


def _is_links_alone(nodes: Sequence[LexborNode]) -> bool:
    """Return True if the elements are links with short texts, or several links each."""
    text = linked = several = short = 0
    for node in nodes:
        own = len(text_of(node))
        links = [node] if node.tag == "a" else node.css("a[href]")
        named = [link for link in links if text_of(link)]
        text += own
        linked += sum(len(text_of(link)) for link in named)
        several += len(named) >= FEWEST
        short += own < _SHORT and node.css_first("img, time, h2, h3, h4, td") is None
    is_menu = max(several, short) > _MOST * len(nodes)
    return is_menu and linked > _LINKED * max(1, text)


def _is_part_of_rows(nodes: Sequence[LexborNode]) -> bool:
    if nodes[0].tag == "tr":
        return False
    rows = [next((one for one in ancestors(node) if one.tag == "tr"), None) for node in nodes]
    return len({row.mem_id for row in rows if row is not None}) > len(nodes) / 3


def _list_inside(group: Group, others: Sequence[Group]) -> Group | None:
    """Return a group inside the elements that holds most of their text, with several in some."""
    ids = group.ids
    for other in others:
        if other.slots < 2 or other.coverage < _INSIDE * group.coverage:  # noqa: PLR2004
            continue
        inside = sum(any(one.mem_id in ids for one in ancestors(node)) for node in other.nodes)
        if inside >= len(other.nodes) * _MOST and len(other.nodes) > (1 + _SOME) * len(ids):
            return other
    return None


def _stated_count(page: Page) -> int | None:
    """Return how many items the page says it shows: 20 for `1-20 of 532`."""
    body = page.tree.body
    stack = [body] if body is not None else []
    while stack:
        node = stack.pop()
        text = text_of(node)
        found = _RANGE.search(text)
        if found is None:
            continue
        if len(text) <= _MOST_SAID:
            first, last, total = (int(re.sub(r"\D", "", one)) for one in found.groups())
            if first <= last <= total and last - first + 1 >= FEWEST and first % 5 in {0, 1}:
                return last - first + 1
            continue
        stack.extend(reversed(children_of(node)))
    return None
