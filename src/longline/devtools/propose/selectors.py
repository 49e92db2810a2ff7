"""Short CSS selectors that survive a rebuild of the site: names that people chose come first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from selectolax.lexbor import LexborHTMLParser, LexborNode

Root = LexborHTMLParser | LexborNode
_PLAIN = re.compile(r"-?[A-Za-z_][\w-]*", re.ASCII)
_MACHINES = re.compile(r"^(css|sc|jsx|jss|emotion|svelte|ng|chakra|ember|react)-", re.IGNORECASE)
_STATE_WORDS = """
    active current selected first last odd even open closed hidden visible disabled hover clearfix
    new hot
"""
_STATES = frozenset(_STATE_WORDS.split())
_MIXED = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{5,}")
_CAMEL_HASH = re.compile(r"^_?[a-z]+[A-Z][a-z]*[A-Z][A-Za-z]*$")
_LONGEST = 40
_VOWELS = re.compile(r"[aeiouy]", re.IGNORECASE)
_MOST_ANCESTORS = 4
_SHORT, _LONG = 3, 9  # letters of a word; longer ones in camel case are words, after all
_CSS_MODULE = re.compile(r"^([A-Za-z][\w-]*?[A-Za-z]__?)(?=[\w+-]*[A-Z\d+-])[\w+-]{5,8}$")
_EMOTION_LABEL = re.compile(r"^css-[a-z0-9]{4,}(-[A-Za-z][A-Za-z-]+)$")
_UTILITY_WORDS = """
    flex grid block inline hidden absolute relative fixed sticky static container row col truncate
    uppercase lowercase capitalize italic underline antialiased rounded border shadow transition
    group peer clearfix grow shrink table left right center pull-left pull-right list-unstyled
"""
_UTILITIES = frozenset(_UTILITY_WORDS.split())
_UTILITY = re.compile(
    r"^-?(?:[mp][trblxyse]?|text|font|bg|border|rounded|flex|grid|items|justify|content|self|gap|"
    r"space|w|h|max|min|shadow|col|row|leading|tracking|align|float|d|display|inline|overflow|"
    r"object|opacity|z|top|left|right|bottom|inset|transition|duration|ease|cursor|select|order|"
    r"basis|grow|shrink|place|line|whitespace|break|divide|ring|from|to|via|scale|rotate|aspect|"
    r"columns|sr|fa|fas|far|icon|glyphicon|btn|has|is|js|no|pull|hidden|visible|u|offset)-[\w./-]+$"
)
_DATA_NAMES = ("data-testid", "data-test", "data-qa", "data-component-type", "data-type", "role")


@lru_cache(maxsize=10_000)
def is_stable(name: str) -> bool:
    """Return True if a class or an id looks as if a person chose it, and not a build."""
    if not _PLAIN.fullmatch(name) or len(name) > _LONGEST or _MACHINES.search(name):
        return False
    if any(char.isdigit() for char in name[-_SHORT:]) and len(name) > _SHORT:
        return False  # item-482, col-6
    return not any(_is_hash(word) for word in re.split(r"[-_]+", name))


def _is_hash(word: str) -> bool:
    if len(word) <= _SHORT + 1:
        return False
    is_camel = len(word) < _LONG and _CAMEL_HASH.match(word) is not None
    return is_camel or _MIXED.fullmatch(word) is not None or not _VOWELS.search(word)


@lru_cache(maxsize=10_000)
def is_utility(name: str) -> bool:
    """Return True if a class only describes the look, as those of Tailwind and Bootstrap do."""
    return name.lower() in _UTILITIES or _UTILITY.match(name) is not None


def is_plain(tag: str | None) -> bool:
    """Return True if a selector can name a tag without escaping it: not `fb:like`."""
    return tag is not None and _PLAIN.fullmatch(tag) is not None and not tag.startswith("-")


def classes_of(node: LexborNode) -> list[str]:
    """Return the stable classes of an element: first those that name it, then those of its look.

    Classes that only describe a state (`active`, `odd`) are left out.
    """
    names = (node.attributes.get("class") or "").split()
    stable = [name for name in names if is_stable(name) and name.lower() not in _STATES]
    return sorted(dict.fromkeys(stable), key=is_utility)


def names_of(node: LexborNode) -> list[str]:
    """Return the stable classes that name an element."""
    return [name for name in classes_of(node) if not is_utility(name)]


def own_selectors(node: LexborNode) -> Iterator[str]:
    """Yield selectors of an element by its own attributes, the most descriptive first."""
    if not is_plain(node.tag):
        return
    tag = node.tag or "*"
    attributes = node.attributes
    if (prop := attributes.get("itemprop")) and _PLAIN.fullmatch(prop):
        yield f"[itemprop={prop}]"
    if (name := attributes.get("id")) and is_stable(name):
        yield f"#{name}"
    classes = classes_of(node)
    named = [name for name in classes if not is_utility(name)]
    yield from (f"{tag}.{name}" for name in named)
    if len(named) > 1:
        yield f"{tag}.{'.'.join(named)}"
    yield from data_selectors(node)
    yield from module_selectors(node)
    yield tag
    yield from (f"{tag}.{name}" for name in classes if name not in named)


def data_selectors(node: LexborNode) -> Iterator[str]:
    """Yield selectors by attributes that mark elements for tests and programs."""
    if not is_plain(node.tag):
        return
    for name in _DATA_NAMES:
        value = node.attributes.get(name)
        if value and is_stable(value):
            yield f'{node.tag}[{name}="{value}"]'
    kind = node.attributes.get("itemtype")
    if kind and (word := kind.rstrip("/").rpartition("/")[2]).isalpha():
        yield f'[itemtype$="/{word}"]'


def module_selectors(node: LexborNode) -> Iterator[str]:
    """Yield selectors by the readable part of class names that a build completes with a hash."""
    if is_plain(node.tag):
        yield from (f'{node.tag}[class*="{name}"]' for name in _module_names(node))


def module_name(node: LexborNode) -> str | None:
    """Return the readable part of a class name that a build completed with a hash."""
    return next((name.strip("_-") for name in _module_names(node)), None)


def _module_names(node: LexborNode) -> Iterator[str]:
    for name in (node.attributes.get("class") or "").split():
        if found := _CSS_MODULE.match(name) or _EMOTION_LABEL.match(name):
            yield found[1]


def ancestors(node: LexborNode) -> Iterator[LexborNode]:
    """Yield the elements around an element, the nearest first."""
    here = node.parent
    while here is not None and here.tag not in (None, "html", "body", "-undef", "-document"):
        yield here
        here = here.parent


def unique_selector(root: Root, node: LexborNode) -> str | None:
    """Return a short selector that finds this element and no other; None when there is none."""
    own = list(own_selectors(node))
    for selector in own:
        if found_by(root, selector) == [node.mem_id]:
            return selector
    around = [one for one, _ in zip(ancestors(node), range(_MOST_ANCESTORS), strict=False)]
    for outer in around:
        for place in own_selectors(outer):
            for selector in own:
                joined = f"{place} {selector}"
                if place != outer.tag and found_by(root, joined) == [node.mem_id]:
                    return joined
    return None


def group_selector(root: Root, nodes: list[LexborNode]) -> str | None:
    """Return a short selector that finds exactly these elements."""
    wanted = {node.mem_id for node in nodes}
    first = nodes[0]
    shared = [one for one in own_selectors(first) if not one.startswith(("#", "[itemprop"))]
    for selector in shared:
        if set(found_by(root, selector)) == wanted:
            return selector
    for outer in ancestors(first):
        for place in own_selectors(outer):
            for selector in shared:
                for joined in (f"{place} > {selector}", f"{place} {selector}"):
                    if set(found_by(root, joined)) == wanted:
                        return joined
    return None


def found_by(root: Root, selector: str) -> list[int]:
    """Return the ids of the elements that a selector finds, in document order."""
    return [node.mem_id for node in root.css(selector)]


def children_of(node: LexborNode) -> list[LexborNode]:
    """Return the child elements."""
    return [child for child in node.iter() if child.is_element_node]


def place_among(siblings: Iterable[LexborNode], node: LexborNode) -> int:
    """Return the place of an element among its siblings, counted from 1, as nth-child counts."""
    for number, one in enumerate(siblings, start=1):
        if one.mem_id == node.mem_id:
            return number
    return 0


def following(node: LexborNode) -> LexborNode | None:
    """Return the next element on the same level."""
    after = node.next
    while after is not None and not after.is_element_node:
        after = after.next
    return after


def own_text(node: LexborNode) -> str:
    """Return the text of an element itself, without that of the elements in it."""
    pieces = []
    child = node.first_child
    while child is not None:
        if child.is_text_node:
            pieces.append((child.text_content or "").strip())
        child = child.next
    return " ".join(piece for piece in pieces if piece)
