"""Schema of an API manifest: endpoints by name, each a list of records or a part of one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from longline.config.expressions import JsonPath, Pattern, find, names_in, user_pattern
from longline.config.identity import Headers
from longline.config.secrets import Hosts, is_reference
from longline.config.times import Seconds
from longline.config.validation import StrictModel, invalid
from longline.core.errors import UnexpectedShape, bad_status
from longline.core.http_headers import parse_number
from longline.http.messages import FIRST_ERROR, Page
from longline.limits.retry import DEFAULT_RETRY, LONGEST_RETRY_AFTER, RETRIED_STATUSES
from longline.sources.api.pagination import ByGraphql, Pagination
from longline.sources.api.records import Fields, Key, parent_names
from longline.sources.html.requests import GraphqlQuery
from longline.sources.manifest import (
    Identifier,
    Manifest,
    Parameter,
    Transport,
    check_url,
    check_url_with_defaults,
)

Action = Literal["retry", "wait", "skip", "fail", "refresh", "accept"]
_STATUS = re.compile(r"([1-5])(xx|\d\d)")
_DEFAULT_WAIT = 60.0  # seconds that a source waits when neither the rule nor the site says how long
_EPOCH_SECONDS = 1e9  # a reset header above this is a point in time and not a duration


def _parse_statuses(value: Any) -> tuple[int, ...]:
    statuses: dict[int, None] = {}
    for one in value if isinstance(value, list | tuple) else [value]:
        found = _STATUS.fullmatch(str(one).lower())
        if not found:
            raise invalid("a status is a number such as 404, or a class such as 5xx")
        first = int(found[1]) * 100
        several = range(first, first + 100) if found[2] == "xx" else (int(found[0]),)
        statuses.update(dict.fromkeys(several))
    return tuple(statuses)


Statuses = Annotated[
    tuple[int, ...],
    BeforeValidator(_parse_statuses, json_schema_input_type=int | str | list[int | str]),
]
"""One status or several; 5xx means 500 to 599."""


class When(StrictModel):
    """Which responses a handler applies to: all conditions must hold.

    Without a status, only successful responses are considered: others are retried, skipped or
    failed according to their status.
    """

    status: Statuses = ()
    body: JsonPath | None = None
    """A condition on the JSON body: true unless the path finds false, null or an empty value."""
    header: dict[str, Annotated[Pattern, BeforeValidator(str)]] = Field(default_factory=dict)
    """Headers by name, each with a regular expression that must match in its value."""

    @model_validator(mode="after")
    def _require_a_condition(self) -> Self:
        if not (self.status or self.body or self.header):
            raise invalid("write at least one of status, body and header")
        return self


class Handler(StrictModel):
    """What to do with a matching response. The first handler that matches applies."""

    when: When
    do: Action
    """retry: send the request again. wait: pause the whole source, then send it again. skip: there
    is nothing here. fail: it is an error. refresh: authenticate again, then send it again. accept:
    the response is fine."""
    after: Seconds | None = None
    """Delay before the next attempt; default: Retry-After, or exponential backoff."""
    after_header: str | None = Field(default=None, min_length=1)
    """A header with the delay: seconds, or a point in time as seconds since 1970."""
    attempts: int = Field(default=3, ge=1, le=100)
    """Maximum number of attempts."""
    reason: str | None = Field(default=None, min_length=1)
    """The reason that is reported to the user."""

    @model_validator(mode="after")
    def _check_delay(self) -> Self:
        if self.do not in {"retry", "wait"} and (self.after is not None or self.after_header):
            raise invalid(f"`after` belongs to `retry` and `wait`; `{self.do}` does not wait")
        return self


RETRY_STATUSES = Handler(when=When(status=tuple(RETRIED_STATUSES)), do="retry")
"""The default for transient statuses that the request chain returned to the handlers."""


def statuses_to_return(handlers: Sequence[Handler]) -> frozenset[int]:
    """Return the error statuses that the request chain returns instead of raising."""
    named = {status for handler in handlers for status in handler.when.status}
    return frozenset(one for one in named if one >= FIRST_ERROR)


def handler_for(handlers: Sequence[Handler], page: Page) -> Handler | None:
    """Return the handler of a response, None if it is fine; raise BadStatus for other errors."""
    for handler in handlers:
        if _matches(handler.when, page):
            return handler
    if page.status < FIRST_ERROR:
        return None
    if page.status in RETRIED_STATUSES:
        return RETRY_STATUSES
    raise bad_status(page.url, page.status)


def delay_before_retry(handler: Handler, page: Page, attempts: int, now: float) -> float:
    """Return the seconds to wait after this many attempts."""
    if handler.after is not None:
        return handler.after
    header = page.headers.get(handler.after_header, "") if handler.after_header else ""
    seconds = parse_number(header)
    if seconds is not None and seconds > _EPOCH_SECONDS:
        seconds = max(0.0, seconds - now)
    if seconds is None:
        seconds = page.retry_after(now)
    if seconds is not None:
        seconds = min(seconds, LONGEST_RETRY_AFTER)
    if handler.do == "wait":
        return _DEFAULT_WAIT if seconds is None else seconds
    return max(DEFAULT_RETRY.backoff(attempts), seconds or 0.0)


def reason_for(handler: Handler, page: Page) -> str:
    """Return why a handler applied to a response, for the user."""
    if handler.reason:
        return handler.reason
    when = handler.when
    conditions = [f"status {page.status}"] if when.status else []
    conditions += [f"{when.body!r} is true"] if when.body else []
    conditions += [f"header {name} is {page.headers.get(name)!r}" for name in when.header]
    return f"{', '.join(conditions)}: handler {handler.do}"


def _matches(when: When, page: Page) -> bool:
    if when.status and page.status not in when.status:
        return False
    for name, text in when.header.items():
        value = page.headers.get(name, page.headers.get(name.lower()))
        if value is None or not user_pattern(text, ignore_case=True).search(value):
            return False
    if when.body is None:
        return True
    try:
        found = find(when.body, page.json)
    except (UnexpectedShape, ValueError):
        return False  # the body is not JSON, or JSON of another shape
    # As in JMESPath, zero is true and empty values are not.
    return not (found is None or found is False or found in ("", [], {}))


Scalar = str | int | float | bool | None
Method = Literal["GET", "POST", "PUT", "PATCH"]
Location = tuple[str | int, ...]
_RESERVED_NAMES = frozenset({"parent", "since"})  # in braces, not parameters
_RENEWABLE_AUTH = frozenset({"oauth2", "login"})
_MILLISECONDS = 1e11  # as seconds this is the year 5138, so larger numbers are milliseconds


def _day_as_text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


class Incremental(StrictModel):
    """Request only what changed since the last complete run."""

    field: JsonPath
    """Path of the time at which a record changed, or of its number."""
    parameter: str | None = Field(default=None, min_length=1)
    """Query parameter for the starting point; `{since}` in other texts is replaced by it, too."""
    type: Literal["datetime", "date", "integer"] = "datetime"
    start: Annotated[str | int, BeforeValidator(_day_as_text)] | None = None
    """Starting point of the first run; default: everything."""
    look_back: Seconds = 0.0
    """How much earlier to start than the last run ended: a duration, or a number for integers."""

    def parse(self, value: Any) -> float:
        """Return seconds since 1970, or the integer itself; raise ValueError for another type."""
        if self.type == "integer":
            try:
                return int(str(value).strip())
            except ValueError:
                message = f"{value!r} is not an integer"
                raise ValueError(message) from None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value / 1000 if abs(value) >= _MILLISECONDS else float(value)
        try:
            time = datetime.fromisoformat(str(value).strip())
        except ValueError:
            message = f"{value!r} is not a time such as 2020-01-31 or 2020-01-31T12:00:00Z"
            raise ValueError(message) from None
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()

    def format(self, number: float) -> str | int:
        """Return a number as the API expects it, rounded down to whole seconds or days."""
        if self.type == "integer":
            return math.floor(number)
        time = datetime.fromtimestamp(math.floor(number), UTC)
        if self.type == "date":
            return time.date().isoformat()
        return time.isoformat().replace("+00:00", "Z")

    @model_validator(mode="after")
    def _check_first_start(self) -> Self:
        try:
            if self.start is not None:
                self.parse(self.start)
        except ValueError as error:
            raise invalid(f"start is not of type {self.type}: {error}") from None
        return self


class Endpoint(StrictModel):
    """Something that can be requested. `{name}` in its texts is a parameter."""

    path: Annotated[str, AfterValidator(check_url)] = ""
    """Path below base_url, or a whole URL; `{parent.name}` is a field of the parent
    record."""
    method: Method | None = None
    """HTTP method; default: POST with a body, else GET."""
    query: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    headers: Headers = Field(default_factory=dict)
    body: Any = None
    body_as: Literal["json", "form"] = "json"
    graphql: GraphqlQuery | None = None

    records: JsonPath = "@"
    """Path of the list of records in the response."""
    key: Key | None = None
    url: JsonPath | None = None
    """Path of a record's own URL; default: the URL of the response."""
    fields: Fields | None = None
    """Fields to keep of a record; default: all."""
    pagination: Pagination | None = None
    incremental: Incremental | None = None
    handlers: tuple[Handler, ...] = ()
    rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Maximum requests per second to this endpoint, if lower than for the source."""

    parent: str | None = None
    """Parent endpoint: this one is requested once for each of its records."""
    collect: bool = True
    """False: records only lead to child endpoints and are not stored."""
    detail: str | None = None
    """Endpoint with more fields of a record: requested once per record and merged into it."""
    embed: dict[Identifier, str] = Field(default_factory=dict)
    """Fields of the record, each with the endpoint whose records become its value."""
    optional: bool = False
    """As a detail or embedded endpoint: keep records without it, with a note."""

    @property
    def effective_method(self) -> str:
        has_body = self.body is not None or self.graphql is not None
        return self.method or ("POST" if has_body else "GET")

    @property
    def parts(self) -> list[str]:
        return [*([self.detail] if self.detail else []), *self.embed.values()]

    def templates(self) -> Iterator[tuple[Location, str]]:
        """Yield every text that may have names in braces, with its location."""
        yield ("path",), self.path
        yield from _texts_in(("headers",), self.headers)
        yield from _texts_in(("query",), self.query)
        yield from _texts_in(("body",), self.body)
        if self.graphql:
            yield from _texts_in(("graphql", "variables"), self.graphql.variables)

    def parent_names(self) -> list[str]:
        """Return the names of the parent record that it refers to, such as `parent.id`."""
        names = [name for _, text in self.templates() for name in names_in(text)]
        of_parent = [name for name in names if name.startswith("parent.")]
        return [*of_parent, *parent_names(self.fields or {}, self.key or ())]

    @model_validator(mode="after")
    def _check_body(self) -> Self:
        if self.graphql and (self.body is not None or self.method not in {None, "POST"}):
            raise invalid("graphql is sent with POST and its own body: remove method and body")
        if self.body is not None and self.method == "GET":
            raise invalid("GET has no body; write method: POST, or use query")
        if self.body_as == "form" and not isinstance(self.body, Mapping):
            raise invalid("a form has names and values: body: {name: value}")
        for name, value in self.query.items():
            if isinstance(value, str) and is_reference(value):
                raise invalid(f"{name} in query is a secret: write it under auth, kind: query")
        return self

    @model_validator(mode="after")
    def _check_pagination(self) -> Self:
        pages = self.pagination
        into = getattr(pages, "into", None)
        if isinstance(pages, ByGraphql) and not self.graphql:
            raise invalid("pagination of kind graphql needs graphql with a query")
        if into == "variables" and not self.graphql:
            raise invalid("into: variables needs graphql with a query")
        if into == "body" and not (self.body is None or isinstance(self.body, Mapping)):
            raise invalid("into: body needs a body of names and values")
        if into == "body" and (self.graphql or self.effective_method == "GET"):
            raise invalid("into: body needs method: POST; for graphql write into: variables")
        has_since = any("since" in names_in(text) for _, text in self.templates())
        if self.incremental and not self.incremental.parameter and not has_since:
            raise invalid(
                "incremental needs the name of the query parameter (parameter: updated_since), "
                "or {since} in a text of the endpoint"
            )
        return self


def _texts_in(location: Location, value: Any) -> Iterator[tuple[Location, str]]:
    if isinstance(value, str):
        yield location, value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _texts_in((*location, name), one)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _texts_in((*location, number), one)


Endpoints = Mapping[str, Endpoint]


def _invalid_at(location: Location, problem: str) -> ValidationError:
    """Return a validation error about a location in the manifest."""
    return ValidationError.from_exception_data(
        "manifest", [{"type": invalid(problem), "loc": location, "input": None}]
    )


def part_endpoints(endpoints: Endpoints) -> frozenset[str]:
    """Return the endpoints that complete the records of others and have none of their own."""
    return frozenset(name for endpoint in endpoints.values() for name in endpoint.parts)


def _endpoint_problems(
    endpoints: Endpoints, parameters: Mapping[str, Parameter]
) -> Iterator[tuple[Location, str]]:
    """Yield what is wrong with references between endpoints and names in braces.

    Only the first problem is reliable: later checks assume that earlier ones passed.
    """
    parts = part_endpoints(endpoints)
    for name, endpoint in endpoints.items():
        references: list[tuple[Location, str | None]] = [
            (("parent",), endpoint.parent),
            (("detail",), endpoint.detail),
            *((("embed", field), child) for field, child in endpoint.embed.items()),
        ]
        for location, other in references:
            if other is not None and other not in endpoints:
                known = ", ".join(endpoints)
                yield (name, *location), f"there is no endpoint {other!r}; known: {known}"
    needed = {name: {one.parent} if one.parent else set() for name, one in endpoints.items()}
    for name, endpoint in endpoints.items():
        for part in endpoint.parts:
            needed.get(part, set()).add(name)
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1][::-1]
        yield (cycle[0],), f"endpoints refer to each other in a cycle: {' → '.join(cycle)}"
    for name, endpoint in endpoints.items():
        is_part = name in parts
        problems = _part_problems(endpoint) if is_part else _list_problems(endpoint)
        names = _name_problems(endpoint, parameters, has_parent=is_part or bool(endpoint.parent))
        yield from (((name, *location), problem) for location, problem in chain(problems, names))
        if endpoint.detail and endpoints[endpoint.detail].pagination:
            yield (endpoint.detail, "pagination"), "a detail is one response, without pagination"
    if not any(endpoint.collect for name, endpoint in endpoints.items() if name not in parts):
        yield (), "no endpoint collects records: remove collect: false from one of them"


def _part_problems(endpoint: Endpoint) -> Iterator[tuple[Location, str]]:
    for setting in ("parent", "detail", "embed", "incremental"):
        if getattr(endpoint, setting):
            yield (setting,), "not allowed here: this endpoint completes the records of another"
    if not endpoint.collect:
        yield ("collect",), "remove collect: this endpoint completes the records of another"


def _list_problems(endpoint: Endpoint) -> Iterator[tuple[Location, str]]:
    if endpoint.optional:
        yield ("optional",), "only for detail and embedded endpoints"
    if endpoint.collect and endpoint.key is None:
        yield (), "key is missing: write what identifies a record across runs, as in key: id"
    if endpoint.incremental and endpoint.parent:
        # A shared starting point would leave out the older records of a new parent.
        yield ("incremental",), "only for endpoints without a parent"
    for field in endpoint.embed:
        if field in (endpoint.fields or {}):
            yield ("embed", field), "it is also a name in fields; rename one of them"


def _name_problems(
    endpoint: Endpoint, parameters: Mapping[str, Parameter], *, has_parent: bool
) -> Iterator[tuple[Location, str]]:
    known = [*parameters, *(["since"] if endpoint.incremental else [])]
    if endpoint.parent_names() and not has_parent:
        yield (), f"{{{endpoint.parent_names()[0]}}} needs parent: the name of the parent endpoint"
    for location, text in endpoint.templates():
        for one in names_in(text):
            if not one.startswith("parent.") and one not in known:
                listed = ", ".join(known) or "none; declare it under parameters"
                yield location, f"{{{one}}} is not a parameter; known: {listed}"


class ApiManifest(Manifest):
    """A source that collects from a JSON API."""

    manifest: Literal["api"] = "api"
    base_url: str
    """URL that paths are relative to: https://api.example.com/v1."""
    hosts: Hosts = ()
    """Other hosts that URLs of next pages may lead to."""
    endpoints: dict[Identifier, Endpoint] = Field(min_length=1)
    may_be_empty: bool = False
    """Allow a run that finds no records; default: it fails.

    An incremental run may always find none.
    """

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, base_url: str) -> str:
        text = base_url.strip()
        if not text.startswith(("http://", "https://", "{")):
            raise invalid("base_url is a URL such as https://api.example.com/v1")
        if "?" in text or "#" in text:
            raise invalid("base_url has no ? and no #: write parameters under query")
        return check_url(text)

    @field_validator("transport")
    @classmethod
    def _check_transport(cls, transport: Transport) -> Transport:
        if transport != "http":
            raise invalid("an API needs transport: http; browser and auto are for manifest: html")
        return transport

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, parameters: dict[str, Parameter]) -> dict[str, Parameter]:
        for name in sorted(_RESERVED_NAMES & parameters.keys()):
            raise invalid(f"{name} is a reserved name; rename the parameter")
        return parameters

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        for name in names_in(self.base_url):
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                problem = f"{{{name}}} is not a parameter; known: {known}"
                raise _invalid_at(("base_url",), problem)
        check_url_with_defaults(self.base_url, self.parameters)
        for location, problem in _endpoint_problems(self.endpoints, self.parameters):
            raise _invalid_at(("endpoints", *location), problem)
        kind, whole = self.auth.kind if self.auth else None, self.rate
        for name, endpoint in self.endpoints.items():
            if endpoint.rate and isinstance(whole, float) and endpoint.rate > whole:
                problem = f"it is above the rate of the source ({whole:g}) and has no effect"
                raise _invalid_at(("endpoints", name, "rate"), problem)
            for number, handler in enumerate(endpoint.handlers):
                if handler.do == "refresh" and kind not in _RENEWABLE_AUTH:
                    problem = "refresh needs auth of a kind that can be renewed: oauth2 or login"
                    raise _invalid_at(("endpoints", name, "handlers", number, "do"), problem)
        return self
