"""The text of an element as a reader sees it: blocks apart, scripts left out, spaces single."""

from __future__ import annotations

from selectolax.lexbor import LexborNode

_UNSEEN = frozenset({"script", "style", "template", "noscript"})
_INLINE_TAGS = """
    a abbr b bdi bdo cite code data del dfn em font i img ins kbd label mark meta q s samp small
    span strike strong sub sup time tt u var wbr
"""
_INLINE = frozenset(_INLINE_TAGS.split())


def text_of(node: LexborNode) -> str:
    """Return the text of an element on one line; "" when there is none."""
    child = node.first_child
    if child is None:
        return ""
    if child.next is None and child.is_text_node:  # as nearly always
        return " ".join((child.text_content or "").split())
    return " ".join("".join(_pieces(child)).split())


def _pieces(first: LexborNode) -> list[str]:
    """Return the texts from this node on; a stack, since pages nest deeper than Python may."""
    pieces: list[str] = []
    stack: list[LexborNode | None] = [first]
    while stack:
        here = stack.pop()
        if here is None:  # the end of a block
            pieces.append(" ")
            continue
        if (following := here.next) is not None:
            stack.append(following)
        if here.is_text_node:
            pieces.append(here.text_content or "")
        elif here.is_element_node and here.tag not in _UNSEEN:
            if here.tag not in _INLINE:
                pieces.append(" ")
                stack.append(None)
            if (child := here.first_child) is not None:
                stack.append(child)
    return pieces
