"""A manifest of an API: endpoints by name, each a list of records or a part of one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from longline.config.identity import Headers
from longline.config.manifests.base import (
    Manifest,
    Parameter,
    Transport,
    check_address,
    check_with_defaults,
    names_in,
)
from longline.config.manifests.json_paths import Fields, JsonPath, Key, parents_named
from longline.config.patterns import user_pattern
from longline.config.secrets import Hosts, is_reference
from longline.config.written import Written, wrong

# ---------------- What is done about answers that are not what they seem: by status, body or

Step = Literal["retry", "wait", "skip", "fail", "refresh", "accept"]
_CLASS = re.compile(r"[1-5]xx")
_FIRST, _LAST = 100, 599
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_LONGEST = 366 * 86_400.0
_STATUS = "a status is a number such as 404, or a class of them such as 5xx"


def _seconds(value: Any) -> float:
    found = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip())
    seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else -1.0
    if not 0 <= seconds <= _LONGEST:
        raise wrong("a time is a number of seconds, or written as 30s, 15m, 12h, 1d or 2w")
    return seconds


def _statuses(value: Any) -> tuple[int, ...]:
    several = value if isinstance(value, list | tuple) else [value]
    return tuple(dict.fromkeys(status for one in several for status in _of_class(one)))


def _of_class(value: Any) -> list[int]:
    if isinstance(value, str) and _CLASS.fullmatch(value.lower()):
        first = int(value[0]) * 100
        return list(range(first, first + 100))
    if isinstance(value, int) and not isinstance(value, bool) and _FIRST <= value <= _LAST:
        return [value]
    raise wrong(_STATUS)


def _pattern(text: str) -> str:
    try:
        user_pattern(text)
    except ValueError as error:
        raise wrong(f"not a regular expression: {error}") from error
    return text


Seconds = Annotated[float, BeforeValidator(_seconds, json_schema_input_type=float | str)]
"""A time in seconds, or as 30s, 15m, 12h, 1d, 2w."""

Statuses = Annotated[
    tuple[int, ...], BeforeValidator(_statuses, json_schema_input_type=int | str | list[int | str])
]
"""One status or several; 5xx stands for all from 500 to 599."""


class When(Written):
    """Which answers are meant: all that is said must hold.

    Without a status, only answers that are otherwise fine are looked at: others are retried,
    skipped or failed by what their status means.
    """

    status: Statuses = ()
    body: JsonPath | None = None
    """A condition on the JSON: it holds when the path finds anything but false, null or empty."""
    header: dict[str, Annotated[str, BeforeValidator(str), AfterValidator(_pattern)]] = Field(
        default_factory=dict
    )
    """Headers by name, each with a regular expression that its value has somewhere."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not (self.status or self.body or self.header):
            raise wrong("say at least one of status, body and header")
        return self


class Handler(Written):
    """A rule: what is done when an answer is such a one. The first rule that fits is followed."""

    when: When
    do: Step
    """retry: ask again. wait: the whole source rests, then asks again. skip: there is nothing
    here. fail: it is an error. refresh: prove anew who we are, then ask again. accept: it is
    fine."""
    after: Seconds | None = None
    """How long to wait first; as Retry-After says, or with growing waits, when not said."""
    after_header: str | None = Field(default=None, min_length=1)
    """A header that says it: seconds, or the moment as seconds since 1970."""
    attempts: int = Field(default=3, ge=1, le=100)
    """How often it is asked in all before that is a failure."""
    reason: str | None = Field(default=None, min_length=1)
    """What a user reads about it."""

    @model_validator(mode="after")
    def _only_where_somebody_waits(self) -> Self:
        waits = self.do in {"retry", "wait"}
        if not waits and (self.after is not None or self.after_header):
            raise wrong(f"after belongs to retry and wait; {self.do} waits for nothing")
        return self


# ---------------- Only what changed: where a run begins, by the records that earlier ones have

_MILLISECONDS = 1e11  # as seconds this is the year 5138: whoever says more means milliseconds


def _as_text(value: Any) -> Any:
    """Take a day as YAML may read it."""
    return value.isoformat() if isinstance(value, date) else value


class Incremental(Written):
    """Only what changed since the last complete run is asked for."""

    field: JsonPath
    """Where a record says when it changed, or which number it has."""
    parameter: str | None = Field(default=None, min_length=1)
    """The query parameter for the beginning; `{since}` elsewhere stands for it, too."""
    type: Literal["datetime", "date", "integer"] = "datetime"
    start: Annotated[str | int, BeforeValidator(_as_text)] | None = None
    """Where the first run begins; without it, the first run asks for everything."""
    look_back: Seconds = 0.0
    """How much earlier to begin than the last run ended: a time, or a number for integers."""

    def read(self, value: Any) -> float:
        """Return a value as a number: seconds since 1970, or the integer itself.

        Raises:
            ValueError: it is not of this type.
        """
        return _integer(value) if self.type == "integer" else _moment(value)

    def write(self, number: float) -> str | int:
        """Return a number as the API wants it; what was between two seconds or days is earlier."""
        if self.type == "integer":
            return math.floor(number)
        moment = datetime.fromtimestamp(math.floor(number), UTC)
        if self.type == "date":
            return moment.date().isoformat()
        return moment.isoformat().replace("+00:00", "Z")

    @model_validator(mode="after")
    def _a_start(self) -> Self:
        try:
            if self.start is not None:
                self.read(self.start)
        except ValueError as error:
            raise wrong(f"start is not of the type {self.type}: {error}") from None
        return self


def _integer(value: Any) -> float:
    try:
        return int(str(value).strip())
    except ValueError:
        message = f"{value!r} is no whole number"
        raise ValueError(message) from None


def _moment(value: Any) -> float:
    """Return a moment as ISO 8601 writes it, or as a number since 1970; without a zone, in UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if abs(value) >= _MILLISECONDS else float(value)
    try:
        moment = datetime.fromisoformat(str(value).strip())
    except ValueError:
        message = f"{value!r} is no moment such as 2020-01-31 or 2020-01-31T12:00:00Z"
        raise ValueError(message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# ---------------- How an API divides its lists into pages, and how the last one is known

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


# ---------------- One endpoint of an API: what is asked, what is read of the answer, and what

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


# ---------------- What can be known of the endpoints of an API together, before anything is asked

Endpoints = Mapping[str, Endpoint]
Place = tuple[str | int, ...]


def wrong_at(place: Place, problem: str) -> ValidationError:
    """Return the error that tells a user this sentence about a place below the whole."""
    return ValidationError.from_exception_data(
        "manifest", [{"type": wrong(problem), "loc": place, "input": None}]
    )


def check_endpoints(endpoints: Endpoints, parameters: Mapping[str, Parameter]) -> None:
    """See that endpoints fit together and every name in braces is known.

    Raises:
        ValidationError: they do not; it says where.
    """
    for name in endpoints:
        _check_references(name, endpoints)
    _check_cycles(endpoints)
    parts = parts_of(endpoints)
    for name, endpoint in endpoints.items():
        _check_role(name, endpoint, is_part=name in parts)
        _check_names(name, endpoint, parameters, has_parent=name in parts or bool(endpoint.parent))
        _check_embedded(name, endpoints)
    if not any(endpoint.collect for name, endpoint in endpoints.items() if name not in parts):
        problem = "no endpoint collects anything: leave collect: false out of one of them"
        raise wrong_at(("endpoints",), problem)


def parts_of(endpoints: Endpoints) -> frozenset[str]:
    """Return the endpoints that complete the records of others and have none of their own."""
    return frozenset(name for endpoint in endpoints.values() for name in endpoint.below)


def _check_references(name: str, endpoints: Endpoints) -> None:
    endpoint = endpoints[name]
    said: list[tuple[Place, str | None]] = [
        (("parent",), endpoint.parent),
        (("detail",), endpoint.detail),
        *((("embed", field), child) for field, child in endpoint.embed.items()),
    ]
    for place, other in said:
        if other is not None and other not in endpoints:
            problem = f"there is no endpoint {other!r}; there are {', '.join(endpoints)}"
            raise wrong_at(("endpoints", name, *place), problem)


def _check_cycles(endpoints: Endpoints) -> None:
    done: set[str] = set()
    for name in endpoints:
        _follow(name, endpoints, [], done)


def _follow(name: str, endpoints: Endpoints, way: list[str], done: set[str]) -> None:
    if name in way:
        circle = " → ".join([*way[way.index(name) :], name])
        raise wrong_at(
            ("endpoints", name),
            f"endpoints need each other in a circle: {circle}; one must do without the others",
        )
    if name in done:
        return
    for above in _needed(name, endpoints):
        _follow(above, endpoints, [*way, name], done)
    done.add(name)


def _needed(name: str, endpoints: Endpoints) -> Iterable[str]:
    """Yield the endpoints whose records this one is asked for with."""
    parent = endpoints[name].parent
    if parent:
        yield parent
    yield from (above for above, endpoint in endpoints.items() if name in endpoint.below)


def _check_role(name: str, endpoint: Endpoint, *, is_part: bool) -> None:
    place = ("endpoints", name)
    if is_part:
        _check_part(name, endpoint)
    elif endpoint.optional:
        raise wrong_at((*place, "optional"), "this is for a detail, or for what is embedded")
    elif endpoint.collect and endpoint.key is None:
        problem = "key is missing: say what makes a record the same one next time, as in key: id"
        raise wrong_at(place, problem)
    if endpoint.incremental and endpoint.parent:
        # A shared beginning would leave out what a new parent already had below it.
        raise wrong_at(
            (*place, "incremental"),
            "this is for an endpoint without a parent; what hangs below changed records is asked "
            "for again anyway",
        )


def _check_part(name: str, endpoint: Endpoint) -> None:
    for word in ("parent", "detail", "embed", "incremental"):
        if getattr(endpoint, word):
            problem = "this endpoint completes the records of another and can have none of this"
            raise wrong_at(("endpoints", name, word), problem)
    if not endpoint.collect:
        problem = "this endpoint has no records of its own to collect; leave collect out"
        raise wrong_at(("endpoints", name, "collect"), problem)


def _check_names(
    name: str, endpoint: Endpoint, parameters: Mapping[str, Parameter], *, has_parent: bool
) -> None:
    known = [*parameters, *(["since"] if endpoint.incremental else [])]
    if endpoint.parent_names() and not has_parent:
        problem = f"{{{endpoint.parent_names()[0]}}} needs parent: with the endpoint above this one"
        raise wrong_at(("endpoints", name), problem)
    for place, text in endpoint.texts():
        for one in names_in(text):
            if not one.startswith("parent.") and one not in known:
                listed = ", ".join(known) or "none: declare it under parameters"
                problem = f"{{{one}}} is no parameter; known are {listed}"
                raise wrong_at(("endpoints", name, *place), problem)


def _check_embedded(name: str, endpoints: Endpoints) -> None:
    endpoint = endpoints[name]
    if endpoint.detail and endpoints[endpoint.detail].pagination:
        problem = "a detail is one answer, without pagination"
        raise wrong_at(("endpoints", endpoint.detail, "pagination"), problem)
    for field in endpoint.embed:
        if field in (endpoint.fields or {}):
            raise wrong_at(("endpoints", name, "embed", field), "fields has this name, too")
        if not field.isidentifier():
            problem = "a name here has letters, digits and _"
            raise wrong_at(("endpoints", name, "embed", field), problem)


RESERVED = frozenset({"parent", "since"})
"""Names in braces that stand for something else than a parameter."""

RENEWABLE = frozenset({"oauth2", "login"})
"""Kinds of authentication whose proof is obtained, and may be obtained again."""


class ApiManifest(Manifest):
    """A source that collects from an API which answers in JSON."""

    manifest: Literal["api"] = "api"
    base_url: str
    """Where the paths begin: https://api.example.com/v1."""
    hosts: Hosts = ()
    """Other hosts that addresses of next pages may lead to."""
    endpoints: dict[str, Endpoint] = Field(min_length=1)
    may_be_empty: bool = False
    """Whether finding no record at all is fine; otherwise it is taken for a failure.

    A run that only asks for what has changed since the last one may always find nothing.
    """

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, base_url: str) -> str:
        text = base_url.strip()
        if not text.startswith(("http://", "https://", "{")):
            raise wrong("base_url is an address such as https://api.example.com/v1")
        if "?" in text or "#" in text:
            raise wrong("base_url has no ? and no #: write parameters under query")
        return check_address(text)

    @field_validator("transport")
    @classmethod
    def _over_http(cls, transport: Transport) -> Transport:
        if transport != "http":
            raise wrong("an API is asked over http; browser and auto are for manifest: html")
        return transport

    @field_validator("parameters")
    @classmethod
    def _free_names(cls, parameters: dict[str, Parameter]) -> dict[str, Parameter]:
        for name in sorted(RESERVED & parameters.keys()):
            raise wrong(f"the parameter {name} needs another name: {{{name}}} stands for another")
        return parameters

    @field_validator("endpoints")
    @classmethod
    def _plain_endpoints(cls, endpoints: dict[str, Endpoint]) -> dict[str, Endpoint]:
        for name in endpoints:
            if not name.isidentifier():
                raise wrong(f"the endpoint {name!r} needs a name of letters, digits and _")
        return endpoints

    @model_validator(mode="after")
    def _sound(self) -> Self:
        for name in names_in(self.base_url):
            if name not in self.parameters:
                problem = f"{{{name}}} is no parameter; {self._known()}"
                raise wrong_at(("base_url",), problem)
        check_with_defaults(self.base_url, self.parameters)
        check_endpoints(self.endpoints, self.parameters)
        self._check_rates()
        self._check_renewals()
        return self

    def _check_rates(self) -> None:
        for name, endpoint in self.endpoints.items():
            own, whole = endpoint.rate, self.rate
            if own and isinstance(whole, float) and own > whole:
                problem = f"it is above that of the source, {whole:g}, and would change nothing"
                raise wrong_at(("endpoints", name, "rate"), problem)

    def _check_renewals(self) -> None:
        kind = self.auth.kind if self.auth else None
        for name, endpoint in self.endpoints.items():
            for number, rule in enumerate(endpoint.handlers):
                if rule.do == "refresh" and kind not in RENEWABLE:
                    problem = "refresh needs auth of a kind that can be renewed: oauth2 or login"
                    raise wrong_at(("endpoints", name, "handlers", number, "do"), problem)

    def _known(self) -> str:
        return f"parameters are {', '.join(self.parameters) or 'not declared here'}"
