"""The visible text of an element: blocks separated, scripts left out, whitespace collapsed.

Inline elements are joined as in a browser, except where a reader sees two values: a label
and the number after it (`<b>Price</b>299`), an old and a new price (`<del>29</del><ins>19</ins>`),
and digits in neighbouring elements (`19<sup>99</sup>`, `<span>19</span><span>99</span>`), of which
a style sheet may make decimals.
"""

from __future__ import annotations

from selectolax.lexbor import LexborNode

_INVISIBLE = frozenset({"script", "style", "template", "noscript"})
_INLINE_TAGS = """
    a abbr b bdi bdo cite code data del dfn em font i img ins kbd label mark meta q s samp small
    span strike strong sub sup time tt u var wbr
"""
_INLINE = frozenset(_INLINE_TAGS.split())
_JOINED = frozenset({"img", "meta", "wbr"})  # inline, without text of their own
_RAISED = frozenset({"sub", "sup"})
_STRUCK = frozenset({"del", "ins", "s", "strike"})
_EDGE, _RAISED_EDGE, _STRUCK_EDGE, _BLOCK = "-", "^", "~", " "
_EDGE_OF = {
    **dict.fromkeys(_INLINE - _JOINED, _EDGE),
    **dict.fromkeys(_JOINED, ""),
    **dict.fromkeys(_RAISED, _RAISED_EDGE),
    **dict.fromkeys(_STRUCK, _STRUCK_EDGE),
}


def text_of(node: LexborNode) -> str:
    """Return the text of an element on one line; "" when it has none."""
    child = node.first_child
    if child is None:
        return ""
    if child.next is None and child.is_text_node:  # as nearly always
        return " ".join((child.text_content or "").split())
    return " ".join("".join(_pieces(child)).split())


def _pieces(first: LexborNode) -> list[str]:
    """Return the texts from this node on; iterative, since pages nest deeply."""
    pieces: list[str] = []
    last = edges = ""
    stack: list[LexborNode | str] = [first]
    while stack:
        here = stack.pop()
        if isinstance(here, str):  # the end of an element
            edges += here
            continue
        if (following := here.next) is not None:
            stack.append(following)
        if here.is_text_node:
            if not (text := here.text_content):
                continue
            if edges:
                pieces.append(_separator(last, edges, text[0]))
                edges = ""
            pieces.append(text)
            last = text[-1]
        elif here.is_element_node and (tag := here.tag or "") not in _INVISIBLE:
            edge = _EDGE_OF.get(tag, _BLOCK)
            edges += edge
            if (child := here.first_child) is not None:
                stack.append(edge)
                stack.append(child)
    return pieces


def _separator(preceding: str, edges: str, following: str) -> str:
    """Return the separator of two texts: a space between blocks or between two values."""
    if _BLOCK in edges:
        return " "
    if following.isdecimal():
        if preceding.isdecimal():
            return "" if edges == _EDGE else " "  # two elements with digits are two values
        return " " if preceding.isalpha() and _RAISED_EDGE not in edges else ""  # m2 stays m2
    return " " if _STRUCK_EDGE in edges and preceding.isdecimal() and following.isalpha() else ""
