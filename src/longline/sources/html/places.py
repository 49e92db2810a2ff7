"""Places where a value may be on a page: their schema, and the finders that look there."""

from __future__ import annotations

import contextlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self
from urllib.parse import urljoin, urlsplit

from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from longline.config.expressions import (
    JsonPath,
    Pattern,
    UserPattern,
    check_path,
    compile_path,
    user_pattern,
)
from longline.config.validation import StrictModel, invalid, one_or_several
from longline.http.css import Selectors as CssSelectors
from longline.http.errors import BadAnswer, BadCertificate, PrivateAddress, UnknownHost
from longline.http.messages import Page, without_userinfo
from longline.sources.html.content import (
    LENIENT,
    Microdata,
    node_text,
    open_graph_of,
    read_json_ld,
    replace_surrogates,
)

ANY_SCRIPT = "script:not([src])"
PLACES = ("css", "json_ld", "microdata", "open_graph", "script", "after", "path", "url")
_ATTRIBUTE = re.compile(r"@([A-Za-z_][\w:.-]*)$")
_SCHEMA_TYPE = re.compile(r"[A-Za-z]\w*")
_PROPERTY = re.compile(r"[\w.-]+(?::[\w.-]+)+")
_JSON_LD = 'script[type*="ld+json" i]'
_EMPTY: tuple[Any, ...] = (None, "", [], {})
EMPTY_PAGE = LexborHTMLParser("")
"""A page without content; a parser takes 1 MB, so there is only one."""
NodeReader = Callable[[LexborNode], str | None]


def split_selector(text: str) -> tuple[str, str | None]:
    """Return the CSS selector and what follows its @: an attribute, `html` or `text`."""
    found = _ATTRIBUTE.search(text)
    return (text[: found.start()].strip(), found[1]) if found else (text.strip(), None)


def check_css(text: str) -> str:
    """Return a CSS selector if it is valid; raise PydanticCustomError if it is not."""
    try:
        EMPTY_PAGE.css(text)
    except SelectolaxError:
        raise invalid(
            f"{text!r} is not a supported CSS selector; write for example h1.title, "
            "and h1.title@id for an attribute"
        ) from None
    return text


def check_selector(text: str) -> str:
    """Return a selector if it is valid, with or without an attribute."""
    css, attribute = split_selector(text)
    if css or attribute is None:
        # `+ dd` is the element after an item; each part alone is CSS.
        steps = css.split("+")[1:] if css.startswith("+") else [css]
        for step in steps:
            check_css(step)
    return text.strip()


Css = Annotated[str, AfterValidator(check_css)]
"""A CSS selector without an attribute."""

Selector = Annotated[str, AfterValidator(check_selector)]
"""A CSS selector for the text of an element; `selector@name` for an attribute, `@html` for HTML.

`+ dd` is the element after an item, `+ tr .price` an element inside it."""

Selectors = Annotated[tuple[Selector, ...], BeforeValidator(one_or_several), Field(min_length=1)]
"""One selector, or several of which the first match is used."""


class Place(StrictModel):
    """Where a value may be."""

    css: Selectors | None = None
    """Elements of the page."""
    json_ld: str | None = None
    """In JSON-LD: a type and a path: Product.offers.price."""
    microdata: str | None = None
    """In microdata (itemscope, itemprop), written like json_ld: Product.offers.price."""
    open_graph: str | None = None
    """An Open Graph property: og:title."""
    script: Css | None = None
    """In JSON in a script: the selector of the script."""
    after: Pattern | None = None
    """In JSON in a script: the text before the JSON, such as window.state *= *."""
    path: JsonPath | None = None
    """Path in the JSON of the script; alone, path in a record of a load-more API."""
    url: Pattern | None = None
    """In the URL of the page."""

    @model_validator(mode="after")
    def _check_structured_data(self) -> Self:
        if self.open_graph is not None and not _PROPERTY.fullmatch(self.open_graph):
            raise invalid("open_graph is a property with its prefix: og:title")
        named = [name for name in ("json_ld", "microdata") if getattr(self, name) is not None]
        for name in named:
            kind, _, path = getattr(self, name).partition(".")
            if not _SCHEMA_TYPE.fullmatch(kind):
                raise invalid(f"{name} begins with a type: Product, or Product.offers.price")
            check_path(self.path or path or "@")
        if self.script or self.after:
            named.append("script")
        if len(named) > 1:
            raise invalid(
                f"{' and '.join(named)} are different places; list them under first, one by one"
            )
        return self

    @property
    def is_somewhere(self) -> bool:
        """Whether any place is named."""
        return any(getattr(self, name) is not None for name in PLACES)


class PageScope:
    """A page with everything that is parsed once for all of its fields and elements."""

    def __init__(self, page: Page, tree: LexborHTMLParser | None = None) -> None:
        self.url = page.url
        self.tree = page.tree if tree is None else tree
        self.selectors = page.selectors if tree is None else CssSelectors(tree)
        self.page = page
        self._scripts: dict[tuple[str, UserPattern | None], list[Any]] = {}

    @cached_property
    def base(self) -> str:
        """The base URL of relative links."""
        node = self.tree.css_first("base[href]")
        href = node.attributes.get("href") if node else None
        return urljoin(self.url, without_userinfo(href)) if href else self.url

    @cached_property
    def json_ld(self) -> list[dict[str, Any]]:
        """Every object of the page's JSON-LD, outer ones first."""
        objects: list[dict[str, Any]] = []
        for node in self.tree.css(_JSON_LD):
            waiting = deque(read_json_ld(node.text()))
            while waiting:
                value = waiting.popleft()
                if isinstance(value, dict):
                    objects.append(value)
                    waiting.extend(value.values())
                elif isinstance(value, list):
                    waiting.extend(value)
        return objects

    @cached_property
    def microdata(self) -> Microdata:
        return Microdata(self.tree, self.base)

    @cached_property
    def open_graph(self) -> dict[str, list[str]]:
        return open_graph_of(self.tree)

    def scripts(self, css: str, after: UserPattern | None) -> list[Any]:
        """Return the JSON of each matching script, from the end of the match of `after`."""
        key = (css, after)
        if key not in self._scripts:
            self._scripts[key] = []
            for node in self.selectors.all(self.tree, css):
                text = node.text()
                start = after.search(text) if after is not None else None
                if after is not None and start is None:
                    continue
                rest = text[start.end() if start else 0 :].lstrip()
                with contextlib.suppress(json.JSONDecodeError, RecursionError):
                    value = replace_surrogates(LENIENT.raw_decode(rest)[0], text)
                    self._scripts[key] += [value] if value is not None else []
        return self._scripts[key]


@dataclass(slots=True)
class Scope:
    """Where fields are read: a node or a JSON record of a page; `url` is that of the item."""

    page: PageScope
    node: LexborNode | LexborHTMLParser
    url: str
    record: Any = None


def whole_page(page: Page) -> Scope:
    """Return the scope of a page that is an item."""
    scope = PageScope(page)
    return Scope(scope, scope.tree, page.url)


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds a value in one place.

    `origin` describes the place. `first` returns the first value there, None when there is none or
    it is empty; `all` returns all values there that are not empty.
    """

    origin: str
    first: Callable[[Scope], Any]
    all: Callable[[Scope], list[Any]]


def make_finders(places: Iterable[Place]) -> tuple[Finder, ...]:
    """Return the finders of these places, in order."""
    return tuple(finder for place in places for finder in _finders_of(place))


def _finders_of(place: Place) -> Iterator[Finder]:
    for selector in place.css or ():
        yield _css_finder(selector)
    if (name := place.open_graph) is not None:
        yield _list_finder(f"open-graph {name}", lambda scope: scope.page.open_graph.get(name, []))
    if place.json_ld is not None:
        yield _typed_finder("json-ld", lambda scope: scope.page.json_ld, place.json_ld, place.path)
    elif place.microdata is not None:
        yield _typed_finder("microdata", _microdata_in, place.microdata, place.path)
    elif place.script is not None or place.after is not None:
        css, after = place.script or ANY_SCRIPT, place.after
        pattern = user_pattern(after) if after is not None else None
        origin = " ".join(part for part in ("script", css, after, place.path) if part)
        yield _json_finder(
            lambda scope: scope.page.scripts(css, pattern), place.path or "@", origin
        )
    elif place.path is not None:
        yield _json_finder(lambda scope: (scope.record,), place.path, f"path {place.path}")
    if place.url is not None:
        yield _url_finder(place.url)


def select_nodes(
    page: PageScope, node: LexborNode | LexborHTMLParser | None, css: str
) -> list[LexborNode]:
    """Return the matching elements; the node itself for an empty selector."""
    if not css:
        return [node] if isinstance(node, LexborNode) else []
    if css.startswith("+"):
        return select_following(node, css, page.selectors.all)
    return page.selectors.all(node, css) if node is not None else []


def select_following(
    node: LexborNode | LexborHTMLParser | None,
    css: str,
    select: Callable[[LexborNode, str], list[LexborNode]],
) -> list[LexborNode]:
    """Return the elements after a node that `+ dd` or `+ tr .price` selects."""
    here = node if isinstance(node, LexborNode) else None
    steps = css.split("+")[1:]
    for number, step in enumerate(steps):
        tag, _, inner = step.strip().partition(" ")
        here = here.next if here is not None else None
        while here is not None and not here.is_element_node:
            here = here.next
        if here is None or here.mem_id not in {one.mem_id for one in select(here, tag)}:
            return []
        if inner:
            return select(here, inner) if number == len(steps) - 1 else []
    return [here] if here is not None else []


def node_reader(attribute: str | None) -> NodeReader:
    """Return the function that reads an element: its text, its HTML, or an attribute."""
    if attribute is None or attribute == "text":
        return node_text
    if attribute == "html":
        return lambda node: (node.inner_html or "").strip()

    def read_attribute(node: LexborNode) -> str | None:
        value = node.attributes.get(attribute)
        return value.strip() if value else None

    return read_attribute


def _css_finder(selector: str) -> Finder:
    css, attribute = split_selector(selector)
    read = node_reader(attribute)
    is_plain = bool(css) and not css.startswith("+")

    def first(scope: Scope) -> Any:
        if is_plain:
            node = scope.page.selectors.first(scope.node, css)
        else:
            node = next(iter(select_nodes(scope.page, scope.node, css)), None)
        return (read(node) or None) if node is not None else None

    def find_all(scope: Scope) -> list[Any]:
        nodes = select_nodes(scope.page, scope.node, css)
        return [value for node in nodes if (value := read(node))]

    return Finder(f"css {selector}", first, find_all)


def _json_finder(roots: Callable[[Scope], Iterable[Any]], path: str, origin: str) -> Finder:
    """Return the finder of a path in JSON objects; the first object with a result is used."""
    expression = compile_path(path)

    def results(scope: Scope) -> Iterator[Any]:
        for root in roots(scope):
            try:
                value = expression.search(root)
            except JMESPathError:
                continue  # a function in the path does not accept this value
            if value not in _EMPTY:
                yield value

    def find_all(scope: Scope) -> list[Any]:
        lists = (value if isinstance(value, list) else [value] for value in results(scope))
        return [one for values in lists for one in values if one not in _EMPTY]

    return Finder(origin, lambda scope: next(results(scope), None), find_all)


def _list_finder(origin: str, find_all: Callable[[Scope], list[Any]]) -> Finder:
    return Finder(origin, lambda scope: next(iter(find_all(scope)), None), find_all)


def _url_finder(text: str) -> Finder:
    pattern = user_pattern(text)

    def find_all(scope: Scope) -> list[Any]:
        groups = (pattern.first_group(found) for found in pattern.finditer(scope.url))
        return [value for value in groups if value]

    return _list_finder(f"address {text}", find_all)


def _microdata_in(scope: Scope) -> Iterable[dict[str, Any]]:
    node = scope.node if isinstance(scope.node, LexborNode) else None
    return scope.page.microdata.within(node)


def _typed_finder(
    name: str,
    objects: Callable[[Scope], Iterable[dict[str, Any]]],
    text: str,
    path: str | None,
) -> Finder:
    """Return the finder of a schema.org type and a path in objects of that type."""
    kind, _, rest = text.partition(".")

    def roots(scope: Scope) -> Iterator[Any]:
        for found in objects(scope):
            types = found.get("@type")
            named = types if isinstance(types, list) else [types]
            if any(isinstance(one, str) and re.split(r"[/:#]", one)[-1] == kind for one in named):
                yield found

    origin = f"{name} {text}" + (f" {path}" if path else "")
    return _json_finder(roots, path or rest or "@", origin)


BROKEN_LINK_ERRORS = (BadAnswer, BadCertificate, PrivateAddress, UnknownHost)
"""Errors that concern one page a site links to; the other pages can still be read."""
_MAX_LINK_LENGTH = 65_536  # servers accept about 8,000 characters, and each copy costs memory


def absolute_url(base: str, link: str) -> str | None:
    """Return the absolute URL of a link without its fragment; None when it is not a web page."""
    if len(link) > _MAX_LINK_LENGTH:
        return None
    try:
        url = urljoin(base, without_userinfo(link.strip()))
    except ValueError:
        return None
    url = url.partition("#")[0]
    return url if url.startswith(("http://", "https://")) else None


def default_key(url: str, host: str) -> str:
    """Return the default key of an item: the path of its URL, with the host if it is another."""
    parts = urlsplit(url)
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return path if parts.netloc == host else f"{parts.netloc}{path}"


class Links:
    """Selectors of links, in order of preference."""

    def __init__(self, selectors: tuple[str, ...]) -> None:
        split = [split_selector(one) for one in selectors]
        self._selectors = [(css, name, node_reader(name or "href")) for css, name in split]
        self.selectors = tuple(css for css, _ in split)
        """The CSS selectors, without attributes."""

    def find(
        self, scope: PageScope, node: LexborNode | None = None
    ) -> Iterator[tuple[LexborNode, str]]:
        """Yield the elements and URLs that the first matching selector finds, each URL once."""
        seen: set[str] = set()
        for css, name, read in self._selectors:
            for found in select_nodes(scope, scope.tree if node is None else node, css):
                link = read(found)
                # A heading or a card may have its link inside.
                if not link and not name and (inner := found.css_first("a[href]")) is not None:
                    link = inner.attributes.get("href")
                url = absolute_url(scope.base, link) if link else None
                if url is not None and url not in seen:
                    seen.add(url)
                    yield found, url
            if seen:
                return
