"""How the pages of a manifest are requested, when not with GET: forms, multipart, JSON, GraphQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from longline.config.expressions import check_braces, fill_value, names_in
from longline.config.identity import Headers
from longline.config.validation import StrictModel, invalid

REQUEST = "request"
"""The name under which an item carries how its page is requested."""
_BODIES = ("form", "multipart", "json_", "graphql")


def _check_query(query: str) -> str:
    if not query.strip():
        raise invalid("a GraphQL query has text, such as { products { name } }")
    return query


class GraphqlQuery(StrictModel):
    """A GraphQL query, sent with POST."""

    query: Annotated[str, AfterValidator(_check_query)]
    """The query; its braces are literal."""
    variables: dict[str, Any] = Field(default_factory=dict)
    """Variables of the query; names in braces are replaced."""


class FileField(StrictModel):
    """A file in a multipart form."""

    file: str = Field(min_length=1)
    """Its name."""
    content: str = ""
    type: str = "application/octet-stream"


def _as_query(value: Any) -> Any:
    return {"query": value} if isinstance(value, str) else value


class RequestSpec(StrictModel):
    """Method, headers and body of a request; with a body, the method is POST."""

    method: Literal["GET", "POST", "PUT", "PATCH"] | None = None
    headers: Headers = Field(default_factory=dict)
    form: dict[str, Any] | None = None
    """Fields of a form; a list is repeated."""
    multipart: dict[str, str | int | float | FileField] | None = None
    """Fields of a form with files: {file: NAME, content: TEXT, type: TYPE}."""
    json_: Any = Field(default=None, alias="json")
    """A body as JSON."""
    graphql: Annotated[GraphqlQuery, BeforeValidator(_as_query)] | None = None

    @model_validator(mode="after")
    def _check_body(self) -> Self:
        given = [name.rstrip("_") for name in _BODIES if getattr(self, name) is not None]
        if len(given) > 1:
            raise invalid(f"{' and '.join(given)} are different bodies; write one of them")
        if given and self.method == "GET":
            raise invalid(f"a request with {given[0]} is not sent with GET; remove method")
        for text in _texts_in(self._templates()):
            check_braces(text)
        return self

    @property
    def is_plain(self) -> bool:
        """Whether it is a GET without anything."""
        return self.method in (None, "GET") and not self._templates()

    def names(self) -> Iterator[str]:
        """Yield the names in braces."""
        for text in _texts_in(self._templates()):
            yield from names_in(text)

    def filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `Visit.fetch` as JSON; raise ValueError for an unknown name."""
        arguments: dict[str, Any] = fill_value(self._templates(), values)
        if self.graphql is not None:  # the braces of a query are its own
            arguments["graphql"]["query"] = self.graphql.query
        has_body = any(getattr(self, name) is not None for name in _BODIES)
        return {"method": self.method or ("POST" if has_body else "GET"), **arguments}

    def _templates(self) -> dict[str, Any]:
        """Return what is not empty, with its names in braces."""
        values = RequestSpec.model_dump(
            self, by_alias=True, include={"headers", *_BODIES}, exclude_none=True
        )
        if self.graphql is not None:
            values["graphql"] = {"variables": self.graphql.variables}
        return {name: value for name, value in values.items() if name != "headers" or value}


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, Mapping) else ():
        yield from _texts_in(one)
    for one in value if isinstance(value, list | tuple) else ():
        yield from _texts_in(one)
