"""The structure of a page: elements of one kind, links, menus and side columns."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
    classes_of,
    names_of,
    own_selectors,
    own_text,
)
from longline.http.messages import Page, without_userinfo
from longline.sources.html.content import node_text


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


# ---------------- The structure of elements: the tags below them, their texts, and what several

FEWEST = 3
"""Elements of the same structure are a list from here on."""
SAMPLED = 40  # elements of a group that are compared
_MOST_CHILDREN = 60  # of one element; more are a list inside of it
_DEEPEST = 6  # levels below an element that its structure is taken from
HEADING_TAGS = "h2, h3, h4, h5, h6"
INVISIBLE_TAGS = frozenset({"script", "style", "template", "noscript", "svg", "head"})
AD_CLASS = re.compile(
    r"^(?!tag-|category-)(?:[\w-]*(?:--|__))?(?:is-|has-)?(?:ads?|ad-?(?:slot|unit|box|item|container)|"
    r"advert\w*|sponsor\w*|promoted|promo)$",
    re.IGNORECASE,
)
MOSTLY = 0.8
MAX_AD_SHARE = 0.4  # of the elements of a list; more are items that happen to be called so
ALIKE = 0.55  # an element that shares less of the structure of its group is not one of it
SAME_KIND = 0.8  # elements that share so much of their structure are of the same kind
MIXED = 0.9  # elements that share less of a structure are examined for several kinds
MIN_KIND_SHARE = 0.2  # share of the elements of a group that a kind has at least
_MOST_KINDS = 4


def visible_text_sizes(tree: LexborHTMLParser) -> dict[int, int]:
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
            elif child.is_element_node and child.tag not in INVISIBLE_TAGS:
                stack.append((child, node.mem_id))
            child = child.next
    for own, parent in reversed(order):
        if parent is not None:
            sizes[parent] += sizes[own]
    return dict(sizes)


def likeness(common: set[str], shape: Mapping[str, str]) -> float:
    """Return how much of two structures is in both."""
    keys = shape.keys() - {"."}
    return len(common & keys) / max(1, len(common | keys))


def is_same_kind(nodes: Sequence[LexborNode], others: Sequence[LexborNode]) -> bool:
    """Return True if two groups of elements have the same structure."""
    common = common_paths([shape_of(node) for node in spread_sample(nodes, SAMPLED)])
    own = common_paths([shape_of(node) for node in spread_sample(others, SAMPLED)])
    if {node.tag for node in nodes} != {node.tag for node in others} or len(common) <= 1:
        return False
    return len(common & own) >= SAME_KIND * len(common | own)


def kinds_among(nodes: Sequence[LexborNode]) -> list[list[LexborNode]]:
    """Return the elements by structure, where each structure has its share of them."""
    kinds: list[tuple[set[str], list[LexborNode]]] = []
    for node in nodes:
        shape = shape_of(node)
        keys = {*shape, *inner_class_names(node)} - {"."}
        for known, members in kinds:
            if len(known & keys) >= ALIKE * len(known | keys):
                members.append(node)
                break
        else:
            if len(kinds) == SAMPLED:
                return []
            kinds.append((keys, [node]))
    fewest = max(FEWEST, MIN_KIND_SHARE * len(nodes))
    found = [members for _, members in kinds if len(members) >= fewest]
    return found[:_MOST_KINDS] if len(kinds) > 1 else []


def inner_class_names(node: LexborNode) -> set[str]:
    """Return the stable class names inside an element."""
    return {name for inner in node.css("[class]")[1:_MOST_CHILDREN] for name in names_of(inner)}


def shared_class_names(names: Sequence[set[str]]) -> set[str]:
    """Return the classes inside of most elements; none when there are too few."""
    counted = Counter(name for one in names for name in one)
    shared = {name for name, count in counted.items() if count >= 0.6 * len(names)}
    return shared if len(shared) >= FEWEST else set()


def header_and_total_rows(nodes: Sequence[LexborNode]) -> set[int]:
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
                ("number", any(char.isdigit() for char in node_text(cell))),
                ("text", bool(node_text(cell))),
                ("plain", bool(node_text(cell)) and cell.css_first("b, strong") is None),
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
    return found if len(found) <= MAX_AD_SHARE * len(nodes) else set()


def table_columns(rows: Sequence[LexborNode]) -> set[tuple[str, ...]]:
    """Return the names of columns of each table that the rows are of, each names once."""
    tables: dict[int, LexborNode] = {}
    for row in rows:
        if row.tag == "tr":
            around = (one for one in ancestors(row) if one.tag == "table")
            table = next(around, None)
            if table is not None:
                tables[table.mem_id] = table
    names = [tuple(node_text(one) for one in table.css("th")) for table in tables.values()]
    return {one for one in names if len(one) > 1}


def is_advert(node: LexborNode) -> bool:
    """Return True if a class marks an element as an advertisement."""
    return any(AD_CLASS.search(name) for name in (node.attributes.get("class") or "").split())


def spread_sample(nodes: Sequence[LexborNode], most: int) -> list[LexborNode]:
    """Return at most `most` elements, evenly spread."""
    if len(nodes) <= most:
        return list(nodes)
    return [nodes[number * len(nodes) // most] for number in range(most)]


def shape_of(node: LexborNode) -> dict[str, str]:
    """Return the paths of tags below an element, each with the first text of its own there."""
    shape: dict[str, str] = {}
    own = own_text(node)
    if own:
        shape["."] = own
    below = children_of(node)[:_MOST_CHILDREN]
    stack = [(child, _path_step(child, below)) for child in reversed(below)]
    while stack:
        here, path = stack.pop()
        text = here.attributes.get("src") or "" if here.tag == "img" else own_text(here)
        shape[path] = shape.get(path) or text
        if path.count("/") < _DEEPEST and here.tag not in INVISIBLE_TAGS:
            children = children_of(here)[:_MOST_CHILDREN]
            stack.extend(
                (child, f"{path}/{_path_step(child, children)}") for child in reversed(children)
            )
    return shape


def _path_step(node: LexborNode, siblings: Sequence[LexborNode]) -> str:
    """Return a step of a path: the tag, with its place where the tag alone says little."""
    if node.tag not in {"td", "th", "div", "span", "p"}:
        return node.tag or "*"
    same = [one for one in siblings if one.tag == node.tag]
    if len(same) == 1 or len(same) > _DEEPEST + _DEEPEST:
        return node.tag
    place = next(n for n, one in enumerate(same) if one.mem_id == node.mem_id)
    return f"{node.tag}{place}"


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


# ---------------- The parts of a page that are not its content: menus, headers, footers, side

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
    linked = sum(len(node_text(link)) for link in node.css("a[href]"))
    return linked >= _LINKED * len(node_text(node))


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


# ---------------- The links of elements to pages of their own

_MOST_LINKS = 30
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def find_link(links: PageLinks, nodes: Sequence[LexborNode]) -> ItemLink | None:
    """Return the link of each element to a page of its own; None when they have no such link.

    Nearly every element must have exactly one address there, and each a different one: several
    addresses in one element, or one address in several, are tags, authors and categories.
    """
    sample = spread_sample(nodes, SAMPLED)
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
    if len(having) < MOSTLY * count or len(own) < max(FEWEST, 0.95 * len(having)):
        return None
    if sum(len(one) > 1 for one in having) > 0.1 * count:
        return None
    found = [one for node in nodes if (one := node.css_first(css) if css else node) is not None]
    words = sum(min(len(node_text(link)), 60) for link in found) / len(found)
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
