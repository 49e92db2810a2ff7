"""Short selectors that will still fit tomorrow: by ids, classes and itemprops that people chose."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

Root = LexborHTMLParser | LexborNode
_PLAIN = re.compile(r"-?[A-Za-z_][\w-]*", re.ASCII)
_MACHINES = re.compile(r"^(css|sc|jsx|jss|emotion|svelte|ng|chakra|ember|react)-", re.IGNORECASE)
_STATE_WORDS = """
    active current selected first last odd even open closed hidden visible disabled hover clearfix
"""
_STATES = frozenset(_STATE_WORDS.split())
_MIXED = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{5,}")
_CAMEL_HASH = re.compile(r"^_?[a-z]+[A-Z][a-z]*[A-Z][A-Za-z]*$")
_LONGEST = 40
_VOWELS = re.compile(r"[aeiouy]", re.IGNORECASE)
_MOST_ANCESTORS = 4
_SHORT, _LONG = 3, 9  # letters of a word; longer ones in camel case are words, after all


def is_stable(name: str) -> bool:
    """Say whether a class or an id looks as if a person chose it, and not a build."""
    if not _PLAIN.fullmatch(name) or len(name) > _LONGEST or _MACHINES.search(name):
        return False
    if any(char.isdigit() for char in name[-_SHORT:]) and len(name) > _SHORT:
        return False  # item-482, col-6
    words = [word for word in re.split(r"[-_]+", name) if word]
    return bool(words) and not any(_is_hash(word) for word in words)


def _is_hash(word: str) -> bool:
    if _MIXED.fullmatch(word):
        return True
    if len(word) <= _SHORT + 1:
        return False
    is_camel = len(word) < _LONG and _CAMEL_HASH.match(word) is not None
    return is_camel or not _VOWELS.search(word)


def classes_of(node: LexborNode) -> list[str]:
    """Return the stable classes of an element, those that only say how it stands aside."""
    names = (node.attributes.get("class") or "").split()
    return [name for name in names if is_stable(name) and name.lower() not in _STATES]


def own_selectors(node: LexborNode) -> Iterator[str]:
    """Yield selectors of an element by what it is itself, the most telling first."""
    tag = node.tag or "*"
    if (prop := node.attributes.get("itemprop")) and _PLAIN.fullmatch(prop):
        yield f"[itemprop={prop}]"
    if (name := node.attributes.get("id")) and is_stable(name):
        yield f"#{name}"
    classes = classes_of(node)
    yield from (f"{tag}.{name}" for name in classes)
    if len(classes) > 1:
        yield f"{tag}.{'.'.join(classes)}"
    yield tag


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
        if _finds_only(root, selector, node):
            return selector
    around = [one for one, _ in zip(ancestors(node), range(_MOST_ANCESTORS), strict=False)]
    for outer in around:
        for place in own_selectors(outer):
            for selector in own:
                joined = f"{place} {selector}"
                if place != outer.tag and _finds_only(root, joined, node):
                    return joined
    return None


def group_selector(root: Root, nodes: list[LexborNode]) -> str | None:
    """Return a short selector that finds exactly these elements."""
    wanted = {node.mem_id for node in nodes}
    first = nodes[0]
    shared = [one for one in own_selectors(first) if not one.startswith(("#", "[itemprop"))]
    for selector in shared:
        if _finds(root, selector) == wanted:
            return selector
    for outer in ancestors(first):
        for place in own_selectors(outer):
            for selector in shared:
                for joined in (f"{place} > {selector}", f"{place} {selector}"):
                    if _finds(root, joined) == wanted:
                        return joined
    return None


def _finds_only(root: Root, selector: str, node: LexborNode) -> bool:
    return _finds(root, selector) == {node.mem_id}


def _finds(root: Root, selector: str) -> set[int]:
    return {node.mem_id for node in root.css(selector)}
