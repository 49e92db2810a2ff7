"""Groups of elements of the same structure on a page: what may be the items of a list.

A group is everything that one selector finds. Selectors are collected from the whole page, by
class, by attribute and by position below a named element; the groups are then compared by what
their elements have in common, so that an additional class on some of them makes no difference.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
    classes_of,
    data_selectors,
    following,
    is_plain,
    is_stable,
    is_utility,
    module_selectors,
    own_selectors,
)
from longline.devtools.propose.structure import (
    AD_CLASS,
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
    PageLinks,
    PageParts,
    common_paths,
    count_inside,
    count_slots,
    find_link,
    has_headings,
    header_and_total_rows,
    ids_of,
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
    without_nodes,
)
from longline.http.messages import Page
from longline.sources.html.content import node_text

# ---------------- Rank groups of elements by how likely they are the list of items

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
    return len(links) == 1 and len(node_text(links[0])) >= len(node_text(node))


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
            text += len(node_text(node))
            found = [node] if node.tag == "a" else node.css("a[href]")
            linked += sum(len(node_text(link)) for link in found)
            # A title with icons next to it is one link to read.
            links += len({link.attributes.get("href") for link in found if node_text(link)})
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
    odd, ids = ids_of(group.odd), group.ids
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
    if count_inside(group.nodes, others) > len(ids) / 2:
        return len(ids) < 1.3 * len(others) or group.score < better.score / 3
    owners = [
        next((one.mem_id for one in ancestors(node) if one.mem_id in ids), None)
        for node in better.nodes
    ]
    around = len(owners) - owners.count(None)
    if around == len(others) == len(ids) == len(set(owners)):
        return True  # each wraps one
    return around > len(others) / 2 and group.score < better.score / 2


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

    def _size(self, *nodes: LexborNode) -> int:
        return sum(self._sizes.get(node.mem_id, 0) for node in nodes)

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
            factor = 0.1 if self._sides.has(nodes[0]) else 1.0
            return self._size(*nodes) * math.log2(1 + len(nodes)) * factor

        largest = sorted(collected, key=lambda one: size(one[1]), reverse=True)[:_EXAMINED]
        found = (Group(selector, nodes) for selector, nodes in largest)
        return [judged for one in found if (judged := self._examine(one)) is not None]

    def _examine(self, group: Group) -> Group | None:
        """Fill in what a group has in common; None when it is not a list."""
        empty = [node for node in group.nodes if not self._size(node)]
        group.nodes = without_nodes(group.nodes, empty)
        if len(group.nodes) < FEWEST:
            return None
        group.texts = [node_text(node) for node in group.nodes]
        _examine_structure(group)
        leading_up = [node for node in group.nodes if self._links.only_lead_up(node)]
        group.odd += without_nodes(leading_up, group.odd)
        group.odd += without_nodes(_without_class_and_link(group), group.odd)
        # The selector finds elements without text, too, and each would be an empty record.
        group.odd += empty
        group.homogeneity *= len(group.nodes) / (len(group.nodes) + len(empty))
        if followers := self._followers(group):
            group.followers = followers
            shapes = [shape_of(node) for node in spread_sample(followers, SAMPLED)]
            group.slots += count_slots(shapes, common_paths(shapes))
        group.is_aside = self._sides.has(group.nodes[0]) and self._sides.has(group.nodes[-1])
        covered = self._size(*group.nodes, *group.followers)
        group.coverage = min(1.0, covered / (self._all if group.is_aside else self._whole))
        group.link = find_link(self._links, group.nodes)
        group.score = score_group(group)
        return group

    def _followers(self, group: Group) -> list[LexborNode]:
        """Return the element after each, when all of one tag follow and none is in the group."""
        found = [after for node in group.nodes if (after := following(node)) is not None]
        followers = without_nodes(found, group.nodes)
        is_regular = len(followers) == len(group.nodes) and len({n.tag for n in followers}) == 1
        if not is_regular or len(ids_of(followers)) < len(followers):
            return []
        if self._sides.has(followers[0]) or not all(map(self._size, followers)):
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
            yield from self._group_apart(group.selector, kind, without_nodes(group.nodes, kind))

    def _largest_table(self, group: Group) -> Iterator[Group]:
        """Yield the rows of the table with the most of them."""
        tables: defaultdict[int, list[LexborNode]] = defaultdict(list)
        for row in group.nodes:
            tables[next(one.mem_id for one in ancestors(row) if one.tag == "table")].append(row)
        largest = max(tables.values(), key=len)
        yield from self._group_apart(group.selector, largest, without_nodes(group.nodes, largest))

    def _look_around(self, group: Group) -> None:
        """Fill in what a group leaves out: elements of its structure, and text between its own."""
        ids = ids_of(group.nodes) | ids_of(group.followers)
        parents = {node.parent.mem_id: node.parent for node in group.nodes if node.parent}
        near = [one for parent in parents.values() for one in children_of(parent)]
        others = [one for one in near if one.mem_id not in ids and one.tag not in INVISIBLE_TAGS]
        own = self._size(*group.nodes, *group.followers)
        group.between = self._size(*others) / max(1, own)
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
            and self._size(one)
            and not any(outer.mem_id in ids for outer in ancestors(one))
            and not self._sides.has(one)
            and not is_advert(one)
        ]
        same = without_nodes(same, group.odd)
        names = set.intersection(*(set(classes_of(node)) for node in sample))
        is_named = all(len(kind) > 1 for kind in kinds)

        def is_left_out(one: LexborNode) -> bool:
            shape = shape_of(one)
            if is_named and (one.tag, *classes_of(one)) in kinds:
                return True
            if names.intersection(classes_of(one)):  # it may have more to it
                return len(common & shape.keys()) >= SAME_KIND * len(common)
            return likeness(common, shape) >= SAME_KIND

        group.left_out = sum(map(is_left_out, spread_sample(same, 3 * SAMPLED)))
        if group.left_out >= max(2, MIN_KIND_SHARE * len(group.nodes)):
            group.score *= 0.85

    def _refined_groups(self, group: Group) -> Iterator[Group]:
        """Yield the group without its odd elements, or some, where a selector separates them."""
        empty = [node for node in group.odd if not self._size(node)]
        for odd in (group.odd, empty, without_nodes(group.odd, empty)):
            regular = without_nodes(group.nodes, odd)
            apart = self._group_apart(group.selector, regular, odd)
            if len(regular) >= FEWEST and (found := list(apart)):
                yield from found
                return

    def _group_apart(
        self, selector: str, chosen: Sequence[LexborNode], others: Sequence[LexborNode]
    ) -> Iterator[Group]:
        """Yield the group of chosen elements, if a selector separates them from the others."""
        if not others:
            return
        wanted = ids_of(chosen)
        for one in islice(_telling_apart(selector, chosen, others), _MOST_TRIED):
            nodes = self._tree.css(one)
            if ids_of(filter(self._size, nodes)) == wanted:
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
        ids = ids_of(nodes)
        known = collected.get(ids)
        if known is None or selector_rank(selector) < selector_rank(known[0]):
            collected[ids] = selector, nodes
    return list(collected.values())


def _is_card(node: LexborNode) -> bool:
    """Return True if a cell of a table may be an item: an image that is a link, and its name."""
    if node.tag != "td" or not classes_of(node):
        return False
    is_pictured = node.css_first("a[href] img") is not None
    return is_pictured and any(node_text(link) for link in node.css("a[href]"))


def _selectors_of(node: LexborNode) -> Iterator[str]:
    """Yield selectors that find elements of the same kind as this one."""
    tag = node.tag or "*"
    yield from (f"{tag}.{name}" for name in classes_of(node))
    yield from data_selectors(node)
    yield from module_selectors(node)
    if node.attributes.get("itemprop") == "itemListElement":
        yield "[itemprop=itemListElement]"
    steps = [f"{tag}:has(td)" if tag == "tr" else tag]
    here, named = node.parent, 0
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
    return count_inside(nodes[:200], ids_of(nodes)) > len(nodes[:200]) / 20


def _examine_structure(group: Group) -> None:
    """Compare the elements of a group: what most have in common, and which lack it."""
    sample = spread_sample(group.nodes, SAMPLED)
    shapes = [shape_of(node) for node in sample]
    common = common_paths(shapes)
    names = [inner_class_names(node) for node in sample]
    shared = shared_class_names(names)
    ads = ids_of(filter(is_advert, group.nodes))
    if len(ads) > MAX_AD_SHARE * len(group.nodes):
        ads = frozenset()
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
    linked = [n for n in group.nodes if n.tag == "a" or n.css_first("a[href]") is not None]
    if not shared or len(linked) < usual:
        return []
    unlinked = without_nodes(group.nodes, linked)
    return [node for node in unlinked if not shared.intersection(classes_of(node))]


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


# ---------------- Reasons to doubt that a group of elements is the list of items of its page

_SMALL_PART = 0.3  # of the text of the page; the list is usually more of it
_MUCH_BETWEEN = 0.7  # text next to the elements, compared with theirs
_MENU_TEXT = 40  # characters of an element; less, and all of it a link, is an entry of a menu
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
    count, odd, left_out = len(group.nodes), len(group.odd), group.left_out
    is_cut = left_out >= max(2, _LEFT_OUT * count)
    inner, stated = _list_inside(group, others), _stated_count(page)
    mixed = f"The items share only {group.homogeneity:.0%} of their structure."
    if odd:
        mixed = f"{odd} of {count} elements differ from the others: they may not be items."
    doubts = {
        "side_list": group.is_aside
        and "The items are in a menu, a header, a footer or a side column.",
        "only_links": _is_links_alone(group.nodes)
        and "The items hold links and no further text: they may be a menu or categories.",
        "part_of_rows": _is_part_of_rows(group.nodes)
        and "The items are parts of table rows: each row may be an item.",
        "several_tables": group.has_several_tables
        and "The items are rows of tables whose columns have different names.",
        "few_items": count < _FEW and f"Only {count} elements of the same structure were found.",
        "small_part": group.coverage < _SMALL_PART
        and f"The items hold {group.coverage:.0%} of the page's text: the list may be another.",
        "mixed_items": (odd or group.homogeneity < _ALIKE) and mixed,
        "left_out": is_cut
        and f"{left_out} or more elements of the same structure are not among the items.",
        "text_between": not is_cut
        and group.between > _MUCH_BETWEEN
        and "Other elements next to the items hold as much text: the items may be incomplete.",
        "list_inside": inner is not None
        and f"The items contain {len(inner.nodes)} elements {inner.selector}: they may be items.",
        "stated_count": stated not in (None, count)
        and f"The page states {stated} items, {count} were found.",
    }
    yield from ((code, text) for code, text in doubts.items() if isinstance(text, str))


def _is_links_alone(nodes: Sequence[LexborNode]) -> bool:
    """Return True if the elements are links with short texts, or several links each."""
    text = linked = several = short = 0
    for node in nodes:
        own = len(node_text(node))
        links = [node] if node.tag == "a" else node.css("a[href]")
        named = [link for link in links if node_text(link)]
        text += own
        linked += sum(len(node_text(link)) for link in named)
        several += len(named) >= FEWEST
        short += own < _MENU_TEXT and node.css_first("img, time, h2, h3, h4, td") is None
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
        inside = count_inside(other.nodes, ids)
        if inside >= len(other.nodes) * _MOST and len(other.nodes) > (1 + _SOME) * len(ids):
            return other
    return None


def _stated_count(page: Page) -> int | None:
    """Return how many items the page says it shows: 20 for `1-20 of 532`."""
    body = page.tree.body
    stack = [body] if body is not None else []
    while stack:
        node = stack.pop()
        text = node_text(node)
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
