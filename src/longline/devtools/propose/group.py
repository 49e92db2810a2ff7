"""A group of elements that one selector finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from selectolax.lexbor import LexborNode


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
