"""How a list goes on: the next link, a number, an offset, or a load-more address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from longline.config.identity import Headers
from longline.config.manifests.addresses import check_address
from longline.config.manifests.api_paths import JsonPath
from longline.config.manifests.browser_actions import Selector
from longline.config.manifests.fields import Selectors, check_selector
from longline.config.manifests.templates import names_in
from longline.config.written import Written, wrong

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
