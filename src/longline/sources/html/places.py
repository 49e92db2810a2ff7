"""Places where a value may be on a page: their schema, and the finders that look there."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Annotated, Any, Protocol, Self
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
from longline.config.strict_model import StrictModel, invalid
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
NodeReader = Callable[[LexborNode], str | None]


def split_selector(text: str) -> tuple[str, str | None]:
    """Return the CSS selector and what follows its @: an attribute, `html` or `text`."""
    found = _ATTRIBUTE.search(text)
    return (text[: found.start()].strip(), found[1]) if found else (text.strip(), None)


@lru_cache(maxsize=1)
def _empty_page() -> LexborHTMLParser:
    return LexborHTMLParser("<p>")


def check_css(text: str) -> str:
    """Return a CSS selector if it is valid; raise PydanticCustomError if it is not."""
    try:
        _empty_page().css(text)
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


def one_or_several(value: Any) -> Any:
    """Accept one text as a list of one."""
    return [value] if isinstance(value, str) else value


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
        self._page = page
        self._scripts: dict[tuple[str, UserPattern | None], list[Any]] = {}

    @property
    def text_problem(self) -> str | None:
        """What is doubtful about the decoding of the page; None if nothing."""
        return self._page.text_problem

    @cached_property
    def base(self) -> str:
        """The base URL of relative links."""
        node = self.tree.css_first("base[href]")
        href = node.attributes.get("href") if node else None
        return urljoin(self.url, without_userinfo(href)) if href else self.url

    @cached_property
    def json_ld(self) -> list[dict[str, Any]]:
        """Every object of the page's JSON-LD, outer ones first."""
        roots = (root for node in self.tree.css(_JSON_LD) for root in read_json_ld(node.text()))
        return [found for root in roots for found in _nested_objects(root)]

    @cached_property
    def microdata(self) -> Microdata:
        """The page's microdata."""
        return Microdata(self.tree, self.base)

    @cached_property
    def open_graph(self) -> dict[str, list[str]]:
        """The page's Open Graph properties that are not empty."""
        return open_graph_of(self.tree)

    def scripts(self, css: str, after: UserPattern | None) -> list[Any]:
        """Return the JSON of each matching script, from the end of the match of `after`."""
        key = (css, after)
        if key not in self._scripts:
            texts = (node.text() for node in self.selectors.all(self.tree, css))
            found = (_json_in_script(text, after) for text in texts)
            self._scripts[key] = [value for value in found if value is not None]
        return self._scripts[key]


class Scope:
    """Where fields are read: a node or a JSON record of a page; `url` is that of the item."""

    __slots__ = ("node", "page", "record", "url")

    def __init__(
        self,
        page: PageScope,
        node: LexborNode | LexborHTMLParser,
        url: str,
        record: Any = None,
    ) -> None:
        self.page = page
        self.node = node
        self.url = url
        self.record = record


def whole_page(page: Page) -> Scope:
    """Return the scope of a page that is an item."""
    scope = PageScope(page)
    return Scope(scope, scope.tree, page.url)


def _json_in_script(text: str, after: UserPattern | None) -> Any:
    start = 0
    if after is not None:
        found = after.search(text)
        if not found:
            return None
        start = found.end()
    try:
        return replace_surrogates(LENIENT.raw_decode(text[start:].lstrip())[0], text)
    except (json.JSONDecodeError, RecursionError):
        return None


def _nested_objects(root: Any) -> Iterator[dict[str, Any]]:
    waiting = deque([root])
    while waiting:
        value = waiting.popleft()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


class Finder(Protocol):
    """Finds a value in one place; `origin` describes the place."""

    origin: str

    def first(self, scope: Scope) -> Any:
        """Return the first value there; None when there is none or it is empty."""

    def all(self, scope: Scope) -> list[Any]:
        """Return all values there that are not empty."""


def make_finders(places: Iterable[Place]) -> tuple[Finder, ...]:
    """Return the finders of these places, in order."""
    return tuple(finder for place in places for finder in _finders_of(place))


def _finders_of(place: Place) -> Iterator[Finder]:
    for selector in place.css or ():
        yield _CssFinder(selector)
    if place.open_graph is not None:
        yield _OpenGraphFinder(place.open_graph)
    if place.json_ld is not None:
        yield _typed_finder("json-ld", lambda scope: scope.page.json_ld, place.json_ld, place.path)
    elif place.microdata is not None:
        yield _typed_finder("microdata", _microdata_in, place.microdata, place.path)
    elif place.script is not None or place.after is not None:
        yield _script_finder(place.script or ANY_SCRIPT, place.after, place.path)
    elif place.path is not None:
        yield _JsonFinder(lambda scope: (scope.record,), place.path, f"path {place.path}")
    if place.url is not None:
        yield _UrlFinder(place.url)


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
        here = _next_element(here)
        if here is None or here.mem_id not in {one.mem_id for one in select(here, tag)}:
            return []
        if inner:
            return select(here, inner) if number == len(steps) - 1 else []
    return [here] if here is not None else []


def _next_element(node: LexborNode | None) -> LexborNode | None:
    following = node.next if node is not None else None
    while following is not None and not following.is_element_node:
        following = following.next
    return following


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


class _CssFinder:
    """Finds elements by a CSS selector."""

    __slots__ = ("_css", "_read", "origin")

    def __init__(self, selector: str) -> None:
        self._css, attribute = split_selector(selector)
        self._read = node_reader(attribute)
        self.origin = f"css {selector}"

    def first(self, scope: Scope) -> Any:
        if not self._css or self._css.startswith("+"):
            node = next(iter(select_nodes(scope.page, scope.node, self._css)), None)
        else:
            node = scope.page.selectors.first(scope.node, self._css)
        return (self._read(node) or None) if node is not None else None

    def all(self, scope: Scope) -> list[Any]:
        nodes = select_nodes(scope.page, scope.node, self._css)
        return [value for node in nodes if (value := self._read(node))]


class _JsonFinder:
    """Applies a path to JSON objects; the first object with a result is used."""

    def __init__(self, roots: Callable[[Scope], Iterable[Any]], path: str, origin: str) -> None:
        self._roots = roots
        self._path = compile_path(path)
        self.origin = origin

    def first(self, scope: Scope) -> Any:
        return next(self._results(scope), None)

    def all(self, scope: Scope) -> list[Any]:
        lists = (value if isinstance(value, list) else [value] for value in self._results(scope))
        return [one for values in lists for one in values if one not in _EMPTY]

    def _results(self, scope: Scope) -> Iterator[Any]:
        for root in self._roots(scope):
            try:
                value = self._path.search(root)
            except JMESPathError:
                continue  # a function in the path does not accept this value
            if value not in _EMPTY:
                yield value


class _OpenGraphFinder:
    """Finds an Open Graph property of the page."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.origin = f"open-graph {name}"

    def first(self, scope: Scope) -> Any:
        return next(iter(self.all(scope)), None)

    def all(self, scope: Scope) -> list[Any]:
        return scope.page.open_graph.get(self._name, [])


class _UrlFinder:
    """Matches a pattern in the item's URL."""

    def __init__(self, pattern: str) -> None:
        self._pattern = user_pattern(pattern)
        self.origin = f"address {pattern}"

    def first(self, scope: Scope) -> Any:
        found = self._pattern.search(scope.url)
        return self._pattern.first_group(found) if found else None

    def all(self, scope: Scope) -> list[Any]:
        group = self._pattern.first_group
        return [value for m in self._pattern.finditer(scope.url) if (value := group(m))]


def _microdata_in(scope: Scope) -> Iterable[dict[str, Any]]:
    node = scope.node if isinstance(scope.node, LexborNode) else None
    return scope.page.microdata.within(node)


def _typed_finder(
    name: str,
    objects: Callable[[Scope], Iterable[dict[str, Any]]],
    text: str,
    path: str | None,
) -> _JsonFinder:
    """Return the finder of a schema.org type and a path in objects of that type."""
    kind, _, rest = text.partition(".")

    def roots(scope: Scope) -> Iterator[Any]:
        return (one for one in objects(scope) if _has_type(one, kind))

    origin = f"{name} {text}" + (f" {path}" if path else "")
    return _JsonFinder(roots, path or rest or "@", origin)


def _has_type(found: dict[str, Any], kind: str) -> bool:
    types = found.get("@type")
    named = types if isinstance(types, list) else [types]
    return any(isinstance(one, str) and re.split(r"[/:#]", one)[-1] == kind for one in named)


def _script_finder(css: str, after: str | None, path: str | None) -> _JsonFinder:
    pattern = user_pattern(after) if after is not None else None
    origin = " ".join(part for part in ("script", css, after, path) if part)
    return _JsonFinder(lambda scope: scope.page.scripts(css, pattern), path or "@", origin)


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


def with_href(selector: str) -> str:
    """Return the selector with the attribute @href unless it names another."""
    return selector if split_selector(selector)[1] else f"{selector}@href"


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
                link = read(found) or (None if name else _inner_link(found))
                url = absolute_url(scope.base, link) if link else None
                if url is not None and url not in seen:
                    seen.add(url)
                    yield found, url
            if seen:
                return


def _inner_link(node: LexborNode) -> str | None:
    """Return the link inside a heading or a card that is not a link itself."""
    link = node.css_first("a[href]")
    return link.attributes.get("href") if link is not None else None
