"""Elements of the same structure: groups, and what their elements have in common."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.devtools.propose.selectors import (
    ancestors,
    children_of,
    names_of,
    own_text,
)
from longline.sources.html.content import text_of


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
    names = [tuple(text_of(one) for one in table.css("th")) for table in tables.values()]
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
