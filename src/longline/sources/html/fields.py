"""Fields of a manifest, made ready once, and what reading a page or an element with them gives."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import urljoin

from jmespath.exceptions import JMESPathError
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.config.manifests.fields import FieldSpec, Place, split_selector
from longline.config.manifests.json_paths import compiled
from longline.config.patterns import UserPattern, user_pattern
from longline.http.css import Selectors
from longline.http.messages import Page, without_userinfo
from longline.sources.html.structured_data import (
    LENIENT,
    Microdata,
    encodable,
    open_graph_of,
    read_json_ld,
)
from longline.sources.html.text import text_of
from longline.sources.parsing.values import reader_of
from longline.sources.visit import Visit

# ---------------- What fields are read from: an element of a page, its address, and the JSON in

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


# ---------------- Places of a field, made ready once for all pages: CSS, JSON-LD, scripts, the

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


_SHOWN = 60  # characters of a value that cannot be read which its note repeats
_CHARACTERS = "page"  # the note is about all fields, so it has the name of the layer
Read = Callable[[Any, Scope], Any]


@dataclass(slots=True)
class Reading:
    """What was read: the fields, what is to be said about them, and where each came from."""

    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    problem: str | None = None
    """Why this is no record: the first required field that is missing."""

    @classmethod
    def carried(cls, data: Mapping[str, Any]) -> Reading:
        """Return the reading that an item brings along."""
        notes = [(name, text) for name, text in data.get("notes", ())]
        return cls(data["fields"], notes, data.get("origins", {}), data.get("problem"))

    def to_carry(self) -> dict[str, Any]:
        """Return it as the data of an item; what is empty is left out."""
        parts = {"notes": self.notes, "origins": self.origins, "problem": self.problem}
        return {"fields": self.fields, **{name: part for name, part in parts.items() if part}}

    def tell(self, visit: Visit) -> None:
        """Hand notes and origins to a visit."""
        for name, text in self.notes:
            visit.note(name, text)
        visit.origins.update(self.origins)


class FieldReader:
    """One field."""

    def __init__(self, name: str, spec: FieldSpec, locale: str | None) -> None:
        self.name = name
        self._spec = spec
        self._finders = finders_of(spec.places)
        self._is_many = spec.many
        self._read = _parser(spec, spec.locale or locale)
        self._tried = ", ".join(finder.origin for finder in self._finders)

    def read(self, scope: Scope, into: Reading, path: str = "") -> Any:
        """Return the value; what there is to say about it goes into the reading."""
        name = path + self.name
        for finder in self._finders:
            found = finder.all(scope) if self._is_many else finder.first(scope)
            if found is None or found == []:
                continue
            if not path:
                into.origins[name] = finder.origin
            return self._value(found, scope, into, name)
        return self._absent(into, name, f"nothing at {self._tried}", is_nested=bool(path))

    def _value(self, found: Any, scope: Scope, into: Reading, name: str) -> Any:
        if self._read is None:
            return found
        if not self._is_many:
            value, problem = self._parsed(found, scope)
            return value if problem is None else self._unreadable(into, name, problem)
        values = []
        for one in found:
            value, problem = self._parsed(one, scope)
            if problem is None:
                values.append(value)
            else:
                into.notes.append((name, problem))
        return values or self._unreadable(into, name, "none of its values can be read")

    def _parsed(self, found: Any, scope: Scope) -> tuple[Any, str | None]:
        assert self._read is not None  # noqa: S101  # asked for only then
        try:
            return self._read(found, scope), None
        except ValueError as error:
            kind = self._spec.type or "text"
            return None, f"{_short(found)} cannot be read as {kind}: {error}"

    def _unreadable(self, into: Reading, name: str, problem: str) -> Any:
        into.notes.append((name, problem))
        if self._spec.required and into.problem is None:
            into.problem = f"the required field {name} is unreadable: {problem}"
        return None

    def _absent(self, into: Reading, name: str, reason: str, *, is_nested: bool) -> Any:
        spec = self._spec
        if spec.has_default:
            if not is_nested:
                into.origins[name] = "default"
            into.notes.append((name, f"{reason}; the default stands in"))
            return spec.default
        into.notes.append((name, reason))
        if spec.required and into.problem is None:
            into.problem = f"the required field {name} is missing: {reason}"
        return None


class ObjectReader:
    """A field that is an object, or a list of objects."""

    def __init__(self, name: str, spec: FieldSpec, locale: str | None) -> None:
        self.name = name
        self._spec = spec
        self._selectors = tuple(split_selector(one)[0] for one in spec.css or ())
        self._readers = readers_of(spec.fields or {}, spec.locale or locale)
        self._absent = FieldReader(name, spec, locale)

    def read(self, scope: Scope, into: Reading, path: str = "") -> Any:
        """Return the object, or the list of them; None when none of the elements is there."""
        name = path + self.name
        if not self._selectors:
            return self._object(scope, into, name)
        for css in self._selectors:
            nodes = nodes_in(scope.page, scope.node, css)
            if not nodes:
                continue
            if not path:
                into.origins[name] = f"css {css}"
            inner = [Scope(scope.page, node, scope.address, scope.record) for node in nodes]
            if not self._spec.many:
                return self._object(inner[0], into, name)
            return [self._object(one, into, f"{name}[{n}]") for n, one in enumerate(inner)]
        # What finds no element finds no text of it: the same notes, default and requirement.
        return self._absent.read(scope, into, path)

    def _object(self, scope: Scope, into: Reading, name: str) -> dict[str, Any]:
        return {one.name: one.read(scope, into, f"{name}.") for one in self._readers}


AnyReader = FieldReader | ObjectReader


def readers_of(fields: Mapping[str, FieldSpec], locale: str | None) -> tuple[AnyReader, ...]:
    """Return what reads these fields, made ready for many pages."""
    return tuple(
        (FieldReader if spec.fields is None else ObjectReader)(name, spec, locale)
        for name, spec in fields.items()
    )


def read_fields(readers: tuple[AnyReader, ...], scope: Scope) -> Reading:
    """Return all fields of a page or an element."""
    reading = Reading()
    fields = reading.fields
    for reader in readers:
        fields[reader.name] = reader.read(scope, reading)
    if (problem := scope.page.text_problem) is not None:
        reading.notes.append((_CHARACTERS, problem))
    origin = f"page {scope.page.address} "
    reading.origins = {name: origin + place for name, place in reading.origins.items()}
    return reading


def _parser(spec: FieldSpec, locale: str | None) -> Read | None:
    """Return what makes a value of what was found; None when it is taken as it is."""
    if spec.type is None and spec.match is None and spec.words is None:
        return None
    read = reader_of(spec.type) if spec.type is not None else None
    words = None if spec.words is None else {_word(one): to for one, to in spec.words.items()}
    pattern = user_pattern(spec.match) if spec.match is not None else None
    form, is_address = spec.form, spec.type == "url"

    def parsed(value: Any, scope: Scope) -> Any:
        if pattern is not None:
            value = _part(pattern, value)
        if words is not None:
            value = _meaning(words, value)
        if read is not None:
            value = read(value, locale, form)
        return urljoin(scope.page.base, value) if is_address else value

    return parsed


def _part(pattern: UserPattern, value: Any) -> str:
    found = pattern.search(str(value))
    part = pattern.first_group(found) if found else None
    if part is None:
        raise ValueError(f"it does not match {pattern.pattern}")
    return part


def _word(value: Any) -> str:
    return " ".join(str(value).split()).casefold()


def _meaning(words: Mapping[str, Any], value: Any) -> Any:
    word = _word(value)
    if word not in words:
        raise ValueError("it is none of the words that the manifest explains")
    return words[word]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
