"""Schema of an HTML manifest: where discovery starts, how items are found, what a page holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from longline.config.expressions import JsonPath, Pattern, fill, names_in
from longline.config.validation import StrictModel, invalid, one_or_several, short_for
from longline.http.browser.manifest import BrowserSpec
from longline.sources.html.crawl import Crawl, is_on_domain
from longline.sources.html.fields import FieldLike, Fields, FieldSpec
from longline.sources.html.pagination import ClickPages, MorePages, Pagination
from longline.sources.html.places import Css, Selector, Selectors, check_css
from longline.sources.html.requests import RequestSpec
from longline.sources.manifest import Manifest, check_url, check_url_with_defaults
from longline.sources.parsing.numbers import Locale

Scalar = str | int | float
MAX_START_URLS = 1_000_000
"""More start URLs than this are a mistake in the ranges."""
_SCHEMES = ("http://", "https://", "{")
_IN_BROWSER = ("browser", "auto")
_ITEM_SOURCES = ("links", "elements", "records", "sitemap")
_PAGE_NAMES = frozenset({"start", "page", "offset", "cursor"})


class Range(StrictModel):
    """Whole numbers from one to another, both included: {from: 0, to: 90, step: 10}."""

    first: int | str = Field(alias="from")
    last: int | str = Field(alias="to")
    step: int = Field(default=1, ge=1)
    digits: int = Field(default=1, ge=1, le=40)
    """Minimum number of digits: 5 makes 00001."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if isinstance(self.first, int) and isinstance(self.last, int) and self.first > self.last:
            raise invalid(f"the range from {self.first} to {self.last} is empty")
        return self

    def names(self) -> list[str]:
        """Return the parameters that the ends refer to."""
        return [name for end in (self.first, self.last) for name in names_in(str(end))]

    def values(self, parameters: Mapping[str, Any]) -> range:
        """Return the numbers; raise ValueError if an end is not an integer."""
        first, last = (int(fill(str(end), parameters)) for end in (self.first, self.last))
        if (last - first) // self.step >= MAX_START_URLS:
            raise ValueError(f"a range has more than {MAX_START_URLS:,} numbers")
        return range(first, last + 1, self.step)


def _values_kind(value: Any) -> str | None:
    if isinstance(value, Mapping | Range):
        return "range"
    return "list" if isinstance(value, list | tuple) and value else None


_Values = Annotated[
    Annotated[Range, Tag("range")] | Annotated[tuple[Scalar, ...], Tag("list")],
    Discriminator(
        _values_kind,
        custom_error_type="each",
        custom_error_message="write a list of values, or a range such as {{from: 1, to: 10}}",
    ),
]


class Start(RequestSpec):
    """A start URL, or one for each combination of the values of its names, and how it is sent."""

    url: str
    each: dict[str, _Values] = Field(default_factory=dict)
    """Values of the names in the URL: a list, or {from: 1, to: 10}."""

    @field_validator("url")
    @classmethod
    def _check_start_url(cls, url: str) -> str:
        if not url.startswith(_SCHEMES):
            raise invalid("a URL begins with http:// or https://, or with a parameter: {base_url}/")
        return check_url(url)

    @model_validator(mode="after")
    def _check_each(self) -> Self:
        used = {*names_in(self.url), *self.names()}
        for name in self.each:
            if name not in used:
                raise invalid(f"{{{name}}} is not in the URL, so each.{name} has no effect")
        if all(not isinstance(one, Range) or not one.names() for one in self.each.values()):
            try:
                self._values({})
            except ValueError as error:
                raise invalid(str(error)) from None
        return self

    def _values(self, parameters: Mapping[str, Any]) -> list[Sequence[Scalar]]:
        """Return the values of each name; raise ValueError if they make too many URLs."""
        values: list[Sequence[Scalar]] = [
            one.values(parameters) if isinstance(one, Range) else one for one in self.each.values()
        ]
        if (count := math.prod(map(len, values))) > MAX_START_URLS:
            raise ValueError(f"these are {count:,} URLs; the maximum is {MAX_START_URLS:,}")
        return values

    def unknown_name(self, parameters: Mapping[str, Any]) -> str | None:
        """Return a name that is neither a parameter nor in `each`; None if there is none."""
        ranges = [one for one in self.each.values() if isinstance(one, Range)]
        own = [*names_in(self.url), *self.names()]
        for name in [*own, *(name for one in ranges for name in one.names())]:
            if name not in parameters and name not in self.each:
                return name
        return None

    def urls(self, parameters: Mapping[str, Any]) -> Iterator[str]:
        """Yield every URL, the last name first; raise ValueError if there are too many."""
        return (url for url, _ in self.requests(parameters))

    def requests(
        self, parameters: Mapping[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Yield every URL and how it is requested, None for GET; raise ValueError as `urls`."""
        for values in product(*self._values(parameters)):
            named = {
                name: f"{value:0{each.digits}}" if isinstance(each, Range) else value
                for (name, each), value in zip(self.each.items(), values, strict=True)
            }
            known = {**parameters, **named}
            sent = None if self.is_plain else self.filled(known)
            yield fill(self.url, known, in_url=True), sent


def _as_links(value: Any) -> Any:
    return {"links": [value]} if isinstance(value, str) else value


def _as_sequence(value: Any) -> Any:
    return [value] if isinstance(value, str | Mapping) else value


class Items(StrictModel):
    """How items are found on an index page or in a sitemap."""

    links: Selectors | None = None
    """Links to the pages of items."""
    elements: Css | None = None
    """Elements that are items: with `link` their page is read, else the element is the item."""
    link: Selector | None = None
    """In an element, the link to the page of its item."""
    records: JsonPath | None = None
    """Path of the records in the JSON of a script; fields read them with `path`."""
    script: Css | None = None
    """With `records`: the selector of the script, such as #__NEXT_DATA__."""
    after: Pattern | None = None
    """With `records`: the text before the JSON in the script, such as window.state *= *."""
    sitemap: (
        bool
        | Annotated[
            tuple[Annotated[str, AfterValidator(check_url)], ...],
            BeforeValidator(one_or_several),
        ]
    ) = False
    """True for the sitemaps in robots.txt, else /sitemap.xml; or URLs of sitemaps."""
    sitemaps: Pattern | None = None
    """Read only those sitemaps of an index or robots.txt whose URL matches."""
    match: Pattern | None = None
    """Only URLs that match; alone, any link whose URL matches."""
    request: RequestSpec | None = None
    """How the page of an item is requested; {url}, {key} and fields of its element are known."""
    fields: Fields | None = None
    """With `link`: fields of the element itself, in addition to those of its page."""

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        ways = [name for name in _ITEM_SOURCES if getattr(self, name)]
        if len(ways) > 1:
            raise invalid(f"{' and '.join(ways)} cannot be combined; write one of them")
        if not ways and self.match is None:
            raise invalid("write how items are found: links, elements, records, sitemap or match")
        if self.records is not None and not (self.script or self.after):
            raise invalid("records are in a script of the page: write script or after, too")
        if self.records is None and (self.script or self.after):
            raise invalid("script and after belong to records: write records, too")
        if self.link is not None and not self.elements:
            raise invalid("link belongs to elements; write elements, too, or links instead")
        if self.fields is not None and self.link is None:
            raise invalid("fields of an element need link; without one, write fields at the top")
        if self.request is not None and self.are_elements:
            raise invalid("request is for the pages of items, and these items have none")
        if self.sitemaps is not None and not self.sitemap:
            raise invalid("sitemaps selects sitemaps of an index; write sitemap, too")
        return self

    @property
    def are_elements(self) -> bool:
        """Whether an item is complete on the page where it is found."""
        return self.records is not None or (self.elements is not None and self.link is None)


class Follow(StrictModel):
    """Links from index pages to other index pages of the same host: categories, archives."""

    links: Selectors = ("a@href",)
    match: Pattern | None = None
    """Only URLs that match."""
    depth: int = Field(default=5, ge=1, le=100)
    """Maximum number of links from a start URL."""


class HtmlManifest(Manifest):
    """A source of HTML pages."""

    manifest: Literal["html"] = "html"
    start: Annotated[
        tuple[Annotated[Start, short_for("url")], ...], BeforeValidator(_as_sequence)
    ] = ()
    """Start URLs: index pages, or without `items` the pages of the items themselves."""
    items: Annotated[Items, BeforeValidator(_as_links)] | None = None
    key: FieldLike | None = None
    """What identifies an item: a selector in its link or element, or `url` with a pattern.

    Default: the path of its URL; for elements, a hash of their fields.
    """
    follow: Annotated[
        tuple[Annotated[Follow, BeforeValidator(_as_links)], ...], BeforeValidator(_as_sequence)
    ] = ()
    pages: Pagination | None = None
    most_pages: int = Field(default=10_000, ge=1)
    """Maximum number of index pages per run."""
    crawl: Crawl | None = None
    """Follow links from page to page by rules, in place of items, follow and pages."""
    fields: Fields = Field(min_length=1)
    may_be_empty: bool = False
    """Allow a run that finds no items; default: it fails."""
    locale: Locale | None = None
    """How numbers and dates are written on this site; fields can override it."""
    browser: BrowserSpec | None = None
    """Settings for pages that are opened in a browser."""

    @field_validator("expects")
    @classmethod
    def _check_expects(cls, expects: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_css(one) for one in expects)

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        has_sitemap = self.items is not None and isinstance(self.items.sitemap, tuple)
        if not self.start and not has_sitemap:
            raise invalid("start is missing: write the URL of the first page")
        if self.items is None and self.crawl is None and (self.follow or self.pages):
            raise invalid("follow and pages need items: how items are found on those pages")
        if self.items is not None and self.items.sitemap and (self.follow or self.pages):
            raise invalid("a sitemap lists all items; remove follow and pages")
        has_body = any(not one.is_plain for one in self.start) or (
            self.items is not None and self.items.request is not None
        )
        if has_body and (self.transport in _IN_BROWSER or self.crawl is not None):
            raise invalid("a request with a method or body needs transport: http, and no crawl")
        if isinstance(self.pages, ClickPages) and self.transport not in _IN_BROWSER:
            raise invalid("pages with click need a browser: write transport: browser")
        return self

    @model_validator(mode="after")
    def _check_captures(self) -> Self:
        captures = [name for name, one in self.fields.items() if one.is_capture]
        if not captures:
            inner = {name: one.fields or {} for name, one in self.fields.items()}
            nested = {**inner, "items": (self.items and self.items.fields) or {}}
            captures = [
                name for fields in nested.values() for name, one in fields.items() if one.is_capture
            ]
            if captures:
                raise invalid(f"{captures[0]} is of the whole page: write it in fields at the top")
            return self
        kind = self.fields[captures[0]].type
        if self.transport not in _IN_BROWSER:
            raise invalid(f"a {kind} needs a browser: write transport: browser")
        if self.items is not None and self.items.are_elements:
            raise invalid(f"a {kind} needs a page of its own, and these items are elements")
        return self

    @model_validator(mode="after")
    def _check_crawl(self) -> Self:
        if self.crawl is None:
            return self
        for name in ("items", "follow", "pages", "most_pages"):
            if name in self.model_fields_set:
                instead = "max_pages" if name == "most_pages" else name
                inside = "" if name == "pages" else f"; write {instead} in crawl"
                raise invalid(f"{name} cannot be combined with crawl{inside}")
        if self.transport == "auto":
            raise invalid("a crawl needs transport: http or transport: browser, not auto")
        for start in self.start:
            is_known = not any(names_in(start.url))
            if is_known and self.crawl.domains and not is_on_domain(start.url, self.crawl.domains):
                raise invalid(f"domains of crawl do not cover the start {start.url}; add its host")
        return self

    @model_validator(mode="after")
    def _check_template_names(self) -> Self:
        for name, setting in self._template_names():
            if name not in self.parameters:
                own = ("url", "key", *self._element_fields()) if setting == "items" else ()
                known = ", ".join((*own, *self.parameters)) or "none"
                raise invalid(f"{{{name}}} in {setting} is not a parameter; known: {known}")
        for start in self.start:
            check_url_with_defaults(start.url, self.parameters)
        return self

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.items and self.items.fields and (both := self.items.fields.keys() & self.fields):
            raise invalid(f"{min(both)} is in fields and in items.fields; rename one of them")
        known = {*self.fields, *((self.items and self.items.fields) or {})}
        for setting in ("volatile", "usually_empty"):
            unknown = getattr(self, setting) - known
            if unknown and not self.pipeline:  # a map may make new names
                listed = ", ".join(known)
                raise invalid(f"{min(unknown)} in {setting} is not a field; known: {listed}")
        if self.key is not None and self.key.fields is not None:
            raise invalid("key is one value, not an object")
        has_element = self.items is not None and not self.items.sitemap
        if self.key is not None and not has_element and any(p.url is None for p in self.key.places):
            raise invalid("here the key can only be read from the URL: key: {url: /p/(.+)}")
        has_more_records = isinstance(self.pages, MorePages) and self.pages.records is not None
        if has_more_records and not (self.items and self.items.are_elements):
            raise invalid("records are items themselves, so items must be elements without a link")
        has_records = self.items is not None and self.items.records is not None
        if not (has_records or has_more_records) and (name := _bare_path(self.fields)):
            raise invalid(
                f"path of {name} needs script, json_ld or microdata, unless pages have records"
            )
        return self

    def _element_fields(self) -> Iterable[str]:
        return (self.items and self.items.fields) or ()

    def _template_names(self) -> Iterator[tuple[str, str]]:
        for start in self.start:
            if name := start.unknown_name(self.parameters):
                yield name, "start"
        if self.items and self.items.request is not None:
            known = {"url", "key", *self._element_fields()}
            yield from ((n, "items") for n in self.items.request.names() if n not in known)
        sitemaps = self.items.sitemap if self.items else False
        for url in sitemaps if isinstance(sitemaps, tuple) else ():
            yield from ((name, "items.sitemap") for name in names_in(url))
        for text in self.pages.templates() if self.pages else ():
            yield from ((n, "pages.url") for n in names_in(text) if n not in _PAGE_NAMES)
        for text in self.browser.templates() if self.browser else ():
            yield from ((name, "browser") for name in names_in(text))


def _bare_path(fields: Mapping[str, FieldSpec]) -> str | None:
    """Return the first field with a path that has no JSON to apply to."""
    for name, field in fields.items():
        if field.fields is not None and (inner := _bare_path(field.fields)):
            return f"{name}.{inner}"
        for place in field.places:
            json_places = (place.script, place.after, place.json_ld, place.microdata)
            if place.path is not None and not any(json_places):
                return name
    return None
