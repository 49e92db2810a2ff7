"""What a reader of a page sees: its title, its headings and its text, and nothing hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from selectolax.lexbor import LexborNode

from longline.http.messages import Page

ENOUGH = 4_000
"""Characters after which a text is long, and the rest is not read."""
_UNSEEN = frozenset(
    {"head", "script", "style", "noscript", "template", "svg", "math", "iframe", "object"}
)
_CONCEALED = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class View:
    """The title with the headings, and all that is to be read."""

    heads: str
    text: str


def seen(page: Page) -> View:
    """Return what a reader sees of an HTML page without running its scripts."""
    tree = page.tree
    title = tree.css_first("title")
    heads = [title.text()] if title else []
    heads += [_joined(node) for node in tree.css("h1, h2")[:5] if not _is_concealed(node)]
    body = tree.body
    return View(_plain(" \n ".join(heads)), _plain(_joined(body)) if body else "")


def _joined(node: LexborNode) -> str:
    pieces, length = [], 0
    for piece in _texts(node):
        pieces.append(piece)
        length += len(piece.strip())
        if length > ENOUGH:
            break
    return " ".join(pieces)


def _texts(node: LexborNode) -> Iterator[str]:
    """Yield the pieces of text under a node; a stack, since pages nest deeper than Python may."""
    stack = [node.first_child]
    while stack:
        here = stack.pop()
        if here is None:
            continue
        stack.append(here.next)
        if here.is_text_node:
            yield here.text_content or ""
        elif here.is_element_node and here.tag not in _UNSEEN and not _hides(here):
            stack.append(here.first_child)


def _hides(node: LexborNode) -> bool:
    attributes = node.attributes
    return "hidden" in attributes or bool(_CONCEALED.search(attributes.get("style") or ""))


def _is_concealed(node: LexborNode) -> bool:
    here: LexborNode | None = node
    while here is not None and here.is_element_node:
        if _hides(here) or here.tag in _UNSEEN:
            return True
        here = here.parent
    return False


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")).strip()
