"""A source of HTML pages in a file: where it begins, how items are found, what a page holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from longline.config.manifests.addresses import check_address, check_with_defaults
from longline.config.manifests.api_paths import JsonPath
from longline.config.manifests.base import Manifest
from longline.config.manifests.browser import BrowserSpec
from longline.config.manifests.fields import (
    Css,
    FieldLike,
    Fields,
    FieldSpec,
    Locale,
    Pattern,
    Selector,
    Selectors,
    check_css,
    one_or_several,
)
from longline.config.manifests.html_pages import ClickPages, MorePages, Pagination
from longline.config.manifests.html_start import Start
from longline.config.manifests.templates import names_in
from longline.config.written import Written, wrong

_WAYS = ("links", "elements", "records", "sitemap")
_PAGE_NAMES = frozenset({"start", "page", "offset", "cursor"})
_MOST_PAGES = 10_000


def _links(value: Any) -> Any:
    return {"links": [value]} if isinstance(value, str) else value


def _many_links(value: Any) -> Any:
    return [_links(value)] if isinstance(value, str | Mapping) else value


class Items(Written):
    """How items are found on an index page, or in a sitemap."""

    links: Selectors | None = None
    """Links to the pages of items."""
    elements: Css | None = None
    """Elements of which each is an item: with `link` its page is read, else it is all there is."""
    link: Selector | None = None
    """In an element, the link to the page of its item."""
    records: JsonPath | None = None
    """Where the list of records is in the JSON of a script; fields read them with `path`."""
    script: Css | None = None
    """With `records`: the selector of the script, such as #__NEXT_DATA__."""
    after: Pattern | None = None
    """With `records`: what is before the JSON in the script, such as window.state *= *."""
    sitemap: (
        bool
        | Annotated[
            tuple[Annotated[str, AfterValidator(check_address)], ...],
            BeforeValidator(one_or_several),
        ]
    ) = False
    """True for the sitemaps that robots.txt lists, else /sitemap.xml; or addresses of sitemaps."""
    sitemaps: Pattern | None = None
    """Of the sitemaps of an index or of robots.txt, read those whose address matches."""
    match: Pattern | None = None
    """Only addresses that match; alone, any link whose address does."""
    fields: Fields | None = None
    """With `link`: what the element itself tells of the item, beside its page."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in _WAYS if getattr(self, name)]
        if len(ways) > 1:
            raise wrong(f"{' and '.join(ways)} are different ways to find items; write one of them")
        if not ways and self.match is None:
            raise wrong("say how items are found: links, elements, records, sitemap or match")
        if self.records is not None and not (self.script or self.after):
            raise wrong("records are in a script of the page: write script, or after, too")
        if self.records is None and (self.script or self.after):
            raise wrong("script and after say where records are: write records, too")
        if self.link is not None and not self.elements:
            raise wrong("link is looked for in elements; write elements, too, or links instead")
        if self.fields is not None and self.link is None:
            raise wrong("fields of an element go with link; without one, write fields at the top")
        if self.sitemaps is not None and not self.sitemap:
            raise wrong("sitemaps chooses among those of an index; write sitemap, too")
        return self

    @property
    def are_elements(self) -> bool:
        """Whether an item is complete on the page where it is found."""
        return self.records is not None or (self.elements is not None and self.link is None)


class Follow(Written):
    """Links from index pages to other index pages of the same host: categories, archives."""

    links: Selectors = ("a@href",)
    match: Pattern | None = None
    """Only addresses that match."""
    depth: int = Field(default=5, ge=1, le=100)
    """How many links away from a start address."""


class HtmlManifest(Manifest):
    """A source of HTML pages."""

    manifest: Literal["html"] = "html"
    start: Annotated[
        tuple[
            Annotated[
                Start, BeforeValidator(lambda one: {"url": one} if isinstance(one, str) else one)
            ],
            ...,
        ],
        BeforeValidator(lambda value: [value] if isinstance(value, str | Mapping) else value),
    ] = ()
    """Where it begins: index pages, or without `items` the pages of the items themselves."""
    items: Annotated[Items, BeforeValidator(_links)] | None = None
    key: FieldLike | None = None
    """What names an item: a selector in its link or element, or `url` with a pattern.

    Without it: the path of its address; of elements, a hash of their fields.
    """
    follow: Annotated[
        tuple[Annotated[Follow, BeforeValidator(_links)], ...], BeforeValidator(_many_links)
    ] = ()
    pages: Pagination | None = None
    most_pages: int = Field(default=_MOST_PAGES, ge=1)
    """No run reads more index pages than this."""
    fields: Fields = Field(min_length=1)
    may_be_empty: bool = False
    """Whether finding no item at all is fine; otherwise it is taken for a failure."""
    locale: Locale | None = None
    """How numbers and dates are written on this site, where a field says nothing else."""
    browser: BrowserSpec | None = None
    """What to do on pages that are opened in a browser."""

    @field_validator("expects")
    @classmethod
    def _selectors(cls, expects: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_css(one) for one in expects)

    @model_validator(mode="after")
    def _begins_somewhere(self) -> Self:
        has_sitemap = self.items is not None and isinstance(self.items.sitemap, tuple)
        if not self.start and not has_sitemap:
            raise wrong("start is missing: write the address of the first page")
        if self.items is None and (self.follow or self.pages):
            raise wrong("follow and pages need items: say how items are found on those pages")
        if self.items is not None and self.items.sitemap and (self.follow or self.pages):
            raise wrong("a sitemap lists all items; follow and pages do not go with it")
        return self

    @model_validator(mode="after")
    def _clicks_in_a_browser(self) -> Self:
        if isinstance(self.pages, ClickPages) and self.transport == "http":
            raise wrong("pages with click need a browser: write transport: browser")
        return self

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for name, where in self._names():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise wrong(f"{{{name}}} in {where} is not a parameter; there are: {known}")
        for start in self.start:
            check_with_defaults(start.url, self.parameters)
        return self

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.items and self.items.fields and (both := self.items.fields.keys() & self.fields):
            raise wrong(f"{min(both)} stands in fields and in items.fields; name them differently")
        known = {*self.fields, *((self.items and self.items.fields) or {})}
        if not self.pipeline and (stray := self.volatile - known):  # a map may make new names
            raise wrong(f"{min(stray)} in volatile is not a field; there are: {', '.join(known)}")
        if not self.pipeline and (stray := self.usually_empty - known):
            listed = ", ".join(known)
            raise wrong(f"{min(stray)} in usually_empty is not a field; there are: {listed}")
        if self.key is not None and self.key.fields is not None:
            raise wrong("key is one value, not an object")
        has_element = self.items is not None and not self.items.sitemap
        if self.key is not None and not has_element and any(p.url is None for p in self.key.places):
            raise wrong("here a key can only be read from the address: key: {url: /p/(.+)}")
        if self._has_more_records and not (self.items and self.items.are_elements):
            raise wrong("records are items themselves, so items must be elements without a link")
        if not self._has_records and (name := _with_lone_path(self.fields)):
            raise wrong(
                f"path of {name} needs script, json_ld or microdata, unless pages have records"
            )
        return self

    @property
    def _has_records(self) -> bool:
        is_in_script = self.items is not None and self.items.records is not None
        return is_in_script or self._has_more_records

    @property
    def _has_more_records(self) -> bool:
        return isinstance(self.pages, MorePages) and self.pages.records is not None

    def _names(self) -> Iterator[tuple[str, str]]:
        for start in self.start:
            if name := start.unknown(self.parameters):
                yield name, "start"
        sitemaps = self.items.sitemap if self.items else False
        for address in sitemaps if isinstance(sitemaps, tuple) else ():
            yield from ((name, "items.sitemap") for name in names_in(address))
        for text in self.pages.texts() if self.pages else ():
            yield from ((n, "pages.url") for n in names_in(text) if n not in _PAGE_NAMES)
        for text in self.browser.texts() if self.browser else ():
            yield from ((name, "browser") for name in names_in(text))


def _with_lone_path(fields: Mapping[str, FieldSpec]) -> str | None:
    for name, field in fields.items():
        if field.fields is not None and (inner := _with_lone_path(field.fields)):
            return f"{name}.{inner}"
        for place in field.places:
            within = (place.script, place.after, place.json_ld, place.microdata)
            if place.path is not None and not any(within):
                return name
    return None
