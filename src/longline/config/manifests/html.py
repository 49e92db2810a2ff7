"""A source of HTML pages in a file: where it begins, how items are found, what a page holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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

from longline.config.identity import Headers
from longline.config.manifests.base import (
    Manifest,
    check_address,
    check_with_defaults,
    fill,
    names_in,
)
from longline.config.manifests.browser import BrowserSpec, Selector
from longline.config.manifests.fields import (
    Css,
    FieldLike,
    Fields,
    FieldSpec,
    Locale,
    Pattern,
    Selectors,
    check_css,
    check_selector,
    one_or_several,
)
from longline.config.manifests.fields import Selector as FieldsSelector
from longline.config.manifests.json_paths import JsonPath
from longline.config.written import Written, wrong

# ---------------- How a list goes on: the next link, a number, an offset, or a load-more address

KINDS = ("next", "numbered", "offset", "more", "click")
MOST_PAGES = 1000


class Pages(Written):
    """What all kinds have."""

    until: Literal["empty", "last"] = "empty"
    """A list ends with a page on which nothing new stands; or only with its `last` page."""
    most_pages: int = Field(default=MOST_PAGES, ge=1)
    """No list is read further than this."""

    def texts(self) -> tuple[str, ...]:
        """Return every text in which names may stand."""
        return ()

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.until == "last" and getattr(self, "last", None) is None:
            raise wrong("until: last needs a last page: its number, or the selector of its number")
        return self


class NextPages(Pages):
    """Each page links to the next one."""

    kind: Literal["next"] = "next"
    css: Selectors
    """The link to the next page; where it is missing, the list ends."""


class _Counted(Pages):
    """Pages whose addresses are known beforehand."""

    url: Annotated[str, AfterValidator(check_address)] | None = None
    """The address of a page; `{start}` stands for that of the list."""
    param: str | None = None
    """Or the parameter of the list's address that says which page."""

    def texts(self) -> tuple[str, ...]:
        return (self.url,) if self.url else ()

    def _check_address(self, name: str) -> None:
        if self.url is not None and self.param is not None:
            raise wrong("url and param are two ways to say the same; write one of them")
        if self.url is not None and name not in names_in(self.url):
            raise wrong(f"url must hold {{{name}}}, for example {{start}}?{name}={{{name}}}")


def _last(value: int | str) -> int | str:
    return value if isinstance(value, int) else check_selector(value)


class NumberedPages(_Counted):
    """Pages with numbers; the list's own address is the first."""

    kind: Literal["numbered"] = "numbered"
    first: int = 1
    """The number of the first page."""
    step: int = Field(default=1, ge=1)
    last: Annotated[int | str, AfterValidator(_last)] | None = None
    """The number of the last page, or the selector of elements that hold page numbers."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self._check_address("page")
        return self


class OffsetPages(_Counted):
    """Pages that begin with the n-th entry; the list's own address is the first."""

    kind: Literal["offset"] = "offset"
    size: int = Field(ge=1)
    """How many entries a page has."""
    first: int = 0
    last: Annotated[int, Field(ge=0)] | None = None
    """The offset of the last page."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        self._check_address("offset")
        return self


class MorePages(Pages):
    """After the list's own page, an address that gives more of it, as HTML or as JSON."""

    kind: Literal["more"] = "more"
    url: Annotated[str, AfterValidator(check_address)]
    """The address, with `{page}`, `{offset}` or `{cursor}`; `{start}` is that of the list."""
    first: int | None = None
    """The first page or offset to ask for; 2, or `size`, unless said otherwise."""
    size: int = Field(default=1, ge=1)
    """By how much an offset grows."""
    links: JsonPath | None = None
    """In a JSON answer, the addresses of items: items[].url."""
    html: JsonPath | None = None
    """In a JSON answer, a piece of HTML; it is read as a page of the list."""
    records: JsonPath | None = None
    """In a JSON answer, the records themselves; fields read them with `path`."""
    cursor: JsonPath | None = None
    """In a JSON answer, the cursor of the next one; where it is missing, the list ends."""
    cursor_css: Selectors | None = None
    """In an HTML answer, the same."""
    first_cursor: Selectors | None = None
    """On the list's own page, the first cursor; without it the first one asked for is empty."""
    headers: Headers = Field(default_factory=dict)
    """Headers of these requests alone, such as X-Requested-With."""

    def texts(self) -> tuple[str, ...]:
        return (self.url,)

    @property
    def is_json(self) -> bool:
        """Whether the answers are JSON."""
        return any(one is not None for one in (self.links, self.html, self.records, self.cursor))

    @model_validator(mode="after")
    def _sound(self) -> Self:
        moving = {"page", "offset", "cursor"} & set(names_in(self.url))
        if not moving:
            raise wrong("url must hold {page}, {offset} or {cursor}, or it never changes")
        if "cursor" in moving and not (self.cursor or self.cursor_css):
            raise wrong("{cursor} is in url, so cursor or cursor_css must say where the next is")
        told = [name for name in ("links", "html", "records") if getattr(self, name) is not None]
        if len(told) > 1:
            raise wrong(f"{' and '.join(told)} are different answers; write one of them")
        if self.cursor is not None and not told:
            raise wrong("a JSON answer needs links, html or records: what in it is the list")
        return self


class ClickPages(Pages):
    """A button shows the next page, in a browser; it may load a page or replace the list."""

    kind: Literal["click"] = "click"
    click: Selector
    """The button; where it is missing or disabled, or changes nothing, the list ends."""


def _kind_of(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


def _short_form(value: Any) -> Any:
    if isinstance(value, Mapping) and "click" in value and "kind" not in value:
        return {**value, "kind": "click"}
    return {"kind": "next", "css": [value]} if isinstance(value, str) else value


Pagination = Annotated[
    Annotated[
        Annotated[NextPages, Tag("next")]
        | Annotated[NumberedPages, Tag("numbered")]
        | Annotated[OffsetPages, Tag("offset")]
        | Annotated[MorePages, Tag("more")]
        | Annotated[ClickPages, Tag("click")],
        Discriminator(
            _kind_of,
            custom_error_type="pages_kind",
            custom_error_message=f"kind must be one of {', '.join(KINDS)}",
        ),
    ],
    BeforeValidator(_short_form),
]
"""How a list goes on; a text alone is the selector of the link to the next page.

`{click: SELECTOR}` alone is a button in a browser.
"""


# ---------------- Where a source begins: addresses, with parameters and ranges

Scalar = str | int | float
_SCHEMES = ("http://", "https://", "{")
MOST_ADDRESSES = 1_000_000
"""A source with more of them than this has a mistake in its ranges, or needs another way in."""


class Range(Written):
    """Whole numbers from one to another, both included: {from: 1, to: 10}."""

    first: int | str = Field(alias="from")
    last: int | str = Field(alias="to")
    step: int = 1
    digits: int = Field(default=0, ge=0, le=40)
    """Write numbers with so many digits at least: 5 makes 00001."""

    @model_validator(mode="before")
    @classmethod
    def _know_every_name(cls, values: Any) -> Any:
        for name in values if isinstance(values, Mapping) else ():
            if name not in {"from", "to", "step", "digits"}:
                raise wrong(
                    f"there is no setting {str(name)!r} here; a range has from, to, step, digits"
                )
        return values

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if self.step == 0:
            raise wrong("step must not be 0")
        if isinstance(self.first, int) and isinstance(self.last, int) and not self._numbers({}):
            raise wrong(
                f"there is nothing from {self.first} to {self.last} in steps of {self.step}"
            )
        return self

    def names(self) -> list[str]:
        """Return the parameters that the ends refer to."""
        ends = (end for end in (self.first, self.last) if isinstance(end, str))
        return [name for end in ends for name in names_in(end)]

    def values(self, parameters: Mapping[str, Any]) -> Iterator[Scalar]:
        """Yield what the range holds.

        Raises:
            ValueError: an end is no whole number.
        """
        for number in self._numbers(parameters):
            yield f"{number:0{self.digits}}" if self.digits else number

    def size(self, parameters: Mapping[str, Any]) -> int:
        """Return how many numbers the range holds.

        Raises:
            ValueError: an end is no whole number.
        """
        numbers = self._numbers(parameters)
        # `len` knows no more than 64 bits.
        return max(
            0, (numbers.stop - numbers.start - (1 if self.step > 0 else -1)) // self.step + 1
        )

    def _numbers(self, parameters: Mapping[str, Any]) -> range:
        first, last = (
            end if isinstance(end, int) else int(fill(end, parameters))
            for end in (self.first, self.last)
        )
        return range(first, last + (1 if self.step > 0 else -1), self.step)


def _form(value: Any) -> str | None:
    if isinstance(value, Mapping | Range):
        return "range"
    return "list" if isinstance(value, list | tuple) and value else None


_Values = Annotated[
    Annotated[Range, Tag("range")] | Annotated[tuple[Scalar, ...], Tag("list")],
    Discriminator(
        _form,
        custom_error_type="each",
        custom_error_message="write a list of values, or a range such as {{from: 1, to: 10}}",
    ),
]


class Start(Written):
    """One address, or one for each value of its names."""

    url: str
    each: dict[str, _Values] = Field(default_factory=dict)
    """What a name in the address stands for, one after the other: a list, or {from: 1, to: 10}."""

    @field_validator("url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        if not url.startswith(_SCHEMES):
            raise wrong(
                "an address begins with http:// or https://, or with a parameter: {base_url}/"
            )
        return check_address(url)

    @model_validator(mode="after")
    def _uses_each(self) -> Self:
        for name in self.each:
            if name not in names_in(self.url):
                raise wrong(f"{{{name}}} is not in the address, so each.{name} changes nothing")
        if all(not isinstance(one, Range) or not one.names() for one in self.each.values()):
            try:
                self._check_count({})
            except ValueError as error:
                raise wrong(str(error)) from None
        return self

    def _check_count(self, parameters: Mapping[str, Any]) -> None:
        sizes = (
            one.size(parameters) if isinstance(one, Range) else len(one)
            for one in self.each.values()
        )
        if (count := math.prod(sizes)) > MOST_ADDRESSES:
            message = f"these are {count:,} addresses, and more than {MOST_ADDRESSES:,} are refused"
            raise ValueError(message)

    def unknown(self, parameters: Mapping[str, Any]) -> str | None:
        """Return a name that nobody explains, or None."""
        ranges = [one for one in self.each.values() if isinstance(one, Range)]
        for name in [*names_in(self.url), *(name for one in ranges for name in one.names())]:
            if name not in parameters and name not in self.each:
                return name
        return None

    def addresses(self, parameters: Mapping[str, Any]) -> Iterator[str]:
        """Yield every address, the last name changing fastest.

        Raises:
            ValueError: an end of a range is no whole number, or they are too many.
        """
        self._check_count(parameters)
        for values in _combined(tuple(self.each.values()), parameters):
            named = dict(zip(self.each, values, strict=True))
            yield fill(self.url, {**parameters, **named}, in_address=True)


def _combined(
    sets: tuple[Range | tuple[Scalar, ...], ...], parameters: Mapping[str, Any]
) -> Iterator[tuple[Scalar, ...]]:
    """Yield every choice of one value from each set, and hold none of the sets in memory."""
    if not sets:
        yield ()
        return
    first = sets[0].values(parameters) if isinstance(sets[0], Range) else sets[0]
    for value in first:
        for others in _combined(sets[1:], parameters):
            yield (value, *others)


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
    link: FieldsSelector | None = None
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
