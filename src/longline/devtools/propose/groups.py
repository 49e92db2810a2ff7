"""Groups of elements of the same structure on a page: what may be the items of a list.

A group is everything that one selector finds. Selectors are collected from the whole page, by
class, by attribute and by position below a named element; the groups are then compared by what
their elements have in common, so that an additional class on some of them makes no difference.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.links import PageLinks, find_link
from longline.devtools.propose.page_parts import PageParts
from longline.devtools.propose.ranking import (
    compare_nested,
    distinct_groups,
    score_group,
    selector_rank,
    without_echoes,
)
from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
    classes_of,
    data_selectors,
    following,
    is_plain,
    is_stable,
    module_selectors,
    own_selectors,
)
from longline.devtools.propose.structure import (
    ALIKE,
    FEWEST,
    HEADING_TAGS,
    INVISIBLE_TAGS,
    MAX_AD_SHARE,
    MIN_KIND_SHARE,
    MIXED,
    MOSTLY,
    SAME_KIND,
    SAMPLED,
    Group,
    common_paths,
    count_slots,
    has_headings,
    header_and_total_rows,
    inner_class_names,
    is_advert,
    is_same_kind,
    kinds_among,
    likeness,
    shape_of,
    shared_class_names,
    spread_sample,
    table_columns,
    visible_text_sizes,
)
from longline.http.messages import Page
from longline.sources.html.content import text_of

MOST = 6
"""Groups that are returned, the most likely first."""
_EXAMINED = 80  # groups whose elements are compared; the others cover too little of the page
_MOST_ELEMENTS = 3000
_HIGHEST = 20  # levels above an element that its selector may start at: nested layout tables
_NEVER_ITEMS_TAGS = """
    html body head script style template noscript svg path g br hr b i em strong small code img
    picture source input label button select option optgroup thead tbody tfoot colgroup col td th
    caption nav meta link time sup sub use br wbr iframe video audio canvas h1 figure
    figcaption abbr
"""
_NEVER_ITEMS = frozenset(_NEVER_ITEMS_TAGS.split())
_MOST_INNER = 60  # inner selectors that are tried to distinguish elements
_MOST_CELLS = 4  # cells that are tried to distinguish a row from other rows
_MOST_TRIED = 30  # selectors that are tried to separate some elements of a group from the others
_COMPARED = 10  # groups, the most likely ones, that elements of the same kind are looked for


class GroupFinder:
    """Finds and ranks the groups of one page."""

    def __init__(self, page: Page) -> None:
        self._links = PageLinks(page)
        self._tree = page.tree
        self._sizes = visible_text_sizes(self._tree)
        body = self._tree.body
        self._all = max(1, self._sizes.get(body.mem_id, 0) if body is not None else 1)
        self._sides = PageParts(body, self._sizes)
        self._whole = max(1, self._all - self._sides.text_size)

    @property
    def text_size(self) -> int:
        """Characters of text outside of navigation, header and footer."""
        return self._whole

    def find(self) -> list[Group]:
        """Return what may be the list of a page, the most likely first."""
        groups = self._examined()
        groups += [one for group in groups for one in self._kind_groups(group)]
        refined = [one for group in groups if group.odd for one in self._refined_groups(group)]
        groups += refined
        groups += [one for group in refined if group.odd for one in self._refined_groups(group)]
        groups = distinct_groups(groups)
        compare_nested(groups)
        groups.sort(key=lambda one: one.score, reverse=True)
        for group in groups[:_COMPARED]:
            self._look_around(group)
        groups.sort(key=lambda one: one.score, reverse=True)
        return without_echoes(groups)[:MOST]

    def _examined(self) -> list[Group]:
        collected = _collected(self._tree)

        # A cheap estimate first: their text and their number.
        def size(nodes: Sequence[LexborNode]) -> float:
            held = sum(self._sizes.get(node.mem_id, 0) for node in nodes)
            return held * math.log2(1 + len(nodes)) * (0.1 if self._sides.has(nodes[0]) else 1.0)

        largest = sorted(collected, key=lambda one: size(one[1]), reverse=True)[:_EXAMINED]
        found = (Group(selector, nodes) for selector, nodes in largest)
        return [judged for one in found if (judged := self._examine(one)) is not None]

    def _examine(self, group: Group) -> Group | None:
        """Fill in what a group has in common; None when it is not a list."""
        empty = [node for node in group.nodes if not self._sizes.get(node.mem_id, 0)]
        group.nodes = [node for node in group.nodes if self._sizes.get(node.mem_id, 0)]
        if len(group.nodes) < FEWEST:
            return None
        group.texts = [text_of(node) for node in group.nodes]
        _examine_structure(group)
        known = {node.mem_id for node in group.odd}
        group.odd += [
            node
            for node in group.nodes
            if node.mem_id not in known and self._links.only_lead_up(node)
        ]
        known = {node.mem_id for node in group.odd}
        group.odd += [node for node in _without_class_and_link(group) if node.mem_id not in known]
        # The selector finds elements without text, too, and each would be an empty record.
        group.odd += empty
        group.homogeneity *= len(group.nodes) / (len(group.nodes) + len(empty))
        covered = sum(self._sizes.get(node.mem_id, 0) for node in group.nodes)
        if followers := self._followers(group):
            group.followers = followers
            covered += sum(self._sizes.get(node.mem_id, 0) for node in followers)
            shapes = [shape_of(node) for node in spread_sample(followers, SAMPLED)]
            group.slots += count_slots(shapes, common_paths(shapes))
        group.is_aside = self._sides.has(group.nodes[0]) and self._sides.has(group.nodes[-1])
        group.coverage = min(1.0, covered / (self._all if group.is_aside else self._whole))
        group.link = find_link(self._links, group.nodes)
        group.score = score_group(group)
        return group

    def _followers(self, group: Group) -> list[LexborNode]:
        """Return the element after each, when all of one tag follow and none is in the group."""
        ids = group.ids
        found = [following(node) for node in group.nodes]
        followers = [node for node in found if node is not None and node.mem_id not in ids]
        is_regular = len(followers) == len(group.nodes) and len({n.tag for n in followers}) == 1
        if not is_regular or len({node.mem_id for node in followers}) < len(followers):
            return []
        if self._sides.has(followers[0]) or not all(self._sizes.get(n.mem_id) for n in followers):
            return []
        if is_same_kind(group.nodes, followers):
            return []  # every second item of a list, by a class that alternates
        return followers

    def _kind_groups(self, group: Group) -> Iterator[Group]:
        """Yield the parts of a group whose elements are of several kinds, in turn."""
        if group.has_several_tables:
            yield from self._largest_table(group)
        if group.homogeneity >= MIXED or all(node.css_first(HEADING_TAGS) for node in group.nodes):
            return
        for kind in kinds_among(group.nodes):
            ids = {node.mem_id for node in kind}
            others = [node for node in group.nodes if node.mem_id not in ids]
            yield from self._group_apart(group.selector, kind, others)

    def _largest_table(self, group: Group) -> Iterator[Group]:
        """Yield the rows of the table with the most of them."""
        tables: defaultdict[int, list[LexborNode]] = defaultdict(list)
        for row in group.nodes:
            tables[next(one.mem_id for one in ancestors(row) if one.tag == "table")].append(row)
        largest = max(tables.values(), key=len)
        ids = {row.mem_id for row in largest}
        yield from self._group_apart(
            group.selector, largest, [row for row in group.nodes if row.mem_id not in ids]
        )

    def _look_around(self, group: Group) -> None:
        """Fill in what a group leaves out: elements of its structure, and text between its own."""
        ids = group.ids | {node.mem_id for node in group.followers}
        parents = {node.parent.mem_id: node.parent for node in group.nodes if node.parent}
        near = [one for parent in parents.values() for one in children_of(parent)]
        others = [one for one in near if one.mem_id not in ids and one.tag not in INVISIBLE_TAGS]
        own = sum(self._sizes.get(node.mem_id, 0) for node in (*group.nodes, *group.followers))
        group.between = sum(self._sizes.get(one.mem_id, 0) for one in others) / max(1, own)
        sample = spread_sample(group.nodes, SAMPLED)
        common = common_paths([shape_of(node) for node in sample])
        if len(common) < FEWEST:
            return
        around = {one.mem_id for node in sample for one in ancestors(node)}
        kinds = {(node.tag, *classes_of(node)) for node in sample}
        same = [
            one
            for one in self._tree.css(f"body {group.nodes[0].tag}")
            if one.mem_id not in ids
            and one.mem_id not in around
            and (one.parent is not None and one.parent.mem_id in parents)
            | ((one.tag, *classes_of(one)) in kinds)
            and self._sizes.get(one.mem_id, 0)
            and not any(outer.mem_id in ids for outer in ancestors(one))
            and not self._sides.has(one)
            and not is_advert(one)
        ]
        odd = {node.mem_id for node in group.odd}
        names = set.intersection(*(set(classes_of(node)) for node in sample))

        is_named = all(len(kind) > 1 for kind in kinds)

        def is_left_out(one: LexborNode) -> bool:
            shape = shape_of(one)
            if is_named and (one.tag, *classes_of(one)) in kinds:
                return True
            if names.intersection(classes_of(one)):  # it may have more to it
                return len(common & shape.keys()) >= SAME_KIND * len(common)
            return likeness(common, shape) >= SAME_KIND

        group.left_out = sum(
            one.mem_id not in odd and is_left_out(one) for one in spread_sample(same, 3 * SAMPLED)
        )
        if group.left_out >= max(2, MIN_KIND_SHARE * len(group.nodes)):
            group.score *= 0.85

    def _refined_groups(self, group: Group) -> Iterator[Group]:
        """Yield the group without its odd elements, or some, where a selector separates them."""
        empty = [node for node in group.odd if not self._sizes.get(node.mem_id, 0)]
        others = [node for node in group.odd if self._sizes.get(node.mem_id, 0)]
        for odd in (group.odd, empty, others):
            ids = {node.mem_id for node in odd}
            regular = [node for node in group.nodes if node.mem_id not in ids]
            found = (
                list(self._group_apart(group.selector, regular, odd))
                if len(regular) >= FEWEST
                else []
            )
            if found:
                yield from found
                return

    def _group_apart(
        self, selector: str, chosen: Sequence[LexborNode], others: Sequence[LexborNode]
    ) -> Iterator[Group]:
        """Yield the group of chosen elements, if a selector separates them from the others."""
        if not others:
            return
        wanted = {node.mem_id for node in chosen}
        for one in islice(_telling_apart(selector, chosen, others), _MOST_TRIED):
            nodes = self._tree.css(one)
            if {node.mem_id for node in nodes if self._sizes.get(node.mem_id, 0)} == wanted:
                if (judged := self._examine(Group(one, nodes))) is not None:
                    yield judged
                return


def _collected(tree: LexborHTMLParser) -> list[tuple[str, list[LexborNode]]]:
    """Return selectors with three matches and more that are not inside each other."""
    found: dict[str, list[LexborNode]] = defaultdict(list)
    for node in tree.css("body *"):
        if (node.tag in _NEVER_ITEMS and not _is_card(node)) or not is_plain(node.tag):
            continue
        for selector in _selectors_of(node):
            found[selector].append(node)
    collected: dict[frozenset[int], tuple[str, list[LexborNode]]] = {}
    for selector, nodes in found.items():
        if not FEWEST <= len(nodes) <= _MOST_ELEMENTS or _is_nested(nodes):
            continue
        ids = frozenset(node.mem_id for node in nodes)
        known = collected.get(ids)
        if known is None or selector_rank(selector) < selector_rank(known[0]):
            collected[ids] = selector, nodes
    return list(collected.values())


def _is_card(node: LexborNode) -> bool:
    """Return True if a cell of a table may be an item: an image that is a link, and its name."""
    if node.tag != "td" or not classes_of(node):
        return False
    is_pictured = node.css_first("a[href] img") is not None
    return is_pictured and any(text_of(link) for link in node.css("a[href]"))


def _selectors_of(node: LexborNode) -> Iterator[str]:
    """Yield selectors that find elements of the same kind as this one."""
    tag = node.tag or "*"
    yield from _kinds_of(node)
    parent = node.parent
    if parent is None:
        return
    row = f"{tag}:has(td)" if tag == "tr" else tag
    steps = [row]
    here: LexborNode | None = parent
    named = 0
    for _ in range(_HIGHEST):
        if here is None or here.tag in (None, "html", "body"):
            break
        joined = " > ".join(reversed(steps))
        containers = list(_containers(here))
        yield from (f"{one} > {joined}" for one in containers)
        named += bool(containers)
        if named > 1:
            return
        steps.append(here.tag or "*")
        here = here.parent
    if here is not None and here.tag == "body" and not named:
        yield f"body > {' > '.join(reversed(steps))}"


def _kinds_of(node: LexborNode) -> Iterator[str]:
    tag = node.tag or "*"
    names = classes_of(node)
    yield from (f"{tag}.{name}" for name in names)
    yield from data_selectors(node)
    yield from module_selectors(node)
    if node.attributes.get("itemprop") == "itemListElement":
        yield "[itemprop=itemListElement]"


def _containers(node: LexborNode) -> Iterator[str]:
    tag = node.tag or "*"
    if (name := node.attributes.get("id")) and is_stable(name):
        yield f"#{name}"
    yield from (f"{tag}.{name}" for name in classes_of(node)[:3])
    yield from data_selectors(node)
    yield from module_selectors(node)
    if tag == "main":
        yield tag


def _is_nested(nodes: Sequence[LexborNode]) -> bool:
    """Return True if elements of a group are inside others of it."""
    ids = {node.mem_id for node in nodes}
    inside = sum(any(outer.mem_id in ids for outer in ancestors(node)) for node in nodes[:200])
    return inside > len(nodes[:200]) / 20


def _examine_structure(group: Group) -> None:
    """Compare the elements of a group: what most have in common, and which lack it."""
    sample = spread_sample(group.nodes, SAMPLED)
    shapes = [shape_of(node) for node in sample]
    common = common_paths(shapes)
    names = [inner_class_names(node) for node in sample]
    shared = shared_class_names(names)
    ads = {node.mem_id for node in group.nodes if is_advert(node)}
    if len(ads) > MAX_AD_SHARE * len(group.nodes):
        ads = set()
    if common:
        shares = [len(common & shape.keys()) / len(common) for shape in shapes]
        group.homogeneity = sum(
            0.0 if node.mem_id in ads else share for node, share in zip(sample, shares, strict=True)
        ) / len(shares)
        heads = header_and_total_rows(group.nodes)
        is_headed = has_headings(sample)
        for node in group.nodes:
            share = len(common & shape_of(node).keys()) / len(common)
            if is_headed and node.css_first(HEADING_TAGS) is not None:
                share = max(share, ALIKE)  # it has the title of an item, and lacks other parts
            if shared:
                # Where the parts of an item have names, those count for more than their place.
                named = len(shared & inner_class_names(node)) / len(shared)
                share = max(share, named if named >= MOSTLY else 0.0)
            if share < ALIKE or node.mem_id in ads or node.mem_id in heads:
                group.odd.append(node)
    group.slots = count_slots(shapes, common)
    group.has_headings = has_headings(sample)
    group.has_several_tables = len(table_columns(group.nodes)) > 1


def _without_class_and_link(group: Group) -> list[LexborNode]:
    """Return the few elements that have neither the class nor any link of the others."""
    usual = MOSTLY * len(group.nodes)
    names = Counter(name for node in group.nodes for name in classes_of(node))
    shared = {name for name, count in names.items() if count >= usual}
    linked = {node.mem_id for node in group.nodes if _has_link(node)}
    if not shared or len(linked) < usual:
        return []
    return [
        node
        for node in group.nodes
        if node.mem_id not in linked and not shared.intersection(classes_of(node))
    ]


def _has_link(node: LexborNode) -> bool:
    return node.tag == "a" or node.css_first("a[href]") is not None


def _telling_apart(
    selector: str, regular: Sequence[LexborNode], odd: Sequence[LexborNode]
) -> Iterator[str]:
    """Yield selectors that may find the regular elements of a group and not the odd ones."""
    shared = set.intersection(*(set(classes_of(node)) for node in regular))
    of_odd = [set(classes_of(node)) for node in odd]
    for name in sorted(shared - set().union(*of_odd)):
        yield f"{selector}.{name}"
    of_regular = set().union(*(set(classes_of(node)) for node in regular))
    for name in sorted(set.intersection(*of_odd) - of_regular):
        yield f"{selector}:not(.{name})"
    inner = Counter(one for node in spread_sample(regular, 10) for one in _inner_selectors(node))
    needed = min(10, len(regular))
    fitting = [one for one, count in inner.items() if count == needed]
    # Names that people chose first, and always the same one.
    fitting.sort(key=lambda one: ("." not in one, len(one), one))
    for one in fitting[:_MOST_INNER]:
        if not any(node.css_first(one) for node in odd):
            yield f"{selector}:has({one})"
    if regular[0].tag == "tr":
        for place in range(1, min(_MOST_CELLS, len(children_of(regular[0]))) + 1):
            yield f"{selector}:has(> td:nth-child({place}):not(:empty))"
            yield f"{selector}:has(> td:nth-child({place}) a)"
        columns = len(children_of(regular[0]))
        last = f":has(> td:nth-child({columns}))"
        yield f"{selector}{last}:not(:has(> td:nth-child({columns + 1})))"
    yield f"{selector}:not(:first-child)"
    yield f"{selector}:not(:last-child)"
    links = [link for node in odd if (link := node.css_first("a[href]")) is not None]
    hrefs = dict.fromkeys((link.attributes.get("href") or "").replace('"', "%22") for link in links)
    if 0 < len(hrefs) <= _MOST_CELLS:
        without = "".join(f':not(:has([href="{href}"]))' for href in hrefs)
        yield f"{selector}{without}"
        yield f"{selector}:has(td){without}"


def _inner_selectors(node: LexborNode) -> set[str]:
    found: set[str] = set()
    for inner in node.css("*"):
        if inner.mem_id != node.mem_id and inner.tag not in INVISIBLE_TAGS:
            found.update(one for one in own_selectors(inner) if not one.startswith("#"))
    return found
