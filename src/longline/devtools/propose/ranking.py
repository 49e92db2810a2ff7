"""Rank groups of elements by how likely they are the list of items."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from selectolax.lexbor import LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
    is_utility,
)
from longline.devtools.propose.structure import AD_CLASS, MIXED, MOSTLY, Group, spread_sample
from longline.sources.html.content import text_of

_COUNTED = re.compile(r"\(\s*\d[\d.,\s]*\)\s*$")
_ITEM_TYPES = re.compile(r'itemtype\$="/(?:WebPage|BreadcrumbList|ListItem|SiteNavigation)')
_SLOTS = {0: 0.05, 1: 0.35, 2: 0.85, 3: 1.0, 4: 1.06, 5: 1.1}
_MOST_SLOTS_FACTOR = 1.13
_SHORT, _LONG = 12, 4000  # characters of an element; less is a button, more a whole page
_ALL_ALIKE = 0.98


def selector_rank(selector: str) -> tuple[float, int]:
    """Return a sort key: the most stable and shortest selector first."""
    return 1 / _quality(selector), len(selector)


def _quality(selector: str) -> float:
    """Return how likely a selector is to hold on another page, as a factor."""
    parts = re.split(r" > ", selector)
    factor = 1.0 if len(parts) == 1 else 0.985
    names = re.findall(r"\.([\w-]+)", selector)
    if names and all(is_utility(name) for name in names):
        factor *= 0.95
    if selector.startswith("body >"):
        factor *= 0.93
    return factor * 0.995 ** (len(parts) - 1)


def score_group(group: Group) -> float:
    """Return how likely a group is the list of items; a good one has about 100."""
    count = len(group.nodes)
    texts = group.texts
    score = 25.0 * math.pow(group.coverage, 0.6) * math.log2(1 + min(count, 100))
    score *= _SLOTS.get(group.slots, _MOST_SLOTS_FACTOR)
    score *= group.homogeneity**2 * _quality(group.selector)
    score *= (len(set(texts)) / len(texts)) ** 2
    if not _SHORT < sum(map(len, texts)) / len(texts) < _LONG:
        score *= 0.5
    if group.link is not None:
        score *= 1.2
    if group.has_headings:
        score *= 1.1
    if group.has_several_tables:
        score *= 0.7
    return score * _unlikely(group)


def _unlikely(group: Group) -> float:
    """Return a factor below 1 for menus, texts, advertisements and page numbers."""
    score = 1.0
    if group.is_aside:
        score *= 0.15
    if group.nodes[0].tag == "p" and group.link is None:
        score *= 0.4  # paragraphs of a text
    if _is_menu(group):
        score *= 0.4
    if group.slots <= 1 and all(_is_link_alone(node) for node in spread_sample(group.nodes, 10)):
        score *= 0.5  # nothing but links: a menu, unless the page has nothing else
    if sum(bool(_COUNTED.search(text)) for text in group.texts) > len(group.texts) / 2:
        score *= 0.3  # filters, each with the number of its items
    if group.followers and group.link is None and group.nodes[0].tag != "dt":
        score *= 0.6  # headings of a text, each with its first paragraph
    if any(AD_CLASS.search(name) for name in re.findall(r"(?<!:not\()\.([\w-]+)", group.selector)):
        score *= 0.2
    if _ITEM_TYPES.search(group.selector):
        score *= 0.5
    if sum(text.strip().isdecimal() for text in group.texts) > len(group.texts) / 2:
        score *= 0.01  # page numbers
    return score


def _is_link_alone(node: LexborNode) -> bool:
    links = [node] if node.tag == "a" else node.css("a[href]")
    return len(links) == 1 and len(text_of(links[0])) >= len(text_of(node))


def _is_menu(group: Group) -> bool:
    """Return True if the elements hold little but several links each: menus, filters."""
    sample = spread_sample(group.nodes, 10)
    parts = [
        [node, after]
        for node, after in zip(sample, spread_sample(group.followers, 10), strict=False)
    ]
    text = linked = links = 0
    for some in parts or [[node] for node in sample]:
        for node in some:
            text += len(text_of(node))
            found = [node] if node.tag == "a" else node.css("a[href]")
            linked += sum(len(text_of(link)) for link in found)
            # A title with icons next to it is one link to read.
            links += len({link.attributes.get("href") for link in found if text_of(link)})
    return links >= 3 * len(sample) and linked > 0.85 * max(1, text)


def distinct_groups(groups: Sequence[Group]) -> list[Group]:
    """Keep one selector for each set of elements: without empty ones first, then by its quality."""
    best: dict[frozenset[int], Group] = {}
    for group in sorted(groups, key=lambda one: (len(one.odd), *selector_rank(one.selector))):
        best.setdefault(group.ids, group)
    return list(best.values())


def compare_nested(groups: Sequence[Group]) -> None:
    """Settle which of two groups that are inside each other is the list of items."""
    ids = [group.ids for group in groups]
    factors = [_without_odd_factor(group, ids) for group in groups]
    for place, inner in enumerate(groups):
        within: Counter[int] = Counter()
        for node in inner.nodes:
            around = {one.mem_id for one in ancestors(node)}
            within.update(n for n, outer in enumerate(ids) if n != place and outer & around)
        for other, count in within.items():
            if count >= MOSTLY * len(inner.nodes):
                own, outer = _nested_factors(inner, groups[other])
                if _is_under_headings(inner, groups[other]):
                    own, outer = 1.0, 0.9 * min(1.0, inner.score / groups[other].score)
                factors[place] = min(factors[place], own)
                factors[other] = min(factors[other], outer)
    for group, factor in zip(groups, factors, strict=True):
        group.score *= factor
    for place, group in enumerate(groups):
        for larger, whole in zip(ids, groups, strict=True):
            is_part = ids[place] < larger and not whole.odd and whole.homogeneity >= _ALL_ALIKE
            if (
                is_part
                and whole.slots >= group.slots
                and bool(whole.followers) == bool(group.followers)
            ):
                group.score = min(group.score, MIXED * whole.score)


def _without_odd_factor(group: Group, others: Sequence[frozenset[int]]) -> float:
    """Return a factor below 1 when another group is this one without its odd elements."""
    odd, ids = {node.mem_id for node in group.odd}, group.ids
    return 0.7 if odd and any(ids - other and ids - other <= odd for other in others) else 1.0


def _nested_factors(inner: Group, outer: Group) -> tuple[float, float]:
    """Return the factors of a group and of one that its elements are inside of."""
    is_whole = inner.coverage >= 0.75 * outer.coverage
    is_many = len(inner.nodes) >= 1.7 * len(outer.nodes)
    if is_many and is_whole:
        is_row = inner.slots > 1 and inner.score > MOSTLY * outer.score
        return 1.0, 0.7 if is_row else 1.0  # a row of cards
    if outer.score < MOSTLY * inner.score:
        return 1.0, 1.0  # a column of the page, not an item
    if is_many:
        return 0.6, 1.0  # tags of an item
    return 0.95 if is_whole else 0.8, 1.0  # a part of an item


def _is_under_headings(inner: Group, outer: Group) -> bool:
    """Return True if the inner elements are the items, and the outer ones headed parts of a list.

    The parts hold little besides, and not all of them hold the same number of items.
    """
    if inner.slots < 2 or inner.coverage < 0.75 * outer.coverage:  # noqa: PLR2004
        return False
    if not 1.2 * len(outer.nodes) <= len(inner.nodes) or inner.score < 0.5 * outer.score:
        return False
    counted = dict.fromkeys(outer.ids, 0)
    for node in inner.nodes:
        for one in ancestors(node):
            if one.mem_id in counted:
                counted[one.mem_id] += 1
                break
    counts = set(counted.values())
    return 0 not in counts and len(counts) > 1


def without_echoes(groups: Sequence[Group]) -> list[Group]:
    """Leave out groups that are parts, wrappers or subsets of one that is more likely."""
    kept: list[Group] = []
    for group in groups:
        if group.score > 0 and not any(_is_echo(group, better) for better in kept):
            kept.append(group)
    return kept


def _is_echo(group: Group, better: Group) -> bool:
    ids, others = group.ids, better.ids
    if len(ids & others) > len(ids) / 2:
        return True
    inside = sum(any(one.mem_id in others for one in ancestors(node)) for node in group.nodes)
    if inside > len(ids) / 2:
        return len(ids) < 1.3 * len(others) or group.score < better.score / 3
    owners = [
        next((one.mem_id for one in ancestors(node) if one.mem_id in ids), None)
        for node in better.nodes
    ]
    around = len(owners) - owners.count(None)
    if around == len(others) == len(ids) == len(set(owners)):
        return True  # each wraps one
    return around > len(others) / 2 and group.score < better.score / 2
