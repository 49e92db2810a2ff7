"""Places of a field, made ready once for all pages: CSS, JSON-LD, scripts, the address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from jmespath.exceptions import JMESPathError
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.config.manifests.api_paths import compiled
from longline.config.manifests.fields import Place, split_selector
from longline.config.patterns import user_pattern
from longline.sources.adapters.html_scope import PageScope, Scope
from longline.sources.adapters.html_text import text_of

ANY_SCRIPT = "script:not([src])"
_EMPTY: tuple[Any, ...] = (None, "", [], {})
Take = Callable[[LexborNode], str | None]


class Finder(Protocol):
    """Finds a value in one place; `origin` says in words which."""

    origin: str

    def first(self, scope: Scope) -> Any:
        """Return the first value there; None when there is none, or it is empty."""

    def all(self, scope: Scope) -> list[Any]:
        """Return all values there that are not empty."""


def finders_of(places: Iterable[Place]) -> tuple[Finder, ...]:
    """Return what looks into these places, in their order."""
    return tuple(finder for place in places for finder in _finders(place))


def nodes_in(
    page: PageScope, node: LexborNode | LexborHTMLParser | None, css: str
) -> list[LexborNode]:
    """Return the elements that match, the node itself for an empty selector."""
    if not css:
        return [node] if isinstance(node, LexborNode) else []
    if css.startswith("+"):
        return after(node, css, page.selectors.all)
    return page.selectors.all(node, css) if node is not None else []


def after(
    node: LexborNode | LexborHTMLParser | None,
    css: str,
    find: Callable[[LexborNode, str], list[LexborNode]],
) -> list[LexborNode]:
    """Return the elements after a node that `+ dd` or `+ tr .price` finds."""
    here = node if isinstance(node, LexborNode) else None
    steps = css.split("+")[1:]
    for number, step in enumerate(steps):
        tag, _, inner = step.strip().partition(" ")
        here = _next(here)
        if here is None or here.mem_id not in {one.mem_id for one in find(here, tag)}:
            return []
        if inner:
            return find(here, inner) if number == len(steps) - 1 else []
    return [here] if here is not None else []


def _next(node: LexborNode | None) -> LexborNode | None:
    after = node.next if node is not None else None
    while after is not None and not after.is_element_node:
        after = after.next
    return after


def taking(attribute: str | None) -> Take:
    """Return what reads an element: its text, its HTML, or an attribute."""
    if attribute is None or attribute == "text":
        return text_of
    if attribute == "html":
        return _html_of

    def attribute_of(node: LexborNode) -> str | None:
        value = node.attributes.get(attribute)
        return value.strip() if value else None

    return attribute_of


def _html_of(node: LexborNode) -> str:
    return (node.inner_html or "").strip()


class _Css:
    """Elements."""

    __slots__ = ("_css", "_take", "origin")

    def __init__(self, selector: str) -> None:
        self._css, attribute = split_selector(selector)
        self._take = taking(attribute)
        self.origin = f"css {selector}"

    def first(self, scope: Scope) -> Any:
        if not self._css or self._css.startswith("+"):
            node = next(iter(nodes_in(scope.page, scope.node, self._css)), None)
        else:
            node = scope.page.selectors.first(scope.node, self._css)
        return (self._take(node) or None) if node is not None else None

    def all(self, scope: Scope) -> list[Any]:
        return [
            value for n in nodes_in(scope.page, scope.node, self._css) if (value := self._take(n))
        ]


class _Json:
    """A way into objects of JSON; of several objects, the first that has something."""

    def __init__(self, roots: Callable[[Scope], Iterable[Any]], path: str, origin: str) -> None:
        self._roots = roots
        self._path = compiled(path)
        self.origin = origin

    def first(self, scope: Scope) -> Any:
        return next(self._found(scope), None)

    def all(self, scope: Scope) -> list[Any]:
        lists = (value if isinstance(value, list) else [value] for value in self._found(scope))
        return [one for values in lists for one in values if one not in _EMPTY]

    def _found(self, scope: Scope) -> Iterator[Any]:
        for root in self._roots(scope):
            try:
                value = self._path.search(root)
            except JMESPathError:
                continue  # a function was given what it cannot work with: nothing is there
            if value not in _EMPTY:
                yield value


class _OpenGraph:
    """A property of the Open Graph tags of the whole page."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.origin = f"open-graph {name}"

    def first(self, scope: Scope) -> Any:
        return next(iter(self.all(scope)), None)

    def all(self, scope: Scope) -> list[Any]:
        return scope.page.open_graph.get(self._name, [])


class _Address:
    """The item's own address."""

    def __init__(self, pattern: str) -> None:
        self._pattern = user_pattern(pattern)
        self.origin = f"address {pattern}"

    def first(self, scope: Scope) -> Any:
        found = self._pattern.search(scope.address)
        return self._pattern.first_group(found) if found else None

    def all(self, scope: Scope) -> list[Any]:
        first = self._pattern.first_group
        return [value for m in self._pattern.finditer(scope.address) if (value := first(m))]


def _finders(place: Place) -> Iterator[Finder]:
    for selector in place.css or ():
        yield _Css(selector)
    if place.open_graph is not None:
        yield _OpenGraph(place.open_graph)
    if place.json_ld is not None:
        yield _typed("json-ld", lambda scope: scope.page.ld, place.json_ld, place.path)
    elif place.microdata is not None:
        yield _typed("microdata", _microdata_in, place.microdata, place.path)
    elif place.script is not None or place.after is not None:
        yield _script(place.script or ANY_SCRIPT, place.after, place.path)
    elif place.path is not None:
        yield _Json(lambda scope: (scope.record,), place.path, f"path {place.path}")
    if place.url is not None:
        yield _Address(place.url)


def _microdata_in(scope: Scope) -> Iterable[dict[str, Any]]:
    node = scope.node if isinstance(scope.node, LexborNode) else None
    return scope.page.microdata.within(node)


def _typed(
    name: str,
    objects: Callable[[Scope], Iterable[dict[str, Any]]],
    text: str,
    path: str | None,
) -> _Json:
    kind, _, rest = text.partition(".")

    def roots(scope: Scope) -> Iterator[Any]:
        return (one for one in objects(scope) if _is_of(one, kind))

    origin = f"{name} {text}" + (f" {path}" if path else "")
    return _Json(roots, path or rest or "@", origin)


def _is_of(found: dict[str, Any], kind: str) -> bool:
    types = found.get("@type")
    named = types if isinstance(types, list) else [types]
    return any(isinstance(one, str) and re.split(r"[/:#]", one)[-1] == kind for one in named)


def _script(css: str, after: str | None, path: str | None) -> _Json:
    pattern = user_pattern(after) if after is not None else None
    named = " ".join(part for part in (css, after, path) if part)
    return _Json(lambda scope: scope.page.script(css, pattern), path or "@", f"script {named}")
