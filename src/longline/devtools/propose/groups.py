"""Groups of elements of the same structure on a page: what may be the items of a list.

A group is everything that one selector finds. Selectors are collected from the whole page, by
class, by attribute and by position below a named element; the groups are then compared by what
their elements have in common, so that an additional class on some of them makes no difference.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from urllib.parse import urljoin, urlsplit

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
    names_of,
    own_selectors,
    own_text,
)
from longline.http.messages import Page, without_userinfo
from longline.sources.html.text import text_of

FEWEST = 3
"""Elements of the same structure are a list from here on."""
MOST = 6
"""Groups that are returned, the most likely first."""
_EXAMINED = 80  # groups whose elements are compared; the others cover too little of the page
_SAMPLED = 40  # elements of a group that are compared
_MOST_ELEMENTS = 3000
_MOST_CHILDREN = 60  # of one element; more are a list inside of it
_DEEPEST = 6  # levels below an element that its structure is taken from
_HIGHEST = 20  # levels above an element that its selector may start at: nested layout tables
_MOST_LINKS = 30
_ASIDE = frozenset({"nav", "header", "footer", "aside"})
_PARTS_OF_LISTS = frozenset({"tr", "tbody", "td", "th", "article"})
_TITLES = "h2, h3, h4, h5, h6"
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "head"})
_NEVER_ITEMS_TAGS = """
    html body head script style template noscript svg path g br hr b i em strong small code img
    picture source input label button select option optgroup thead tbody tfoot colgroup col td th
    caption nav meta link time sup sub use br wbr iframe video audio canvas h1 figure
    figcaption abbr
"""
_NEVER_ITEMS = frozenset(_NEVER_ITEMS_TAGS.split())
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
_COUNTED = re.compile(r"\(\s*\d[\d.,\s]*\)\s*$")
_ADS = re.compile(
    r"^(?!tag-|category-)(?:[\w-]*(?:--|__))?(?:is-|has-)?(?:ads?|ad-?(?:slot|unit|box|item|container)|"
    r"advert\w*|sponsor\w*|promoted|promo)$",
    re.IGNORECASE,
)
_ITEM_TYPES = re.compile(r'itemtype\$="/(?:WebPage|BreadcrumbList|ListItem|SiteNavigation)')
_SLOTS = {0: 0.05, 1: 0.35, 2: 0.85, 3: 1.0, 4: 1.06, 5: 1.1}
_MOST_SLOTS_FACTOR = 1.13
_MOSTLY = 0.8
_SHORT, _LONG = 12, 4000  # characters of an element; less is a button, more a whole page
_LONGEST_NAME = 60  # characters of class and id; more are those of the page as a whole
_MOST_ADS = 0.4  # of the elements of a list; more are items that happen to be called so
_ALIKE = 0.55  # an element that shares less of the structure of its group is not one of it
_SAME = 0.8  # elements that share so much of their structure are of the same kind
_WRAPPER = 0.75  # of the page's text; an element with more is the page, whatever it is called
_LINKED = 0.8  # of the text of a menu is in links
_ALL_ALIKE = 0.98
_MIXED = 0.9  # elements that share less of a structure are examined for several kinds
_FEWEST_OF_KIND = 0.2  # share of the elements of a group that a kind has at least
_MOST_KINDS = 4
_MOST_INNER = 60  # inner selectors that are tried to distinguish elements
_MOST_CELLS = 4  # cells that are tried to distinguish a row from other rows
_MOST_TRIED = 30  # selectors that are tried to tell some elements of a group from the others
_COMPARED = 10  # groups, the most likely ones, that elements of the same kind are looked for


@dataclass(frozen=True, slots=True)
class ItemLink:
    """The link of each element to its own page; `css` is empty where the element is the link."""

    css: str
    addresses: Sequence[str]
    worth: float


@dataclass(slots=True)
class Group:
    """Elements that one selector finds, and what they have in common."""

    selector: str
    nodes: list[LexborNode]
    texts: list[str] = field(default_factory=list)
    coverage: float = 0.0
    """Share of the page's text that is in these elements."""
    homogeneity: float = 1.0
    """Mean share of the common structure that an element has."""
    slots: int = 0
    """Places in the structure whose texts differ from element to element."""
    link: ItemLink | None = None
    has_headings: bool = False
    is_aside: bool = False
    followers: list[LexborNode] = field(default_factory=list)
    """The element after each, where it belongs to the item: a `dd` after its `dt`."""
    odd: list[LexborNode] = field(default_factory=list)
    """Elements that lack most of the common structure: advertisements, headings."""
    left_out: int = 0
    """Elements of the same structure elsewhere in the main part of the page."""
    between: float = 0.0
    """Text of other elements next to these, as a share of the text in these."""
    has_several_tables: bool = False
    """Whether these are rows of tables with different columns."""
    score: float = 0.0

    @property
    def ids(self) -> frozenset[int]:
        """The identity of the set of elements."""
        return frozenset(node.mem_id for node in self.nodes)


class GroupFinder:
    """Finds and ranks the groups of one page."""

    def __init__(self, page: Page) -> None:
        self._links = PageLinks(page)
        self._tree = page.tree
        self._sizes = _text_sizes(self._tree)
        body = self._tree.body
        self._all = max(1, self._sizes.get(body.mem_id, 0) if body is not None else 1)
        self._sides = _Sides(body, self._sizes)
        self._whole = max(1, self._all - self._sides.text_size)

    @property
    def text_size(self) -> int:
        """Characters of text outside of navigation, header and footer."""
        return self._whole

    def find(self) -> list[Group]:
        """Return what may be the list of a page, the most likely first."""
        groups = self._examined()
        groups += [one for group in groups for one in self._kinds(group)]
        refined = [one for group in groups if group.odd for one in self._refined(group)]
        groups += refined
        groups += [one for group in refined if group.odd for one in self._refined(group)]
        groups = _distinct(groups)
        _compare(groups)
        groups.sort(key=lambda one: one.score, reverse=True)
        for group in groups[:_COMPARED]:
            self._look_around(group)
        groups.sort(key=lambda one: one.score, reverse=True)
        return _without_echoes(groups)[:MOST]

    def of_selector(self, selector: str) -> Group | None:
        """Return the group that a selector finds, whatever its score; None when it finds none."""
        nodes = [node for node in self._tree.css(selector) if text_of(node)]
        return self._judged(Group(selector, nodes)) if nodes else None

    def _examined(self) -> list[Group]:
        collected = _collected(self._tree)

        # A cheap look first: the text they hold, and how many they are.
        def size(nodes: Sequence[LexborNode]) -> float:
            held = sum(self._sizes.get(node.mem_id, 0) for node in nodes)
            return held * math.log2(1 + len(nodes)) * (0.1 if self._sides.has(nodes[0]) else 1.0)

        largest = sorted(collected, key=lambda one: size(one[1]), reverse=True)[:_EXAMINED]
        found = (Group(selector, nodes) for selector, nodes in largest)
        return [judged for one in found if (judged := self._judged(one)) is not None]

    def _judged(self, group: Group) -> Group | None:
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
            shapes = [_shape(node) for node in _spread(followers, _SAMPLED)]
            group.slots += _count_slots(shapes, _common(shapes))
        group.is_aside = self._sides.has(group.nodes[0]) and self._sides.has(group.nodes[-1])
        group.coverage = min(1.0, covered / (self._all if group.is_aside else self._whole))
        group.link = find_link(self._links, group.nodes)
        group.score = _score(group)
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
        if _is_same_kind(group.nodes, followers):
            return []  # every second item of a list, by a class that alternates
        return followers

    def _kinds(self, group: Group) -> Iterator[Group]:
        """Yield the parts of a group whose elements are of several kinds, in turn."""
        if group.has_several_tables:
            yield from self._largest_table(group)
        if group.homogeneity >= _MIXED or all(node.css_first(_TITLES) for node in group.nodes):
            return
        for kind in _kinds_among(group.nodes):
            ids = {node.mem_id for node in kind}
            others = [node for node in group.nodes if node.mem_id not in ids]
            yield from self._apart(group.selector, kind, others)

    def _largest_table(self, group: Group) -> Iterator[Group]:
        """Yield the rows of the table with the most of them."""
        tables: defaultdict[int, list[LexborNode]] = defaultdict(list)
        for row in group.nodes:
            tables[next(one.mem_id for one in ancestors(row) if one.tag == "table")].append(row)
        largest = max(tables.values(), key=len)
        ids = {row.mem_id for row in largest}
        yield from self._apart(
            group.selector, largest, [row for row in group.nodes if row.mem_id not in ids]
        )

    def _look_around(self, group: Group) -> None:
        """Fill in what a group leaves out: elements of its structure, and text between its own."""
        ids = group.ids | {node.mem_id for node in group.followers}
        parents = {node.parent.mem_id: node.parent for node in group.nodes if node.parent}
        near = [one for parent in parents.values() for one in children_of(parent)]
        others = [one for one in near if one.mem_id not in ids and one.tag not in _UNSEEN]
        own = sum(self._sizes.get(node.mem_id, 0) for node in (*group.nodes, *group.followers))
        group.between = sum(self._sizes.get(one.mem_id, 0) for one in others) / max(1, own)
        sample = _spread(group.nodes, _SAMPLED)
        common = _common([_shape(node) for node in sample])
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
            shape = _shape(one)
            if is_named and (one.tag, *classes_of(one)) in kinds:
                return True
            if names.intersection(classes_of(one)):  # it may have more to it
                return len(common & shape.keys()) >= _SAME * len(common)
            return _likeness(common, shape) >= _SAME

        group.left_out = sum(
            one.mem_id not in odd and is_left_out(one) for one in _spread(same, 3 * _SAMPLED)
        )
        if group.left_out >= max(2, _FEWEST_OF_KIND * len(group.nodes)):
            group.score *= 0.85

    def _refined(self, group: Group) -> Iterator[Group]:
        """Yield the group without its odd elements, or some, where a selector tells them apart."""
        empty = [node for node in group.odd if not self._sizes.get(node.mem_id, 0)]
        others = [node for node in group.odd if self._sizes.get(node.mem_id, 0)]
        for odd in (group.odd, empty, others):
            ids = {node.mem_id for node in odd}
            regular = [node for node in group.nodes if node.mem_id not in ids]
            found = (
                list(self._apart(group.selector, regular, odd)) if len(regular) >= FEWEST else []
            )
            if found:
                yield from found
                return

    def _apart(
        self, selector: str, chosen: Sequence[LexborNode], others: Sequence[LexborNode]
    ) -> Iterator[Group]:
        """Yield the group of the chosen elements, where a selector tells them from the others."""
        if not others:
            return
        wanted = {node.mem_id for node in chosen}
        for one in islice(_telling_apart(selector, chosen, others), _MOST_TRIED):
            nodes = self._tree.css(one)
            if {node.mem_id for node in nodes if self._sizes.get(node.mem_id, 0)} == wanted:
                if (judged := self._judged(Group(one, nodes))) is not None:
                    yield judged
                return


def _text_sizes(tree: LexborHTMLParser) -> dict[int, int]:
    """Return how many characters of visible text each element holds."""
    body = tree.body
    if body is None:
        return {}
    order: list[tuple[int, int | None]] = []
    sizes: dict[int, int] = defaultdict(int)
    stack: list[tuple[LexborNode, int | None]] = [(body, None)]
    while stack:
        node, parent = stack.pop()
        order.append((node.mem_id, parent))
        child = node.first_child
        while child is not None:
            if child.is_text_node:
                sizes[node.mem_id] += len((child.text_content or "").strip())
            elif child.is_element_node and child.tag not in _UNSEEN:
                stack.append((child, node.mem_id))
            child = child.next
    for own, parent in reversed(order):
        if parent is not None:
            sizes[parent] += sizes[own]
    return dict(sizes)


class _Sides:
    """The parts of a page that are not its content: menus, headers, footers, side columns."""

    def __init__(self, body: LexborNode | None, sizes: Mapping[int, int]) -> None:
        self._ids: set[int] = set()
        self._known: dict[int, bool] = {}
        self.text_size = 0
        """Characters of text in these parts."""
        if body is None:
            return
        whole = sizes.get(body.mem_id, 0)
        self._collect(body, sizes, whole, is_by_tag=True)
        # What is called a menu and holds most of the rest is a wrapper of the page.
        self._collect(body, sizes, whole - self.text_size, is_by_tag=False)

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

    def _collect(
        self, body: LexborNode, sizes: Mapping[int, int], whole: int, *, is_by_tag: bool
    ) -> None:
        stack = children_of(body)
        while stack:
            node = stack.pop()
            if node.tag in _UNSEEN or node.mem_id in self._ids:
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
        if known is None or _selector_rank(selector) < _selector_rank(known[0]):
            collected[ids] = selector, nodes
    return list(collected.values())


def _is_card(node: LexborNode) -> bool:
    """Return True if a cell of a table may be an item: a picture that is a link, and its name."""
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


def _selector_rank(selector: str) -> tuple[float, int]:
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


def _examine_structure(group: Group) -> None:
    """Compare the elements of a group: what most have in common, and which lack it."""
    sample = _spread(group.nodes, _SAMPLED)
    shapes = [_shape(node) for node in sample]
    common = _common(shapes)
    names = [_inner_names(node) for node in sample]
    shared = _shared_names(names)
    ads = {node.mem_id for node in group.nodes if is_advert(node)}
    if len(ads) > _MOST_ADS * len(group.nodes):
        ads = set()
    if common:
        shares = [len(common & shape.keys()) / len(common) for shape in shapes]
        group.homogeneity = sum(
            0.0 if node.mem_id in ads else share for node, share in zip(sample, shares, strict=True)
        ) / len(shares)
        heads = _header_and_total_rows(group.nodes)
        is_headed = _has_headings(sample)
        for node in group.nodes:
            share = len(common & _shape(node).keys()) / len(common)
            if is_headed and node.css_first(_TITLES) is not None:
                share = max(share, _ALIKE)  # it has the title of an item, and lacks other parts
            if shared:
                # Where the parts of an item have names, those count for more than their place.
                named = len(shared & _inner_names(node)) / len(shared)
                share = max(share, named if named >= _MOSTLY else 0.0)
            if share < _ALIKE or node.mem_id in ads or node.mem_id in heads:
                group.odd.append(node)
    group.slots = _count_slots(shapes, common)
    group.has_headings = _has_headings(sample)
    group.has_several_tables = len(_columns(group.nodes)) > 1


def _without_class_and_link(group: Group) -> list[LexborNode]:
    """Return the few elements that have neither the class nor any link of the others."""
    usual = _MOSTLY * len(group.nodes)
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


def _likeness(common: set[str], shape: Mapping[str, str]) -> float:
    """Return how much of two structures is in both."""
    keys = shape.keys() - {"."}
    return len(common & keys) / max(1, len(common | keys))


def _is_same_kind(nodes: Sequence[LexborNode], others: Sequence[LexborNode]) -> bool:
    """Return True if two groups of elements have the same structure."""
    common = _common([_shape(node) for node in _spread(nodes, _SAMPLED)])
    own = _common([_shape(node) for node in _spread(others, _SAMPLED)])
    if {node.tag for node in nodes} != {node.tag for node in others} or len(common) <= 1:
        return False
    return len(common & own) >= _SAME * len(common | own)


def _kinds_among(nodes: Sequence[LexborNode]) -> list[list[LexborNode]]:
    """Return the elements by structure, where each structure has its share of them."""
    kinds: list[tuple[set[str], list[LexborNode]]] = []
    for node in nodes:
        shape = _shape(node)
        keys = {*shape, *_inner_names(node)} - {"."}
        for known, members in kinds:
            if len(known & keys) >= _ALIKE * len(known | keys):
                members.append(node)
                break
        else:
            if len(kinds) == _SAMPLED:
                return []
            kinds.append((keys, [node]))
    fewest = max(FEWEST, _FEWEST_OF_KIND * len(nodes))
    found = [members for _, members in kinds if len(members) >= fewest]
    return found[:_MOST_KINDS] if len(kinds) > 1 else []


def _inner_names(node: LexborNode) -> set[str]:
    return {name for inner in node.css("[class]")[1:_MOST_CHILDREN] for name in names_of(inner)}


def _shared_names(names: Sequence[set[str]]) -> set[str]:
    """Return the classes inside of most elements; none when there are too few to tell by."""
    counted = Counter(name for one in names for name in one)
    shared = {name for name, count in counted.items() if count >= 0.6 * len(names)}
    return shared if len(shared) >= FEWEST else set()


def _header_and_total_rows(nodes: Sequence[LexborNode]) -> set[int]:
    """Return the first and last rows of tables that name or add up the columns.

    Such a row has the cells of the others, but not the links and numbers that nearly all of them
    have there; or it is set in bold.
    """
    if nodes[0].tag != "tr" or len(nodes) <= FEWEST:
        return set()
    rows = [[one for one in children_of(node) if one.tag in {"td", "th"}] for node in nodes]
    features = [
        {
            (place, kind)
            for place, cell in enumerate(cells)
            for kind, is_there in (
                ("link", cell.css_first("a[href]") is not None),
                ("number", any(char.isdigit() for char in text_of(cell))),
                ("text", bool(text_of(cell))),
                ("plain", bool(text_of(cell)) and cell.css_first("b, strong") is None),
            )
            if is_there
        }
        for cells in rows
    ]
    counted = Counter(one for row in features for one in row)
    usual = {one for one, count in counted.items() if count >= 0.9 * (len(nodes) - 2)}
    if not usual:
        return set()
    found = set()
    last = len(nodes) - 1
    solid = {(place, kind) for place, kind in usual if kind != "plain"}
    telling = {(place, kind) for place, kind in solid if kind != "text"}
    for place, node in enumerate(nodes):
        parent = node.parent.mem_id if node.parent is not None else None
        before = nodes[place - 1].parent if place else None
        after = nodes[place + 1].parent if place < last else None
        is_first = before is None or before.mem_id != parent
        is_last = after is None or after.mem_id != parent
        own = features[place]
        is_unnamed = place == last and (0, "text") in usual - own
        is_head = is_first and (
            (bool(telling) and not telling & own)
            or ("plain" not in {kind for _, kind in own} and "plain" in {kind for _, kind in usual})
        )
        is_bare = len(solid & own) <= len(solid) / 2
        if is_head or is_unnamed or ((is_first or is_last) and is_bare):
            found.add(node.mem_id)
    return found if len(found) <= _MOST_ADS * len(nodes) else set()


def _columns(rows: Sequence[LexborNode]) -> set[tuple[str, ...]]:
    """Return the names of columns of each table that the rows are of, each names once."""
    tables: dict[int, LexborNode] = {}
    for row in rows:
        if row.tag == "tr":
            around = (one for one in ancestors(row) if one.tag == "table")
            table = next(around, None)
            if table is not None:
                tables[table.mem_id] = table
    names = [tuple(text_of(one) for one in table.css("th")) for table in tables.values()]
    return {one for one in names if len(one) > 1}


def is_advert(node: LexborNode) -> bool:
    """Return True if a class marks an element as an advertisement."""
    return any(_ADS.search(name) for name in (node.attributes.get("class") or "").split())


def _spread(nodes: Sequence[LexborNode], most: int) -> list[LexborNode]:
    if len(nodes) <= most:
        return list(nodes)
    return [nodes[number * len(nodes) // most] for number in range(most)]


def _shape(node: LexborNode) -> dict[str, str]:
    """Return the paths of tags below an element, each with the first text of its own there."""
    shape: dict[str, str] = {}
    own = own_text(node)
    if own:
        shape["."] = own
    below = children_of(node)[:_MOST_CHILDREN]
    stack = [(child, _step(child, below)) for child in reversed(below)]
    while stack:
        here, path = stack.pop()
        text = here.attributes.get("src") or "" if here.tag == "img" else own_text(here)
        shape[path] = shape.get(path) or text
        if path.count("/") < _DEEPEST and here.tag not in _UNSEEN:
            children = children_of(here)[:_MOST_CHILDREN]
            stack.extend(
                (child, f"{path}/{_step(child, children)}") for child in reversed(children)
            )
    return shape


def _step(node: LexborNode, siblings: Sequence[LexborNode]) -> str:
    """Return a step of a path: the tag, with its place where the tag alone says little."""
    if node.tag not in {"td", "th", "div", "span", "p"}:
        return node.tag or "*"
    same = [one for one in siblings if one.tag == node.tag]
    if len(same) == 1 or len(same) > _DEEPEST + _DEEPEST:
        return node.tag
    place = next(n for n, one in enumerate(same) if one.mem_id == node.mem_id)
    return f"{node.tag}{place}"


def _common(shapes: Sequence[dict[str, str]]) -> set[str]:
    counted = Counter(path for shape in shapes for path in shape if path != ".")
    return {path for path, count in counted.items() if count >= 0.6 * len(shapes)}


def _count_slots(shapes: Sequence[dict[str, str]], common: set[str]) -> int:
    """Return how many places of the common structure have texts that differ."""
    slots = 0
    for path in {*common, "."}:
        texts = [text for shape in shapes if (text := shape.get(path))]
        if len(texts) >= max(2, len(shapes) / 2) and len(set(texts)) > max(1, len(texts) / 4):
            slots += 1
    return slots


def _has_headings(nodes: Sequence[LexborNode]) -> bool:
    having = sum(node.css_first(_TITLES) is not None for node in nodes)
    return having > _MOSTLY * len(nodes)


def _is_side_tag(node: LexborNode) -> bool:
    if node.tag in _ASIDE:
        return True
    return node.attributes.get("role") in {"navigation", "complementary", "contentinfo", "banner"}


def _is_side_name(node: LexborNode) -> bool:
    if node.tag == "form":
        # Some put the whole list into a form, and some each item.
        return len(node.css(_ENTRIES)) > 1 and node.css_first("article, h3, table, img") is None
    if node.tag in _PARTS_OF_LISTS:
        return False  # `tr.header-border`: the name is one of its look
    words = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}"
    words = _CAMEL.sub(" ", words)
    # A class of the page as a whole says nothing of its parts: `has-sidebar`, `with-menu`.
    return (
        len(words) < _LONGEST_NAME
        and bool(_SIDE.search(words))
        and not re.search(r"has-|with", words)
        and (node.tag != "table" or not _has_rows(node))
    )


def _score(group: Group) -> float:
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
    if group.slots <= 1 and all(_is_link_alone(node) for node in _spread(group.nodes, 10)):
        score *= 0.5  # nothing but links: a menu, unless the page has nothing else
    if sum(bool(_COUNTED.search(text)) for text in group.texts) > len(group.texts) / 2:
        score *= 0.3  # filters, each with the number of its items
    if group.followers and group.link is None and group.nodes[0].tag != "dt":
        score *= 0.6  # headings of a text, each with its first paragraph
    if any(_ADS.search(name) for name in re.findall(r"(?<!:not\()\.([\w-]+)", group.selector)):
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
    sample = _spread(group.nodes, 10)
    parts = [
        [node, after] for node, after in zip(sample, _spread(group.followers, 10), strict=False)
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
    inner = Counter(one for node in _spread(regular, 10) for one in _inner_selectors(node))
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
        if inner.mem_id != node.mem_id and inner.tag not in _UNSEEN:
            found.update(one for one in own_selectors(inner) if not one.startswith("#"))
    return found


def _distinct(groups: Sequence[Group]) -> list[Group]:
    """Keep one selector for each set of elements: without empty ones first, then by its quality."""
    best: dict[frozenset[int], Group] = {}
    for group in sorted(groups, key=lambda one: (len(one.odd), *_selector_rank(one.selector))):
        best.setdefault(group.ids, group)
    return list(best.values())


def _compare(groups: Sequence[Group]) -> None:
    """Settle which of two groups that are inside each other is the list of items."""
    ids = [group.ids for group in groups]
    factors = [_without_odd_factor(group, ids) for group in groups]
    for place, inner in enumerate(groups):
        within: Counter[int] = Counter()
        for node in inner.nodes:
            around = {one.mem_id for one in ancestors(node)}
            within.update(n for n, outer in enumerate(ids) if n != place and outer & around)
        for other, count in within.items():
            if count >= _MOSTLY * len(inner.nodes):
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
                group.score = min(group.score, _MIXED * whole.score)


def _without_odd_factor(group: Group, others: Sequence[frozenset[int]]) -> float:
    """Return a factor below 1 when another group is this one without its odd elements."""
    odd, ids = {node.mem_id for node in group.odd}, group.ids
    return 0.7 if odd and any(ids - other and ids - other <= odd for other in others) else 1.0


def _nested_factors(inner: Group, outer: Group) -> tuple[float, float]:
    """Return the factors of a group and of one that its elements are inside of."""
    is_whole = inner.coverage >= 0.75 * outer.coverage
    is_many = len(inner.nodes) >= 1.7 * len(outer.nodes)
    if is_many and is_whole:
        is_row = inner.slots > 1 and inner.score > _MOSTLY * outer.score
        return 1.0, 0.7 if is_row else 1.0  # a row of cards
    if outer.score < _MOSTLY * inner.score:
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


def _without_echoes(groups: Sequence[Group]) -> list[Group]:
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


def find_link(links: PageLinks, nodes: Sequence[LexborNode]) -> ItemLink | None:
    """Return the link of each element to a page of its own; None when they have no such link.

    Nearly every element must have exactly one address there, and each a different one: several
    addresses in one element, or one address in several, are tags, authors and categories.
    """
    sample = _spread(nodes, _SAMPLED)
    if sample[0].tag == "a":
        addresses = [links.address_of(node) for node in nodes]
        return _item_link(links, "", [[one] if one else [] for one in addresses], nodes)
    best: ItemLink | None = None
    for css in _link_selectors(links, sample):
        per_element = [
            list(dict.fromkeys(one for a in node.css(css) if (one := links.address_of(a))))
            for node in sample
        ]
        link = _item_link(links, css, per_element, sample)
        if link is not None and (best is None or link.worth > best.worth):
            best = link
    if best is None:
        return None
    firsts = (node.css_first(best.css) for node in nodes)
    addresses = [links.address_of(one) for one in firsts if one is not None]
    return replace(best, addresses=list(dict.fromkeys(one for one in addresses if one)))


def _link_selectors(links: PageLinks, nodes: Sequence[LexborNode]) -> list[str]:
    ways: Counter[str] = Counter()
    for node in nodes:
        ways.update(set(_ways(links, node)))
    return [way for way, _ in ways.most_common(_MOST_LINKS)]


def _ways(links: PageLinks, node: LexborNode) -> Iterator[str]:
    """Yield selectors of the links in an element."""
    for link in node.css("a[href]"):
        if links.address_of(link) is None:
            continue
        yield from (one for one in own_selectors(link) if not one.startswith("#"))
        outer = link.parent
        if outer is not None and outer.mem_id != node.mem_id:
            places = (one for one in own_selectors(outer) if not one.startswith("#"))
            yield from (f"{place} {link.tag}" for place in places)
            siblings = children_of(outer.parent) if outer.parent is not None else []
            if outer.tag == "td":
                place = next(n for n, one in enumerate(siblings) if one.mem_id == outer.mem_id)
                yield f"td:nth-child({place + 1}) a"


def _item_link(
    links: PageLinks, css: str, per_element: Sequence[Sequence[str]], nodes: Sequence[LexborNode]
) -> ItemLink | None:
    """Return the link when it leads from nearly every element to a page of its own."""
    count = len(per_element)
    having = [found for found in per_element if found]
    firsts = [one[0] for one in having]
    own = set(firsts) - {links.url}
    if len(having) < _MOSTLY * count or len(own) < max(FEWEST, 0.95 * len(having)):
        return None
    if sum(len(one) > 1 for one in having) > 0.1 * count:
        return None
    found = [one for node in nodes if (one := node.css_first(css) if css else node) is not None]
    words = sum(min(len(text_of(link)), 60) for link in found) / len(found)
    headed = sum(_is_in_heading(link) for link in found) / len(found)
    titled = sum(bool(re.search("title|name|head", " ".join(classes_of(link)))) for link in found)
    worth = words / 10 + 5 * headed + 2 * titled / len(found) + 10 * len(having) / count
    # A short selector is easier to keep, and one without a name is likelier to find others.
    worth -= len(css) / 100 + 0.5 * (css == "a")
    return ItemLink(css, firsts, worth)


def _is_in_heading(link: LexborNode) -> bool:
    near: Iterable[LexborNode | None] = [
        link.parent,
        link.parent.parent if link.parent else None,
        *link.css("*"),
    ]
    return any(node is not None and node.tag in _HEADINGS for node in near)


class PageLinks:
    """Resolves the links of one page."""

    def __init__(self, page: Page) -> None:
        self.url = page.url.partition("#")[0]
        self._home = urlsplit(page.url).netloc
        href = page.first_attribute("base[href]", "href")
        self._base = urljoin(page.url, href) if href else page.url
        self._known: dict[str, str | None] = {}

    def address_of(self, link: LexborNode) -> str | None:
        """Return where a link leads on the same site; None when it leads elsewhere or nowhere."""
        href = (link.attributes.get("href") or "").strip()
        if href not in self._known:
            self._known[href] = self._resolved(href)
        return self._known[href]

    def only_lead_up(self, node: LexborNode) -> bool:
        """Return True if an element leads to a folder above the page and nowhere else."""
        found = [self.address_of(link) for link in node.css("a[href]")]
        folder = self.url.partition("?")[0].rpartition("/")[0]
        return bool(found) and all(
            one is not None and one.endswith("/") and folder.startswith(one) for one in found
        )

    def _resolved(self, href: str) -> str | None:
        if not href or href.startswith(("#", "javascript:", "mailto:", "tel:")):
            return None
        try:
            address = urljoin(self._base, without_userinfo(href)).partition("#")[0]
            is_same = urlsplit(address).netloc == self._home
        except ValueError:
            return None
        return address if is_same and address.startswith("http") else None
