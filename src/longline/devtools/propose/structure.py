"""The structure of a page: what elements have in common, menus and side columns, links."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import groupby
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
    own_selectors,
    own_text,
    place_among,
)
from longline.http.messages import Page, without_userinfo
from longline.sources.html.content import node_text

FEWEST = 3
"""Elements of the same structure are a list from here on."""
MOSTLY = 0.8
SAMPLED = 40  # elements of a group that are compared
HEADING_TAGS = "h2, h3, h4, h5, h6"
INVISIBLE_TAGS = frozenset({"script", "style", "template", "noscript", "svg", "head", "select"})
_MOST_CHILDREN = 60  # of one element; more are a list inside of it
_DEEPEST = 6  # levels below an element that belong to its structure


@dataclass(frozen=True, slots=True)
class ItemLink:
    """The link of each element to its own page; `css` is empty where the element is the link."""

    css: str
    addresses: Sequence[str]


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
    """The `dd` after each, where the elements are `dt`."""
    odd: list[LexborNode] = field(default_factory=list)
    """Elements that lack most of the common structure: advertisements, headings."""
    left_out: int = 0
    """Elements of the same structure elsewhere in the main part of the page."""
    between: float = 0.0
    """Text of other elements next to these, as a share of the text in these."""
    score: float = 0.0

    @property
    def ids(self) -> frozenset[int]:
        """The identity of the set of elements."""
        return ids_of(self.nodes)


def ids_of(nodes: Iterable[LexborNode]) -> frozenset[int]:
    """Return the ids of elements."""
    return frozenset(node.mem_id for node in nodes)


def without_nodes(nodes: Sequence[LexborNode], others: Iterable[LexborNode]) -> list[LexborNode]:
    """Return the elements that are not among the others."""
    ids = ids_of(others)
    return [node for node in nodes if node.mem_id not in ids]


def count_inside(nodes: Iterable[LexborNode], ids: AbstractSet[int]) -> int:
    """Return how many elements are inside of elements with these ids."""
    return sum(any(one.mem_id in ids for one in ancestors(node)) for node in nodes)


def spread_sample(nodes: Sequence[LexborNode], most: int) -> list[LexborNode]:
    """Return at most `most` elements, evenly spread."""
    if len(nodes) <= most:
        return list(nodes)
    return [nodes[number * len(nodes) // most] for number in range(most)]


def visible_text_sizes(tree: LexborHTMLParser) -> dict[int, int]:
    """Return how many characters of visible text each element holds."""
    sizes: dict[int, int] = defaultdict(int)
    order: list[tuple[int, int | None]] = []
    stack: list[tuple[LexborNode, int | None]] = [(tree.body, None)] if tree.body else []
    while stack:
        node, parent = stack.pop()
        order.append((node.mem_id, parent))
        for child in node.iter(include_text=True):
            if child.is_text_node:
                sizes[node.mem_id] += len((child.text_content or "").strip())
            elif child.tag not in INVISIBLE_TAGS:
                stack.append((child, node.mem_id))
    for own, parent in reversed(order):
        if parent is not None:
            sizes[parent] += sizes[own]
    return sizes


# ---------------- The shape of elements


def shape_of(node: LexborNode) -> dict[str, str]:
    """Return the paths of tags below an element, each with the first text of its own there."""
    shape: dict[str, str] = {}
    if own := own_text(node):
        shape["."] = own
    stack = [(child, step) for child, step in _steps(node)]
    while stack:
        here, path = stack.pop()
        text = here.attributes.get("src") or "" if here.tag == "img" else own_text(here)
        shape[path] = shape.get(path) or text
        if path.count("/") < _DEEPEST and here.tag not in INVISIBLE_TAGS:
            stack.extend((child, f"{path}/{step}") for child, step in _steps(here))
    return shape


def _steps(node: LexborNode) -> Iterator[tuple[LexborNode, str]]:
    """Yield the children, last first, with their tags, numbered where the tag alone says little."""
    children = children_of(node)[:_MOST_CHILDREN]
    left = Counter(child.tag for child in children)
    is_numbered = {tag for tag in ("td", "th", "div", "span", "p") if 1 < left[tag] <= 2 * _DEEPEST}
    for child in reversed(children):
        left[child.tag] -= 1
        yield (
            child,
            f"{child.tag}{left[child.tag]}" if child.tag in is_numbered else child.tag or "",
        )


def common_paths(shapes: Sequence[dict[str, str]]) -> set[str]:
    """Return the paths that 60 % of the structures have."""
    counted = Counter(path for shape in shapes for path in shape if path != ".")
    return {path for path, count in counted.items() if count >= 0.6 * len(shapes)}


def count_slots(shapes: Sequence[dict[str, str]], common: set[str]) -> int:
    """Return how many places of the common structure have texts that differ."""
    slots = 0
    for path in {*common, "."}:
        texts = [text for shape in shapes if (text := shape.get(path))]
        if len(texts) >= max(2, len(shapes) / 2) and len(set(texts)) > max(1, len(texts) / 4):
            slots += 1
    return slots


def has_headings(nodes: Sequence[LexborNode]) -> bool:
    """Return True if nearly all elements have a heading."""
    having = sum(node.css_first(HEADING_TAGS) is not None for node in nodes)
    return having > MOSTLY * len(nodes)


def header_and_total_rows(nodes: Sequence[LexborNode]) -> list[LexborNode]:
    """Return the first and last rows of tables that name or add up the columns.

    Such a row lacks most of the links and numbers that the others have in the same columns, or the
    text of the first column.
    """
    if nodes[0].tag != "tr" or len(nodes) <= FEWEST:
        return []
    features = {node.mem_id: _row_features(node) for node in nodes}
    counted = Counter(one for row in features.values() for one in row)
    usual = {one for one, count in counted.items() if count >= 0.9 * (len(nodes) - 2)}
    telling = {one for one in usual if one[1] != "text"}
    found = []
    for _, group in groupby(nodes, key=lambda node: node.parent.mem_id if node.parent else 0):
        rows = list(group)
        for row in {rows[0].mem_id: rows[0], rows[-1].mem_id: rows[-1]}.values():
            own = features[row.mem_id]
            is_bare = bool(telling) and len(telling & own) <= len(telling) / 2
            if is_bare or (0, "text") in usual - own:
                found.append(row)
    return found if len(found) < len(nodes) / 2 else []


def _row_features(row: LexborNode) -> set[tuple[int, str]]:
    features = set()
    for place, cell in enumerate(children_of(row)):
        text = node_text(cell)
        if text:
            features.add((place, "text"))
        if any(char.isdigit() for char in text):
            features.add((place, "number"))
        if cell.css_first("a[href]") is not None:
            features.add((place, "link"))
    return features


# ---------------- The parts of a page that are not its content: menus, headers, footers, side

_SIDE_TAGS = frozenset({"nav", "header", "footer", "aside"})
_SIDE_ROLES = frozenset({"navigation", "complementary", "contentinfo", "banner"})
_PARTS_OF_LISTS = frozenset({"table", "tr", "tbody", "td", "th", "article"})
_SIDE_NAME = re.compile(
    r"(?:^|[-_ ])(?:side(?:bar|nav)?|mega\w*|\w*menu|top-?nav|refine\w*|nav(?:bar|igation)?|"
    r"foot(?:er)?|breadcrumbs?|pagination|pager|"
    r"related|recommend(?:ed|ations?)?|comments?|filters?|facets?|widget|social|share|cookie|"
    r"carousel|slider|tagcloud|tag-cloud|most-read|popular|trending|toolbar|dropdown|modal|header|"
    r"languages?|lang|categories|tags)(?:$|[-_ ])",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST_NAME = 60  # characters of class and id; more are those of the page as a whole
_WRAPPER = 0.75  # of the page's text; an element with more is the page, whatever it is called


class PageParts:
    """The parts of a page that are not its content: menus, headers, footers, side columns."""

    def __init__(self, body: LexborNode | None, sizes: Mapping[int, int]) -> None:
        self._ids: set[int] = set()
        self.text_size = 0
        """Characters of text in these parts."""
        whole = sizes.get(body.mem_id, 0) if body is not None else 0
        stack = children_of(body) if body is not None else []
        while stack:
            node = stack.pop()
            size = sizes.get(node.mem_id, 0)
            if node.tag in INVISIBLE_TAGS:
                continue
            if _is_side(node) and size <= _WRAPPER * whole:
                self._ids.add(node.mem_id)
                self.text_size += size
            else:
                stack.extend(children_of(node))

    def has(self, node: LexborNode) -> bool:
        """Return True if an element is one of these parts or inside of one."""
        return any(one.mem_id in self._ids for one in (node, *ancestors(node)))


def _is_side(node: LexborNode) -> bool:
    if node.tag in _SIDE_TAGS or node.attributes.get("role") in _SIDE_ROLES:
        return True
    if node.tag in _PARTS_OF_LISTS:
        return False  # `tr.header-border`: the name describes its look
    words = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}"
    # A class of the page as a whole says nothing of its parts: `has-sidebar`, `with-menu`.
    if len(words) >= _LONGEST_NAME or re.search(r"has-|with", words):
        return False
    return _SIDE_NAME.search(_CAMEL.sub(" ", words)) is not None


# ---------------- The links of elements to pages of their own

_MOST_LINKS = 30
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def find_link(links: PageLinks, nodes: Sequence[LexborNode]) -> ItemLink | None:
    """Return the link of each element to a page of its own; None when they have no such link.

    Nearly every element must have exactly one address there, and each a different one: several
    addresses in one element, or one address in several, are tags, authors and categories.
    """
    if nodes[0].tag == "a":
        addresses = [links.address_of(node) for node in nodes]
        if not _are_distinct(links, [[one] if one else [] for one in addresses]):
            return None
        return ItemLink("", [one for one in addresses if one])
    sample = spread_sample(nodes, SAMPLED)
    ways = Counter(way for node in sample for way in set(_link_selectors(links, node)))
    best, most = "", float("-inf")
    for css, _ in ways.most_common(_MOST_LINKS):
        found = [[(link, links.address_of(link)) for link in node.css(css)] for node in sample]
        addresses_of = [list(dict.fromkeys(one for _, one in row if one)) for row in found]
        if not _are_distinct(links, addresses_of):
            continue
        worth = _link_worth([row[0][0] for row in found if row]) - len(css) / 100 - (css == "a") / 2
        if worth > most:
            best, most = css, worth
    if not best:
        return None
    firsts = (node.css_first(best) for node in nodes)
    addresses = [links.address_of(one) for one in firsts if one is not None]
    return ItemLink(best, list(dict.fromkeys(one for one in addresses if one)))


def _link_selectors(links: PageLinks, node: LexborNode) -> Iterator[str]:
    """Yield selectors of the links in an element, by their own names and those around them."""
    for link in node.css("a[href]"):
        if links.address_of(link) is None:
            continue
        yield from (one for one in own_selectors(link) if not one.startswith("#"))
        outer = link.parent
        if outer is None or outer.mem_id == node.mem_id:
            continue
        names = (one for one in own_selectors(outer) if not one.startswith("#"))
        yield from (f"{name} {link.tag}" for name in names)
        if outer.tag == "td" and outer.parent is not None:
            yield f"td:nth-child({place_among(children_of(outer.parent), outer)}) a"


def _are_distinct(links: PageLinks, addresses: Sequence[Sequence[str]]) -> bool:
    """Return True if nearly every element has one address, and no two the same."""
    firsts = [one[0] for one in addresses if one]
    own = set(firsts) - {links.url}
    several = sum(len(one) > 1 for one in addresses)
    return (
        len(firsts) >= MOSTLY * len(addresses)
        and len(own) >= max(FEWEST, 0.95 * len(firsts))
        and several <= 0.1 * len(addresses)
    )


def _link_worth(found: Sequence[LexborNode]) -> float:
    """Return how likely links are those of titles: long texts, in headings."""
    words = sum(min(len(node_text(link)), 60) for link in found)
    headed = sum(_is_in_heading(link) for link in found)
    return (words / 10 + 5 * headed) / len(found)


def _is_in_heading(link: LexborNode) -> bool:
    outer = link.parent
    near = [outer, outer.parent if outer is not None else None, *link.css("*")]
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

    def _resolved(self, href: str) -> str | None:
        if not href or href.startswith(("#", "javascript:", "mailto:", "tel:")):
            return None
        try:
            address = urljoin(self._base, without_userinfo(href)).partition("#")[0]
            is_same = urlsplit(address).netloc == self._home
        except ValueError:
            return None
        return address if is_same and address.startswith("http") else None
