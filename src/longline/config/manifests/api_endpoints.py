"""One endpoint of an API: what is asked, what is read of the answer, and what hangs below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from longline.config.identity import Headers
from longline.config.manifests.addresses import check_address
from longline.config.manifests.api_handlers import Handler, Statuses
from longline.config.manifests.api_incremental import Incremental
from longline.config.manifests.api_pages import ByCursor, ByGraphql, ByOffset, ByPage, Pagination
from longline.config.manifests.api_paths import Fields, JsonPath, Key, parents_named
from longline.config.manifests.templates import names_in
from longline.config.secrets import is_reference
from longline.config.written import Written, wrong

Plain = str | int | float | bool | None
Method = Literal["GET", "POST", "PUT", "PATCH"]
_BODILESS = ("GET",)


class Graphql(Written):
    """A query of GraphQL; it is sent with POST."""

    query: str = Field(min_length=1)
    """As it is: braces in it are its own."""
    variables: dict[str, Any] = Field(default_factory=dict)
    """Values for the query; `{name}` in them stands for a parameter."""
    keep_partial: bool = False
    """Keep the data of an answer that has errors besides; otherwise errors are failures."""


class Endpoint(Written):
    """Something that can be asked for. `{name}` in its texts stands for a parameter."""

    path: Annotated[str, AfterValidator(check_address)] = ""
    """Below base_url, or a whole address; `{parent.name}` stands for a field of the record
    above."""
    method: Method | None = None
    """GET; POST when there is a body."""
    query: dict[str, Plain | list[Plain]] = Field(default_factory=dict)
    headers: Headers = Field(default_factory=dict)
    body: Any = None
    body_as: Literal["json", "form"] = "json"
    graphql: Graphql | None = None
    accept: Statuses = ()
    """Statuses of 400 and more whose answers are read like any other."""

    records: JsonPath = "@"
    """Where the list of records stands in the answer."""
    key: Key | None = None
    url: JsonPath | None = None
    """Where a record says its own address, for people; else the address it was read from."""
    fields: Fields | None = None
    """What is kept of a record; without it, all of it."""
    pagination: Pagination | None = None
    incremental: Incremental | None = None
    handlers: tuple[Handler, ...] = ()
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Requests a second to this endpoint, when it must be slower than the rest."""

    parent: str | None = None
    """The endpoint above: this one is asked for once for each of its records."""
    collect: bool = True
    """False: its records are only the way to those below."""
    detail: str | None = None
    """The endpoint that knows more of each record: asked for once a record, joined to it."""
    embed: dict[str, str] = Field(default_factory=dict)
    """Names in the record, each with the endpoint whose records stand there as a list."""
    optional: bool = False
    """As a detail, or embedded: a record without it is kept, with a note."""

    @property
    def verb(self) -> str:
        """The method as it is sent."""
        has_body = self.body is not None or self.graphql is not None
        return self.method or ("POST" if has_body else "GET")

    @property
    def below(self) -> list[str]:
        """The endpoints that its records are completed with."""
        return [*([self.detail] if self.detail else []), *self.embed.values()]

    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield every text that may have names in braces, and where it stands."""
        yield ("path",), self.path
        yield from _texts(("headers",), self.headers)
        yield from _texts(("query",), self.query)
        yield from _texts(("body",), self.body)
        if self.graphql:
            yield from _texts(("graphql", "variables"), self.graphql.variables)

    def parent_names(self) -> list[str]:
        """Return the names of the parent that it refers to: `parent.id`."""
        said = [name for _, text in self.texts() for name in names_in(text)]
        of_parent = [name for name in said if name.startswith("parent.")]
        return [*of_parent, *parents_named(self.fields or {}, self.key or ())]

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if self.graphql and (self.body is not None or self.method not in {None, "POST"}):
            raise wrong("graphql is sent with POST and has a body of its own: leave both out")
        if self.body is not None and self.method in _BODILESS:
            raise wrong("a body is not sent with GET; say method: POST, or write it under query")
        if self.body_as == "form" and not isinstance(self.body, Mapping):
            raise wrong("a form has names and values: body: {name: value}")
        return self

    @model_validator(mode="after")
    def _no_secrets(self) -> Self:
        for name, value in self.query.items():
            if isinstance(value, str) and is_reference(value):
                raise wrong(f"{name} in query holds a secret: write it under auth, kind: query")
        return self

    @model_validator(mode="after")
    def _fitting_pages(self) -> Self:
        pages = self.pagination
        into = getattr(pages, "into", None)
        if isinstance(pages, ByGraphql) and not self.graphql:
            raise wrong("pagination of kind graphql needs graphql with a query")
        if into == "variables" and not self.graphql:
            raise wrong("into: variables needs graphql with a query")
        if into == "body" and not (self.body is None or isinstance(self.body, Mapping)):
            raise wrong("into: body needs a body of names and values")
        if into == "body" and (self.graphql or self.verb in _BODILESS):
            raise wrong("into: body needs a body: say method: POST; for graphql into: variables")
        if isinstance(pages, ByPage | ByOffset | ByCursor):
            _check_size(pages)
        return self

    @model_validator(mode="after")
    def _fitting_start(self) -> Self:
        if self.incremental and not self.incremental.parameter and not self._says_since():
            raise wrong(
                "incremental needs the name of the query parameter (parameter: updated_since), "
                "or {since} where the beginning is to stand"
            )
        return self

    def _says_since(self) -> bool:
        return any("since" in names_in(text) for _, text in self.texts())


def _check_size(pages: ByPage | ByOffset | ByCursor) -> None:
    if pages.short_page_is_last and pages.size is None:
        raise wrong("short_page_is_last needs size: how many records a full page has")
    # An offset has a usual name for it, which says nothing about the size.
    if pages.size is None and pages.size_parameter and not isinstance(pages, ByOffset):
        raise wrong("size_parameter needs size: how many records to ask for")
    taken = {pages.parameter} if not isinstance(pages, ByCursor) else set()
    if pages.size_parameter in taken:
        raise wrong("parameter and size_parameter are two different ones")


def _texts(place: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts((*place, name), one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _texts((*place, number), one)
