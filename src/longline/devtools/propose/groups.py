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
from itertools import islice, permutations

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
    FEWEST,
    HEADING_TAGS,
    INVISIBLE_TAGS,
    MOSTLY,
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
    shape_of,
    spread_sample,
    visible_text_sizes,
    without_nodes,
)
from longline.http.messages import Page
from longline.sources.html.content import node_text

_MOST_RETURNED = 6
_EXAMINED = 80  # groups whose elements are compared; the others cover too little of the page
_MOST_ELEMENTS = 3000
_HIGHEST = 20  # levels above an element that its selector may start at: nested layout tables
_NEVER_ITEMS_TAGS = """
    html body head script style template noscript svg path g br hr b i em strong small code img
    picture source input label button select option optgroup thead tbody tfoot colgroup col td th
    caption nav meta link time sup sub use wbr iframe video audio canvas h1 figure figcaption abbr
"""
_NEVER_ITEMS = frozenset(_NEVER_ITEMS_TAGS.split())
_MOST_INNER = 60  # inner selectors that are tried to distinguish elements
_MOST_TRIED = 30  # selectors that are tried to separate some elements of a group from the others
_COMPARED = 10  # groups, the most likely ones, whose surroundings are examined
_ALIKE = 0.55  # an element with less of the common structure is odd
_SAME_KIND = 0.8  # an element with so much of it, outside of the group, is left out
_AD_CLASS = re.compile(
    r"^(?!tag-|category-)(?:[\w-]*(?:--|__))?(?:is-|has-)?(?:ads?|ad-?(?:slot|unit|box|item|container)|"
    r"advert\w*|sponsor\w*|promoted|promo)$",
    re.IGNORECASE,
)
_MAX_AD_SHARE = 0.4  # of the elements of a list; more are items that happen to be called so

# ---------------- Rank groups by how likely they are the list of items

_SLOT_FACTORS = (0.05, 0.35, 0.85, 1.0)  # by texts that differ; the last for three and more
_ALL_ALIKE = 0.98  # homogeneity of a regular list
_SHORT, _LONG = 12, 4000  # characters of an element; less is a button, more a whole page


def _selector_rank(selector: str) -> tuple[bool, int, int]:
    """Return a sort key: selectors by name first, then the shortest."""
    names = re.findall(r"\.([\w-]+)", selector)
    is_by_look = bool(names) and all(map(is_utility, names))
    return is_by_look or selector.startswith("body >"), selector.count(" > "), len(selector)


def _score_group(group: Group) -> float:
    """Return how likely a group is the list of items; a good one has about 100.

    A list is much of the page's text, in many elements of the same structure with different texts.
    """
    texts = group.texts
    score = 25.0 * math.pow(group.coverage, 0.6) * math.log2(1 + min(len(texts), 100))
    score *= _SLOT_FACTORS[min(group.slots, len(_SLOT_FACTORS) - 1)]
    score *= (group.homogeneity * len(set(texts)) / len(texts)) ** 2
    if group.link is not None or group.has_headings:
        score *= 1.2
    if group.is_aside:
        score *= 0.15
    if not _SHORT < sum(map(len, texts)) / len(texts) < _LONG:
        score *= 0.5
    is_text = group.nodes[0].tag == "p" and group.link is None
    if is_text or _is_links_alone(group):
        score *= 0.4
    return score


def _is_links_alone(group: Group) -> bool:
    """Return True if the elements are links with short texts, or several links each: a menu."""
    text = linked = several = short = 0
    for node in spread_sample([*group.nodes, *group.followers], SAMPLED):
        own = node_text(node)
        links = [node] if node.tag == "a" else node.css("a[href]")
        # A title with icons next to it is one link to read.
        named = {link.attributes.get("href"): len(node_text(link)) for link in links}
        named = {href: size for href, size in named.items() if size}
        text += len(own)
        linked += sum(named.values())
        several += len(named) >= FEWEST
        short += len(own) < _MENU_TEXT and node.css_first("img, time, h2, h3, h4, td") is None
    sampled = min(len(group.nodes) + len(group.followers), SAMPLED)
    return max(several, short) > _MOST * sampled and linked > _LINKED * max(1, text)


def _compare_nested(groups: Sequence[Group]) -> None:
    """Lower the score of groups that are parts of items, or hold several items each."""
    ids = [group.ids for group in groups]
    above = [
        [{one.mem_id for one in ancestors(node)} for node in spread_sample(group.nodes, SAMPLED)]
        for group in groups
    ]
    factors = [1.0] * len(groups)
    for place, other in permutations(range(len(groups)), 2):
        inner, outer = groups[place], groups[other]
        if ids[place] < ids[other]:
            is_regular = not outer.odd and outer.homogeneity >= _ALL_ALIKE
            if is_regular and outer.slots >= inner.slots:
                factors[place] = min(factors[place], 0.9 * outer.score / max(inner.score, 0.01))
        elif _share_inside(above[place], ids[other]) >= MOSTLY:
            if _is_list_inside(inner, outer) and inner.score >= 0.5 * outer.score:
                factors[other] = min(factors[other], 0.7 * inner.score / max(outer.score, 0.01))
            elif outer.score >= MOSTLY * inner.score:
                factors[place] = min(factors[place], 0.6)
    for group, factor in zip(groups, factors, strict=True):
        group.score *= min(1.0, factor)


def _share_inside(above: Sequence[set[int]], ids: frozenset[int]) -> float:
    return sum(not ids.isdisjoint(one) for one in above) / len(above)


def _is_list_inside(inner: Group, outer: Group) -> bool:
    """Return True if elements hold little but further elements, and not always as many."""
    if inner.slots < 2 or inner.coverage < 0.75 * outer.coverage:  # noqa: PLR2004
        return False
    if len(inner.nodes) < 1.2 * len(outer.nodes):
        return False
    ids = outer.ids
    owners = Counter(
        next((one.mem_id for one in ancestors(node) if one.mem_id in ids), 0)
        for node in inner.nodes
    )
    return len(set(owners.values())) > 1


def _is_echo(group: Group, better: Group) -> bool:
    """Return True if a group is a part, a wrapper or a subset of one that is more likely."""
    ids, others = group.ids, better.ids
    if len(ids & others) > len(ids) / 2:
        return True
    if count_inside(group.nodes, others) > len(ids) / 2:
        return len(ids) < 1.3 * len(others) or group.score < better.score / 3
    around = count_inside(better.nodes, ids)
    is_wrapper = len(ids) == len(others) or group.score < better.score / 2
    return around > len(others) / 2 and is_wrapper


# ---------------- Find groups


class GroupFinder:
    """Finds and ranks the groups of one page."""

    def __init__(self, page: Page) -> None:
        self._links = PageLinks(page)
        self._tree = page.tree
        self._sizes = visible_text_sizes(self._tree)
        body = self._tree.body
        self._all = max(1, self._sizes.get(body.mem_id, 0) if body is not None else 1)
        self._sides = PageParts(body, self._sizes)
        self.text_size = max(1, self._all - self._sides.text_size)
        """Characters of text outside of navigation, header and footer."""

    def find(self) -> list[Group]:
        """Return what may be the list of a page, the most likely first."""
        found = (self._examine(selector, nodes) for selector, nodes in self._largest())
        groups = [one for one in found if one is not None]
        groups += [one for group in groups if (one := self._without_odd(group)) is not None]
        best: dict[frozenset[int], Group] = {}
        for group in sorted(groups, key=lambda one: (len(one.odd), _selector_rank(one.selector))):
            best.setdefault(group.ids, group)
        groups = list(best.values())
        _compare_nested(groups)
        groups.sort(key=lambda one: one.score, reverse=True)
        for group in groups[:_COMPARED]:
            self._look_around(group)
        kept: list[Group] = []
        for group in groups:
            if group.score > 0 and not any(_is_echo(group, better) for better in kept):
                kept.append(group)
            if len(kept) == _MOST_RETURNED:
                break
        return kept

    def _size(self, *nodes: LexborNode) -> int:
        return sum(self._sizes.get(node.mem_id, 0) for node in nodes)

    def _largest(self) -> list[tuple[str, list[LexborNode]]]:
        """Return the selectors that find the most text, by a cheap estimate."""

        def size(found: tuple[str, list[LexborNode]]) -> float:
            nodes = found[1]
            factor = 0.1 if self._sides.has(nodes[0]) else 1.0
            return self._size(*nodes) * math.log2(1 + len(nodes)) * factor

        return sorted(_collect_selectors(self._tree), key=size, reverse=True)[:_EXAMINED]

    def _examine(self, selector: str, found: list[LexborNode]) -> Group | None:
        """Return what the elements have in common; None when they are not a list."""
        nodes = [node for node in found if self._size(node)]
        if len(nodes) < FEWEST:
            return None
        group = Group(selector, nodes, [node_text(node) for node in nodes])
        sample = spread_sample(nodes, SAMPLED)
        shapes = [shape_of(node) for node in sample]
        common = common_paths(shapes)
        group.has_headings = has_headings(sample)
        group.slots = count_slots(shapes, common)
        group.odd = self._odd_nodes(group, common)
        # The selector finds elements without text, too, and each would be an empty record.
        group.odd += without_nodes(found, nodes)
        shares = [len(common & shape.keys()) / max(1, len(common)) for shape in shapes]
        group.homogeneity = sum(shares) / len(shares) if common else 1.0
        group.homogeneity *= 1 - len(group.odd) / len(found)
        if nodes[0].tag == "dt":
            after = [one for node in nodes if (one := following(node)) is not None]
            if len(after) == len(nodes) and {one.tag for one in after} == {"dd"}:
                group.followers = after
                shapes = [shape_of(node) for node in spread_sample(after, SAMPLED)]
                group.slots += count_slots(shapes, common_paths(shapes))
        group.is_aside = self._sides.has(nodes[0]) and self._sides.has(nodes[-1])
        covered = self._size(*nodes, *group.followers)
        group.coverage = min(1.0, covered / (self._all if group.is_aside else self.text_size))
        group.link = find_link(self._links, nodes)
        group.score = _score_group(group)
        return group

    def _odd_nodes(self, group: Group, common: set[str]) -> list[LexborNode]:
        """Return the elements that are probably not items: they lack most of the structure."""
        if not common:
            return []
        ads = [node for node in group.nodes if _is_advert(node)]
        if len(ads) > _MAX_AD_SHARE * len(group.nodes):
            ads = []
        certain = ids_of([*ads, *header_and_total_rows(group.nodes)])
        names = Counter(name for node in group.nodes for name in classes_of(node))
        usual = {name for name, count in names.items() if count >= MOSTLY * len(group.nodes)}
        odd = []
        for node in group.nodes:
            is_named = not usual or bool(usual.intersection(classes_of(node)))
            share = len(common & shape_of(node).keys()) / len(common)
            # With the title of an item, it is one that lacks other parts.
            is_titled = group.has_headings and node.css_first(HEADING_TAGS) is not None
            is_like = is_named and (share >= _ALIKE or is_titled)
            if node.mem_id in certain or not is_like:
                odd.append(node)
        return odd

    def _without_odd(self, group: Group) -> Group | None:
        """Return the group without its odd elements, or the empty ones, by another selector."""
        empty = [node for node in group.odd if not self._size(node)]
        for odd in (group.odd, empty):
            regular = without_nodes(group.nodes, odd)
            if not odd or len(regular) < FEWEST:
                continue
            wanted = ids_of(regular)
            for one in islice(_separating_selectors(group.selector, regular, odd), _MOST_TRIED):
                nodes = self._tree.css(one)
                if ids_of(filter(self._size, nodes)) == wanted:
                    return self._examine(one, nodes)
        return None

    def _look_around(self, group: Group) -> None:
        """Fill in what a group leaves out: elements of its structure, and text between its own."""
        ids = ids_of([*group.nodes, *group.followers])
        parents = {node.parent.mem_id: node.parent for node in group.nodes if node.parent}
        near = [one for parent in parents.values() for one in children_of(parent)]
        others = [one for one in near if one.mem_id not in ids and one.tag not in INVISIBLE_TAGS]
        group.between = self._size(*others) / max(1, self._size(*group.nodes, *group.followers))
        sample = spread_sample(group.nodes, SAMPLED)
        common = common_paths([shape_of(node) for node in sample])
        if len(common) < FEWEST:
            return
        names = {name for node in sample for name in classes_of(node)}
        excluded = ids | ids_of(group.odd) | {one.mem_id for n in sample for one in ancestors(n)}

        def is_left_out(one: LexborNode) -> bool:
            is_near = one.parent is not None and one.parent.mem_id in parents
            if one.mem_id in excluded or not (is_near or names.intersection(classes_of(one))):
                return False
            if not self._size(one) or self._sides.has(one) or _is_advert(one):
                return False
            is_inside = any(outer.mem_id in ids for outer in ancestors(one))
            is_same = len(common & shape_of(one).keys()) >= _SAME_KIND * len(common)
            return is_same and not is_inside

        group.left_out = sum(map(is_left_out, self._tree.css(f"body {group.nodes[0].tag}")))


def _is_advert(node: LexborNode) -> bool:
    """Return True if a class marks an element as an advertisement."""
    return any(_AD_CLASS.search(name) for name in (node.attributes.get("class") or "").split())


def _collect_selectors(tree: LexborHTMLParser) -> list[tuple[str, list[LexborNode]]]:
    """Return selectors with three matches and more that are not inside each other."""
    found: dict[str, list[LexborNode]] = defaultdict(list)
    for node in tree.css("body *"):
        if node.tag in _NEVER_ITEMS or not is_plain(node.tag):
            continue
        for selector in _selectors_of(node):
            found[selector].append(node)
    collected: dict[frozenset[int], tuple[str, list[LexborNode]]] = {}
    for selector, nodes in found.items():
        some = nodes[:200]
        if not FEWEST <= len(nodes) <= _MOST_ELEMENTS:
            continue
        ids = ids_of(nodes)
        if count_inside(some, ids) > len(some) / 20:
            continue
        known = collected.get(ids)
        if known is None or _selector_rank(selector) < _selector_rank(known[0]):
            collected[ids] = selector, nodes
    return list(collected.values())


def _selectors_of(node: LexborNode) -> Iterator[str]:
    """Yield selectors that find elements of the same kind as this one."""
    tag = node.tag or "*"
    yield from (f"{tag}.{name}" for name in classes_of(node))
    yield from data_selectors(node)
    yield from module_selectors(node)
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


def _separating_selectors(
    selector: str, regular: Sequence[LexborNode], odd: Sequence[LexborNode]
) -> Iterator[str]:
    """Yield selectors that may find the regular elements of a group and not the odd ones."""
    of_regular = [set(classes_of(node)) for node in regular]
    of_odd = [set(classes_of(node)) for node in odd]
    for name in sorted(set.intersection(*of_regular).difference(*of_odd)):
        yield f"{selector}.{name}"
    for name in sorted(set.intersection(*of_odd).difference(*of_regular)):
        yield f"{selector}:not(.{name})"
    sample = spread_sample(regular, 10)
    inner = Counter(one for node in sample for one in _inner_selectors(node))
    fitting = [one for one, count in inner.items() if count == len(sample)]
    # Names that people chose first, and always the same one.
    fitting.sort(key=lambda one: ("." not in one, len(one), one))
    for one in fitting[:_MOST_INNER]:
        if not any(node.css_first(one) for node in odd):
            yield f"{selector}:has({one})"
    yield f"{selector}:not(:first-child)"
    yield f"{selector}:not(:last-child)"
    yield f"{selector}:not(:first-child):not(:last-child)"


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
_REGULAR = 0.85  # of their structure is shared by the items of most lists
_OF_ONE_KIND = 0.6  # of the structure of an item is that of most others
_LEFT_OUT = 0.1  # share of further elements of the same structure from which a warning is given
_MOST_SAID = 500  # characters of an element that states the number of items
_AMOUNT = r"\d{1,3}(?:[.,\s]\d{3})+|\d+"
_RANGE = re.compile(
    rf"(?<![\d.,/-])({_AMOUNT})\s*(?:-|\u2013|\u2014|to|bis|à|a|al|до)\s*({_AMOUNT})"
    rf"\s*(?:\w+\s+)?(?:of|von|sur|de|di|из|/)\s*(?:\w+\s+){{0,2}}({_AMOUNT})(?![\d.,/-])",
    re.IGNORECASE,
)


_DOUBTS = {
    "side_list": "The items are in a menu, a header, a footer or a side column.",
    "only_links": "The items contain only links: they may be a menu or categories.",
    "part_of_rows": "The items are parts of table rows: each row may be an item.",
    "several_tables": "The items are rows of several tables whose columns have different names.",
    "few_items": "Only {count} elements of the same structure were found.",
    "small_part": "Items hold only {coverage:.0%} of the page's text; another list may be meant.",
    "mixed_items": "{odd} of {count} elements differ from the others: they may not be items.",
    "left_out": "{left_out} or more elements of the same structure are not among the items.",
    "text_between": "Other elements next to the items hold as much text: some may be items.",
    "list_inside": "Each item has several parts of the same structure: each part may be an item.",
    "stated_count": "The page states {stated} items, but {count} were found.",
}


def find_doubts(page: Page, group: Group, others: Sequence[Group]) -> Iterator[tuple[str, str]]:
    """Yield a code and a sentence for each reason to doubt the choice of a group."""
    nodes, count, odd = group.nodes, len(group.nodes), len(group.odd)
    stated = _stated_count(page)
    is_cut = group.left_out >= max(2, _LEFT_OUT * count)
    is_mixed = group.homogeneity < _REGULAR or _common_share(group) < _OF_ONE_KIND
    has_inner = any(_may_be_items(one, group) for one in others)
    holds = {
        "side_list": group.is_aside,
        "only_links": _is_links_alone(group),
        "part_of_rows": _is_part_of_rows(nodes),
        "several_tables": _has_several_tables(nodes),
        "few_items": count < _FEW,
        "small_part": group.coverage < _SMALL_PART,
        "mixed_items": odd > 0 or is_mixed,
        "left_out": is_cut,
        "text_between": not is_cut and group.between > _MUCH_BETWEEN,
        "list_inside": has_inner or _has_equal_parts(group),
        "stated_count": stated not in (None, count),
    }
    for code in (code for code, is_true in holds.items() if is_true):
        yield (
            code,
            _DOUBTS[code].format(
                count=count,
                odd=odd or "Some",
                stated=stated,
                coverage=group.coverage,
                left_out=group.left_out,
            ),
        )


def _common_share(group: Group) -> float:
    """Return the mean share of an item's structure that most others have, too."""
    shapes = [shape_of(node) for node in spread_sample(group.nodes, SAMPLED)]
    common = common_paths(shapes)
    shares = [len(common & own) / len(own) for one in shapes if (own := one.keys() - {"."})]
    return sum(shares) / len(shares) if shares else 1.0


def _has_equal_parts(group: Group) -> bool:
    """Return True if the children of most elements have one structure, of several elements."""
    sample = spread_sample(group.nodes, SAMPLED)
    count = 0
    for node in sample:
        shapes = [frozenset(shape_of(child)) for child in children_of(node)]
        count += len(shapes) > 1 and len(set(shapes)) == 1 and len(shapes[0]) >= FEWEST
    return count > MOSTLY * len(sample)


def _is_part_of_rows(nodes: Sequence[LexborNode]) -> bool:
    if nodes[0].tag == "tr":
        return False
    rows = [next((one for one in ancestors(node) if one.tag == "tr"), None) for node in nodes]
    return len({row.mem_id for row in rows if row is not None}) > len(nodes) / 3


def _has_several_tables(nodes: Sequence[LexborNode]) -> bool:
    """Return True if these are rows of tables with different columns."""
    tables: dict[int, LexborNode] = {}
    for row in nodes if nodes[0].tag == "tr" else ():
        table = next((one for one in ancestors(row) if one.tag == "table"), row)
        tables[table.mem_id] = table
    columns = {tuple(map(node_text, table.css("th"))) for table in tables.values()}
    return len([one for one in columns if len(one) > 1]) > 1


def _may_be_items(inner: Group, outer: Group) -> bool:
    """Return True if further elements hold most of the text of a group, several in some of it."""
    count = len(inner.nodes)
    is_inside = count_inside(inner.nodes, outer.ids) >= _MOST * count
    is_whole = inner.slots > 1 and inner.coverage >= 0.6 * outer.coverage
    return is_whole and count > 1.2 * len(outer.nodes) and is_inside


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
        if len(text) > _MOST_SAID:
            stack.extend(reversed(children_of(node)))
            continue
        first, last, total = (int(re.sub(r"\D", "", one)) for one in found.groups())
        if first <= last <= total and last - first + 1 >= FEWEST and first % 5 in {0, 1}:
            return last - first + 1
    return None
