"""How an API divides its lists into pages, and how the last one is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from longline.config.manifests.api_paths import JsonPath
from longline.config.written import Written

PAGINATIONS = ("page", "offset", "cursor", "link", "next", "graphql")
Into = Literal["query", "body", "variables"]


class Paging(Written):
    """What all kinds have in common: when it is over."""

    has_more: JsonPath | None = None
    """Where every answer says whether there are more pages: true or false."""
    total: JsonPath | None = None
    """Where every answer says how many records there are in all."""
    most_pages: int = Field(default=100_000, ge=1)
    """No more pages than this are asked for, whatever the API says."""


class Sized(Paging):
    """A kind that says how many records it wants with each page."""

    into: Into = "query"
    """Where the parameters go."""
    size: int | None = Field(default=None, ge=1)
    """Records asked for with each page; what the API likes best when not said."""
    size_parameter: str | None = Field(default=None, min_length=1)
    """The name of the parameter for it."""
    short_page_is_last: bool = False
    """A page with fewer records than `size` is the last; without it, an empty page is."""


class ByPage(Sized):
    """Pages by number."""

    kind: Literal["page"] = "page"
    parameter: str = Field(default="page", min_length=1)
    start: int = 1
    total_pages: JsonPath | None = None
    """Where every answer says how many pages there are."""


class ByOffset(Sized):
    """Pages by the number of records before them."""

    kind: Literal["offset"] = "offset"
    parameter: str = Field(default="offset", min_length=1)
    size_parameter: str | None = Field(default="limit", min_length=1)
    start: int = Field(default=0, ge=0)


class ByCursor(Sized):
    """Each answer has a cursor, which is sent to be given the next page."""

    kind: Literal["cursor"] = "cursor"
    path: JsonPath
    """Where the cursor stands; null or empty on the last page."""
    parameter: str = Field(default="cursor", min_length=1)


class ByLink(Paging):
    """The next page is named in the Link header, as rel=next (RFC 8288)."""

    kind: Literal["link"] = "link"
    rel: str = Field(default="next", min_length=1)


class ByNext(Paging):
    """Each answer has the address of the next page."""

    kind: Literal["next"] = "next"
    path: JsonPath
    """Where the address stands; null or empty on the last page."""


class ByGraphql(Paging):
    """Connections of GraphQL: `pageInfo` with `hasNextPage` and `endCursor`."""

    kind: Literal["graphql"] = "graphql"
    page_info: JsonPath
    """Where pageInfo stands, such as data.products.pageInfo."""
    variable: str = Field(default="after", min_length=1)
    """The variable of the query that takes the cursor."""


def _kind_of(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


Pagination = Annotated[
    Annotated[ByPage, Tag("page")]
    | Annotated[ByOffset, Tag("offset")]
    | Annotated[ByCursor, Tag("cursor")]
    | Annotated[ByLink, Tag("link")]
    | Annotated[ByNext, Tag("next")]
    | Annotated[ByGraphql, Tag("graphql")],
    Discriminator(
        _kind_of,
        custom_error_type="pagination_kind",
        custom_error_message=f"kind must be one of {', '.join(PAGINATIONS)}",
    ),
]
"""Any way to divide a list; `kind` says which."""
