"""CSS selectors on hostile pages: no selector takes more than linear time.

The engine tries every way to match `a b c` from the right, which takes n to the power of the spaces
on n nested elements, and it counts the siblings of each element again for `:nth-child`. Ordinary
pages are too shallow for that to matter. On deeper ones, selectors with several spaces are matched
step by step here, and the others are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import UnexpectedShape

_SHALLOW = {2: 64, 3: 32}
"""The depth up to which the engine may match, by the number of spaces of a selector."""
_VERY_SHALLOW = 20  # with more spaces
_COUNTING = (":nth-", "-of-type", ":only-child")
_MOST_STEPS = 100_000_000  # from sibling to sibling; about 1.4 s, for 10,000 siblings
_QUADRATIC = 2
# Escapes, strings and attributes are skipped; spaces around a combinator belong to it.
_TOKEN = re.compile(
    r"""\\.|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\[(?:\\.|"[^"]*"|'[^']*'|[^\]])*\]"""
    r"""|\(\s*|\s*\)|\s*[>+~,]\s*|\s+""",
    re.DOTALL,
)

Root = LexborHTMLParser | LexborNode


@dataclass(frozen=True, slots=True)
class _Step:
    """The part of a selector between two spaces; `parents` counts its child combinators."""

    css: str
    parents: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to match a selector.

    `groups` are the alternatives between commas. `spaces` is the largest number of descendant
    combinators of any, `inner` counts those within parentheses and every `:has()` after the first,
    which cannot be split. On n siblings the engine takes n to the power of `siblings` steps.
    """

    css: str
    groups: tuple[tuple[_Step, ...], ...]
    spaces: int
    inner: int
    siblings: int
    is_plain: bool


class Selectors:
    """Selectors on one page; `tree` is the whole of it."""

    def __init__(self, tree: LexborHTMLParser) -> None:
        self._tree = tree
        self._deeper: dict[int, bool] = {}
        self._matches: dict[str, Counter[int]] = {}

    def all(self, root: Root, css: str) -> list[LexborNode]:
        """Return the elements at or below `root` that match, in document order.

        Raises:
            UnexpectedShape: it would take too long on this page.
        """
        plan = _plan(css)
        if plan.is_plain or self._is_harmless(plan):
            return root.css(css)
        if css not in self._matches:
            parts = (_match_in_steps(self._tree, steps) for steps in plan.groups)
            self._matches[css] = Counter(node.mem_id for part in parts for node in part)
        matches = self._matches[css]
        ends = ", ".join(steps[-1].css for steps in plan.groups)
        nodes = {node.mem_id: node for node in root.css(ends)}
        # As in the engine, an element that matches several alternatives is returned for each.
        return [node for one, node in nodes.items() for _ in range(matches[one])]

    def first(self, root: Root, css: str) -> LexborNode | None:
        """Return the first element that matches, or None.

        Raises:
            UnexpectedShape: it would take too long on this page.
        """
        plan = _plan(css)
        if plan.is_plain or self._is_harmless(plan):
            return root.css_first(css)
        return next(iter(self.all(root, css)), None)

    def _is_harmless(self, plan: _Plan) -> bool:
        """Whether the engine may match it on this page; False when steps are needed."""
        counts = self._child_counts.values() if plan.siblings >= _QUADRATIC else ()
        if sum(count**plan.siblings for count in counts) > _MOST_STEPS:
            raise UnexpectedShape(plan.css, "an element has too many children for this selector")
        spaces = max(plan.spaces, plan.inner + 1)
        if spaces < min(_SHALLOW) or not self._is_deeper(_SHALLOW.get(spaces, _VERY_SHALLOW)):
            return True
        if plan.inner:
            raise UnexpectedShape(plan.css, "elements are nested too deeply for this selector")
        return False

    @cached_property
    def _child_counts(self) -> Counter[int]:
        above = (node.parent for node in self._tree.css("*"))
        return Counter(one.mem_id for one in above if one is not None)

    def _is_deeper(self, depth: int) -> bool:
        if depth not in self._deeper:
            chain = ">".join("*" * (depth + 1))
            self._deeper[depth] = self._tree.css_first(chain) is not None
        return self._deeper[depth]


def _match_in_steps(tree: LexborHTMLParser, steps: tuple[_Step, ...]) -> list[LexborNode]:
    """Return the elements that match; each step is matched below the elements of the last one.

    Of nested elements that match a step, only the topmost is needed: the others are below it.
    """
    roots: list[Root] = [tree]
    found: list[LexborNode] = []
    for step in steps:
        found = [
            node
            for root in roots
            for node in root.css(step.css)
            if _is_below(node, root, step.parents)
        ]
        nested: set[int] = set()
        roots = []
        for node in found:
            if node.mem_id not in nested:
                roots.append(node)
                nested.update(one.mem_id for one in node.css(step.css))
    return found


def _is_below(node: LexborNode, root: Root, parents: int) -> bool:
    """Whether an element, and as many of its parents as its step has, are below a root."""
    if isinstance(root, LexborHTMLParser):
        return True
    here: LexborNode | None = node
    for _ in range(parents + 1):
        if here is None or here.mem_id == root.mem_id:
            return False
        here = here.parent
    return True


@lru_cache(maxsize=1024)
def _plan(text: str) -> _Plan:
    css = text.strip()
    groups: list[tuple[_Step, ...]] = []
    steps: list[_Step] = []
    start = parents = inner = 0
    for kind, place in _breaks(css):
        if kind == ">":
            parents += 1
        elif kind == "(":
            inner += 1
        else:
            steps.append(_Step(css[start:place].strip(), parents))
            start, parents = place + (kind == ","), 0
            if kind == ",":
                groups.append(tuple(steps))
                steps = []
    groups.append((*steps, _Step(css[start:].strip(), parents)))
    spaces = max(len(one) for one in groups) - 1
    lower = css.lower()
    inner += max(lower.count(":has(") - 1, 0)
    siblings = max(
        1 + lower.replace("~=", "").count("~"), 2 * any(word in lower for word in _COUNTING)
    )
    is_plain = spaces < min(_SHALLOW) and inner < 1 and siblings < _QUADRATIC
    return _Plan(css, tuple(groups), spaces, inner, siblings, is_plain)


def _breaks(css: str) -> Iterator[tuple[str, int]]:
    """Yield combinators and commas with their positions; `(` is a space within parentheses."""
    parens = 0
    for found in _TOKEN.finditer(css):
        mark = found[0].strip() or " "
        if mark in "()":
            parens += 1 if mark == "(" else -1
        elif parens and mark == " ":
            yield "(", found.start()
        elif not parens and mark in " >,":
            yield mark, found.start() + found[0].find(mark)
