"""What fields are read from: an element of a page, its address, and the JSON in its scripts."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Any
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.fetching.css import Selectors
from longline.fetching.messages import Page, without_userinfo
from longline.sources.adapters.structured_data import (
    LENIENT,
    Microdata,
    encodable,
    open_graph_of,
    read_json_ld,
)

_LD = 'script[type*="ld+json" i]'


class PageScope:
    """A whole page: what is read from it once serves all fields and all its elements."""

    def __init__(self, page: Page, tree: LexborHTMLParser | None = None) -> None:
        self.address = page.url
        self.tree = page.tree if tree is None else tree
        self.selectors = page.selectors if tree is None else Selectors(tree)
        self._page = page
        self._scripts: dict[Any, Any] = {}

    @property
    def text_problem(self) -> str | None:
        """What is doubtful about the characters of the page; None if nothing is."""
        return self._page.text_problem

    @cached_property
    def base(self) -> str:
        """The address that relative ones start from."""
        node = self.tree.css_first("base[href]")
        href = node.attributes.get("href") if node else None
        return urljoin(self.address, without_userinfo(href)) if href else self.address

    @cached_property
    def ld(self) -> list[dict[str, Any]]:
        """Every object of the page's JSON-LD, outer ones first."""
        roots = (root for node in self.tree.css(_LD) for root in read_json_ld(node.text()))
        return [found for root in roots for found in _objects(root)]

    @cached_property
    def microdata(self) -> Microdata:
        """The page's microdata."""
        return Microdata(self.tree, self.base)

    @cached_property
    def open_graph(self) -> dict[str, list[str]]:
        """The properties of the page's Open Graph tags that are not empty."""
        return open_graph_of(self.tree)

    def script(self, css: str, after: Any) -> list[Any]:
        """Return the JSON of each script that matches, from where `after` ends."""
        name = (css, after)
        if name not in self._scripts:
            texts = (node.text() for node in self.selectors.all(self.tree, css))
            found = (_decoded(text, after) for text in texts)
            self._scripts[name] = [value for value in found if value is not None]
        scripts: list[Any] = self._scripts[name]
        return scripts


class Scope:
    """Where fields look: a node, or a record of JSON, on a page; `address` is the item's."""

    __slots__ = ("address", "node", "page", "record")

    def __init__(
        self,
        page: PageScope,
        node: LexborNode | LexborHTMLParser,
        address: str,
        record: Any = None,
    ) -> None:
        self.page = page
        self.node = node
        self.address = address
        self.record = record


def whole(page: Page) -> Scope:
    """Return the scope of a page that is an item."""
    scope = PageScope(page)
    return Scope(scope, scope.tree, page.url)


def _decoded(text: str, after: Any) -> Any:
    start = 0
    if after is not None:
        found = after.search(text)
        if not found:
            return None
        start = found.end()
    try:
        return encodable(LENIENT.raw_decode(text[start:].lstrip())[0], text)
    except (json.JSONDecodeError, RecursionError):
        return None


def _objects(root: Any) -> Iterator[dict[str, Any]]:
    waiting = deque([root])
    while waiting:
        value = waiting.popleft()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
