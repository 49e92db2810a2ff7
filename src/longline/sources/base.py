"""Base classes of sources, and the visit that a layer or discovery receives."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from longline.config.validation import describe_error
from longline.core.clock import Clock
from longline.core.errors import (
    BadOption,
    BudgetSpent,
    CircuitOpen,
    Deferred,
    FailureKind,
    FetchError,
    UnexpectedShape,
)
from longline.core.json import plain, to_json
from longline.core.model import CUT, WARNING, Cursor, Item, Listener, Note, Usage
from longline.http.bodies import form_body, graphql_body, json_body, multipart_body
from longline.http.errors import BadAnswer
from longline.http.messages import (
    FILE_TYPE,
    Capture,
    Clicks,
    FileWish,
    Middleware,
    MiddlewareFactory,
    Page,
    Request,
    has_header,
    with_query,
    without_userinfo,
)
from longline.pipeline.quality import QualityRules

T = TypeVar("T")
_MAX_WAITS = 5
"""Attempts of an item that wait for the host of an optional file; then it does without the file."""


class Visit:
    """One attempt at an item or at discovery: its requests, notes and earlier results."""

    def __init__(
        self,
        send: Middleware,
        clock: Clock,
        *,
        item: Item | None = None,
        cursor: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._send = send
        self._item = item
        self.scope = "discovery" if item is None else item.key
        """What requests belong to that share a session, with `sessions: item`."""
        self._results_by_name: dict[str, Any] = {}
        self.clock = clock
        self.cursor = cursor
        self.params: Mapping[str, Any] = params or {}
        """Values of `--param`."""
        self.results: dict[str, Mapping[str, Any]] = {}
        """Results of the earlier layers by name."""
        self.origins: dict[str, str] = {}
        """Origins of single fields, in place of the layer and its URL."""
        self.notes: list[Note] = []
        self.cuts: list[str] = []
        """Why discovery did not find everything, in the order in which `cut` reported it."""
        self.warnings: list[str] = []
        self.found: list[Item] = []
        self.spent: list[str] = []
        self.usage = Usage()
        self.tries = 1
        """Which attempt at the item this is."""
        self.address: str | None = None
        """URL of the last response: the origin of the fields of the running layer."""

    @property
    def item(self) -> Item:
        """The item of this visit; discovery has none."""
        if self._item is None:
            message = "discovery has no item"
            raise LookupError(message)
        return self._item

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        json: Any = None,
        form: Mapping[str, Any] | None = None,
        multipart: Mapping[str, Any] | None = None,
        graphql: Mapping[str, Any] | None = None,
        accept: frozenset[int] = frozenset(),
        timeout: float | None = None,  # noqa: ASYNC109  # the chain's deadline, not a cancel scope
        priority: int | None = None,
        shared: bool = False,
        session: str | None = None,
        rendered: bool = False,
        clicks: Clicks | None = None,
        renew: bool = False,
        screenshot: bool = False,
        pdf: bool = False,
    ) -> Page:
        """Send one request through the chain, with rate limit and retries, and return the response.

        Args:
            url: the URL.
            method: the HTTP method.
            params: query parameters to add to the URL.
            headers: headers of this request.
            body: the body.
            json: a body to send as JSON.
            form: fields of a form to send with POST; a list is repeated.
            multipart: fields of a form with files (`FilePart`), to send with POST.
            graphql: a query to send with POST: `{"query": …, "variables": {…}}`.
            accept: statuses to return instead of raising (400 and above) or following (redirects).
            timeout: response timeout in seconds; default: that of the job.
            priority: order among waiting requests, higher first; default: that of the item.
            shared: send the request once per run, however many items need it.
            session: the name of a session, which all requests that name it share.
            rendered: open the page in a browser, if the source has one.
            clicks: return several pages of a list with a next button.
            renew: authenticate again first, for sites that report an expired token in the body.
            screenshot: store a picture of the rendered page: `page.files["screenshot"]`.
            pdf: store the rendered page as PDF: `page.files["pdf"]`.

        Raises:
            FetchError: the request failed; its kind decides the outcome of the item.
            ValueError: it has two bodies, or its timeout is not a positive number.
        """
        bodies = (body, json, form, multipart, graphql)
        if bodies.count(None) < len(bodies) - 1:
            message = "a request has one body: pass one of body, json, form, multipart and graphql"
            raise ValueError(message)
        _check_timeout(timeout)
        headers = dict(headers or {})
        made = None if json is None else json_body(json)
        if form is not None:
            made = form_body(form)
        elif multipart is not None:
            made = multipart_body(multipart)
        elif graphql is not None:
            made = graphql_body(graphql["query"], graphql.get("variables") or {})
        if made is not None:
            body = made.content
            if not has_header(headers, "content-type"):
                headers["content-type"] = made.type
            method = "POST" if json is None and method == "GET" else method
        if priority is None:
            priority = self._item.priority if self._item else 0
        request = Request(
            with_query(url, params),
            method,
            headers,
            body,
            frozenset(accept),
            timeout,
            priority,
            is_shared=shared,
            is_rendered=rendered or screenshot or pdf,
            is_renewing=renew,
            clicks=clicks,
            captures=(*(("screenshot",) if screenshot else ()), *(("pdf",) if pdf else ())),
            session=session,
            scope=self.scope,
        )
        page = await self._send(request, self.usage)
        self.address = page.url
        return page

    async def download(
        self,
        url: str,
        *,
        field: str = "file",
        required: bool = False,
        image: bool = False,
        largest: int | None = None,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # the chain's deadline, not a cancel scope
    ) -> dict[str, Any] | None:
        """Download a file through the chain, and return what refers to it in a record.

        That is `path` (or `url`, on S3), `sha256`, `bytes`, `type`, `name` and `source_url`; None,
        with a note, when the file cannot be had.

        Args:
            url: the URL.
            field: the field that the note is about.
            required: raise an error instead of returning None.
            image: accept images only.
            largest: maximum size in bytes; default: the setting `largest_file`.
            params: query parameters to add to the URL.
            headers: headers of this request.
            timeout: seconds until the first byte; default: that of the job. The whole file may take
                longer, if it arrives fast enough.

        Raises:
            FetchError: the request failed, and the file is required, or the item has to wait.
            UnexpectedShape: there is no such file, and it is required.
            StoreError: files cannot be stored.
            ValueError: the timeout is not a positive number.
        """
        _check_timeout(timeout)
        file = await self.download_with_digests(
            *(url, field),
            required=required,
            request={
                "file": FileWish(largest, image),
                "headers": dict(headers or {}),
                "timeout": timeout,
            },
            params=params,
        )
        hidden = ("md5", "is_cached")
        return None if file is None else {n: one for n, one in file.items() if n not in hidden}

    async def download_with_digests(
        self,
        url: str,
        field: str,
        *,
        required: bool = False,
        request: Mapping[str, Any] | None = None,
        params: Mapping[str, str | int] | None = None,
    ) -> dict[str, Any] | None:
        """Download a file as `download` does; the result has `md5` and `is_cached`, too."""
        priority = self._item.priority if self._item else 0
        values = {"file": FileWish(), "priority": priority, **(request or {})}
        asked = without_userinfo(with_query(url, params))
        if not asked.lower().startswith(("http://", "https://")):
            problem = f"{asked!r:.60} is not the URL of a file"
            if required:
                raise UnexpectedShape(field, problem)
            self._note_missing_file(field, problem)
            return None
        try:
            page = await self._send(Request(asked, scope=self.scope, **values), self.usage)
        except BudgetSpent:
            raise
        except FetchError as error:
            is_temporary = isinstance(error, (CircuitOpen, Deferred)) and self.tries <= _MAX_WAITS
            if required and error.kind is FailureKind.GONE:
                # The item itself is not gone, so it must not be skipped.
                raise UnexpectedShape(asked, f"the file of {field} is missing: {error}") from error
            if required or is_temporary:
                raise
            self._note_missing_file(field, f"the file was not stored: {error}")
            return None
        if page.headers.get("content-type") != FILE_TYPE:
            raise BadAnswer(asked, "files are not stored here")
        return {**page.json, "source_url": asked, "is_cached": page.is_cached}

    def _note_missing_file(self, field: str, problem: str) -> None:
        self.note(field, problem)
        name = field.partition("[")[0]
        self.warn(f"some files of {name} were not stored; the notes of their records say why")

    async def screenshot(
        self, url: str, *, field: str = "screenshot", required: bool = False
    ) -> dict[str, Any] | None:
        """Open a page in a browser, and return what refers to its screenshot, as `capture`.

        Raises:
            FetchError: the page could not be opened, or there is no screenshot and it is required.
        """
        page = await self.fetch(url, screenshot=True)
        return self.capture(page, "screenshot", field, required=required)

    async def pdf(
        self, url: str, *, field: str = "pdf", required: bool = False
    ) -> dict[str, Any] | None:
        """Open a page in a browser, and return what refers to it as PDF, as `capture`.

        Raises:
            FetchError: the page could not be opened, or there is no PDF and it is required.
        """
        page = await self.fetch(url, pdf=True)
        return self.capture(page, "pdf", field, required=required)

    def capture(
        self, page: Page, name: Capture, field: str, *, required: bool = False
    ) -> dict[str, Any] | None:
        """Return what refers to a capture of a page; None, with a note, if there is none.

        Raises:
            BadAnswer: there is none, and it is required.
        """
        if (found := page.files.get(name)) is not None:
            return found
        problem = page.missing_files.get(name, "it was not taken when the page was fetched")
        if required:
            raise BadAnswer(page.url, f"there is no {name}: {problem}")
        self.note(field, f"there is no {name}: {problem}")
        return None

    def note(self, field: str, text: str) -> None:
        """Note why a field is empty, or what is unusual about it."""
        self.notes.append(Note(field, text))

    def cut(self, reason: str) -> None:
        """Report that items are missing because discovery ended early: the job becomes partial.

        Call it before the cursor that leads past the missing items is yielded: both are committed
        together, so the reason survives a crash. The same reason counts once per job.
        """
        if reason not in self.cuts:
            self.cuts.append(reason)
            self.usage.add_event(CUT, reason=reason)

    def warn(self, text: str) -> None:
        """Add a warning to the job's summary; the state of the job stays the same."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.usage.add_event(WARNING, reason=text)

    def add(self, item: Item) -> None:
        """Queue another item; it is committed together with this item's outcome."""
        self.found.append(item)

    def spend(self, quota: str) -> None:
        """Use one of a quota of the job; it is committed together with this item's outcome."""
        self.spent.append(quota)

    async def once(self, name: str, make: Callable[[Visit], Awaitable[T]]) -> T:
        """Return the result of `make(visit)`, which is called once per name in this visit."""
        if name not in self._results_by_name:
            self._results_by_name[name] = await make(self)
        result: T = self._results_by_name[name]
        return result

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run blocking code in a thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)


LayerMethod = Callable[[Any, Visit], Awaitable[Mapping[str, Any]]]
_Method = TypeVar("_Method", bound=LayerMethod)


class Options(BaseModel):
    """Options of a source, set with `--set name=value`. Subclass it to add fields.

    The docstring of a field is its description in `longline sources show NAME`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Layer:
    """One named extraction step: the layers it needs, and whether it may fail."""

    name: str
    needs: tuple[str, ...] = ()
    is_optional: bool = False


def layer(*, needs: tuple[str, ...] = (), optional: bool = False) -> Callable[[_Method], _Method]:
    """Mark a method as a layer. Layers run in the order of their definition.

    Args:
        needs: layers whose results it reads; it is not run if one of them failed.
        optional: its failure is noted in the record and does not fail the item.
    """

    def mark(method: _Method) -> _Method:
        method.__layer__ = Layer(  # type: ignore[attr-defined]  # an attribute of the function
            method.__name__, needs, optional
        )
        return method

    return mark


@dataclass(frozen=True, slots=True)
class Metadata:
    """Kind, target, name and version of a source."""

    kind: str
    target: str | None
    name: str
    version: str


class Source:
    """A site or API to collect from.

    A subclass has a `name`, a `discover` that yields items, and at least one `@layer` that returns
    fields of the record. One object serves one run of a job.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    Options: ClassVar[type[Options]] = Options
    Record: ClassVar[type[BaseModel] | None] = None
    """Model of a record's data; records that do not satisfy it are quarantined."""
    rate: ClassVar[float | Literal["auto"] | None] = 2.0
    """Default of the maximum requests per second per domain.

    "auto" learns what the site allows, None is unlimited.
    """
    burst: ClassVar[int] = 5
    max_in_flight: ClassVar[int | None] = None
    """Maximum concurrent requests per domain, across all processes; None is unlimited."""
    retry: ClassVar[Any] = None
    """Attempts and waits of requests as in a job file: `{"attempts": 5, "base": 2, "max": 60}`."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Headers of every request, in addition to its own."""
    cookies: ClassVar[Any] = True
    """Whether cookies are kept during a run; or the initial ones, as in a job file."""
    auth: ClassVar[Any] = None
    """Authentication, as in a job file; secrets only by reference."""
    proxies: ClassVar[Any] = None
    """Which proxies of the pool are used, as in a job file: `True`, or `{"tiers": [...]}`."""
    sessions: ClassVar[Any] = None
    """Sessions of cookies, a proxy and headers, as in a job file: `"item"`, `"login"`, `20`."""
    has_own_cookies: ClassVar[bool] = False
    """Whether the source sends cookies of its own, which do not change with the session."""
    cache: ClassVar[bool] = False
    """Whether responses are cached by the rules of HTTP (RFC 9111)."""
    ca_file: ClassVar[Path | None] = None
    """Certificate authorities to trust besides the system's, as PEM."""
    private_hosts: ClassVar[tuple[str, ...]] = ()
    """Hosts at private addresses that may be requested from a source with a public start URL.

    Names, addresses and networks: `("wiki.corp", "10.0.0.0/8")`.
    """
    expects: ClassVar[tuple[str, ...]] = ()
    """CSS selectors; every page matches at least one of them, and a ban page none."""
    quality_rules: ClassVar[QualityRules | None] = None
    """Quality rules; default: successful layers and filled fields."""
    kind: ClassVar[str] = "code"
    """Kind of source: code, html, api, command, function, scrapy."""
    target: ClassVar[str | None] = None
    """URL of the site, if there is one."""
    transport: ClassVar[Literal["http", "browser", "auto", "impersonate"]] = "http"
    browser: ClassVar[Any] = None
    """Browser settings, as in a manifest."""
    volatile: ClassVar[frozenset[str]] = frozenset()
    """Fields whose changes do not make a new version of a record, such as view counts."""

    usually_empty: frozenset[str] = frozenset()
    """Fields that may be empty in every record without a warning.

    A source can set it in `__init__`, depending on its options.
    """
    middlewares: ClassVar[tuple[str | MiddlewareFactory, ...]] = ()
    """Middlewares of the request chain: plugins by name, or functions of the next middleware.

    Every attempt of a request passes them before robots.txt, cache and limits.
    """
    listeners: ClassVar[tuple[str | Listener, ...]] = ()
    """Functions that are called with each `RunEvent`, or plugins by name; they must not block."""
    pipeline: ClassVar[tuple[Any, ...]] = ()
    """Pipeline stages between `compose` and the record, in order."""

    can_repeat_discovery: ClassVar[bool] = True
    """Whether `discover` sends requests only through its visit, so that it can be repeated."""
    not_run: ClassVar[tuple[str, ...]] = ()
    """Parts of the user's code that are not run; reported at the start and end of a run."""

    bookmarks: Any = None
    """Where the last complete run ended, by name; set by the engine."""

    _layers: ClassVar[tuple[Layer, ...]] = ()

    def __init__(self, options: BaseModel | None = None) -> None:
        self.options: Any = self.Options() if options is None else options

    @classmethod
    def with_options(cls, values: Mapping[str, Any]) -> Source:
        """Create the source with these options; raise BadOption if one is unknown or invalid."""
        return cls(cls.read_options(values))

    @classmethod
    def read_options(cls, values: Mapping[str, Any]) -> BaseModel:
        """Return valid options; raise BadOption if one is unknown or invalid."""
        try:
            return cls.Options.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            known = ", ".join(sorted(cls.Options.model_fields)) or "none"
            is_unknown = first["type"] == "extra_forbidden"
            problem = "there is no such option"
            if not is_unknown:
                problem = f"{describe_error(first)}, not {first['input']!r:.80}"
            raise BadOption(
                f"--set {name}", f"{problem}; options of {cls.name}: {known}"
            ) from error

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        found = {
            name: mark
            for base in reversed(cls.__mro__)  # a subclass replaces the layers of its bases
            for name, value in vars(base).items()
            if isinstance(mark := getattr(value, "__layer__", None), Layer)
        }
        cls._layers = tuple(found.values())

    @classmethod
    def layers(cls) -> tuple[Layer, ...]:
        """Return the layers in the order in which they run."""
        return cls._layers

    @classmethod
    def describe_source(cls) -> Metadata:
        """Return kind, target, name and version."""
        return Metadata(cls.kind, cls.target, cls.name, cls.version)

    async def prepare(self, visit: Visit) -> None:
        """Prepare the run before the first item; an exception stops the job."""

    async def finished(self, visit: Visit) -> None:
        """Handle the end of a run without a limit whose items are all committed, none failed.

        `visit.cursor` is the last cursor of the job.
        """

    async def teardown(self) -> None:
        """Release resources; called once, however the run ended."""

    def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items, and cursors with the progress of discovery.

        A cursor is committed together with the items before it; after a crash `visit.cursor`
        is the last one. An item that is yielded twice is queued once.
        """
        raise NotImplementedError  # every source implements it

    def cursor_to_repeat(self, last: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the cursor from which to repeat the discovery of a job.

        `last` is the last cursor of that job. None starts like a new job.
        """
        del last
        return None

    def identity_of(self, item: Item) -> str | None:
        """Return what identifies the element or record of an item, independent of extraction rules.

        It finds the item again after the rules, and perhaps its key, have changed. None when there
        is only the key and the URL.
        """
        del item
        return None

    def leads_on(self, item: Item) -> bool:
        """Return whether the item is not a record itself, and only leads to others."""
        del item
        return False

    def carries_values(self, item: Item) -> bool:
        """Return whether the item carries values that discovery or another item extracted."""
        return bool(item.data)

    def obstacle_to_repeat(self, item: Item) -> str | None:
        """Return why the layers of an item must not run again; None when they may.

        Re-extraction runs them on archived responses, without requests and writes.
        """
        del item
        return None

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return the data of the record, made of the layers' results; default: merge them."""
        del item
        return {name: value for result in layers.values() for name, value in result.items()}


KEY_FIELDS = ("id", "key", "url")
"""Fields that identify a record unless the source names another; the first with a value."""
_RECORD = "record"
_PROBLEM = "problem"
_MAX_SHOWN = 200  # characters of an invalid record that its item keeps
_KEY_LENGTH = 16  # characters of a hash: enough to tell records apart, short enough to read

KeyFunction = Callable[[Mapping[str, Any]], Any]
"""Returns what identifies a record, or None."""


class RecordSource(Source):
    """A source whose items carry their records."""

    can_repeat_discovery = False  # discovery may send requests outside the chain

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return the record of the item; raise UnexpectedShape if it is not a record."""
        data = visit.item.data
        if _PROBLEM in data:
            raise UnexpectedShape(visit.item.key, data[_PROBLEM])
        result: Mapping[str, Any] = data[_RECORD]
        return result

    def carries_values(self, item: Item) -> bool:
        return _RECORD in item.data or _PROBLEM in item.data


class RecordItems:
    """Makes items of one stream of records, each with its own key.

    Of two different records with the same key both are kept, the second one with a longer key and
    a note: a wrong key loses no records.

    Args:
        place: the URL of records that have none.
        key: returns what identifies a record; None for the default fields.
        visit: receives the notes.
    """

    def __init__(self, place: str, key: KeyFunction | None, visit: Visit) -> None:
        self._place = place
        self._key = key
        self._visit = visit
        self._known: dict[str, str] = {}

    def make(self, record: object) -> Item:
        """Return the item of a record; for an invalid record, an item with the problem."""
        if not isinstance(record, Mapping):
            kind = type(record).__name__
            return self.make_invalid(repr(record), f"a record is names and values, not {kind}")
        try:
            data = record_as_json(record)
            mark = record_fingerprint(data)
            key = self._key_of(data) or mark[:_KEY_LENGTH]
        except Exception as error:  # noqa: BLE001  # not JSON, no key, or the user's own function
            problem = f"not usable ({type(error).__name__}: {error})"
            return self.make_invalid(repr(record), problem)
        if self._known.setdefault(key, mark) != mark:
            self._visit.note(key, "two different records have this key; both are kept")
            key = f"{key} {mark[:_KEY_LENGTH]}"
        url = data.get("url")
        is_web = isinstance(url, str) and url.startswith(("http://", "https://"))
        return Item(key, str(url) if is_web else self._place, data={_RECORD: data})

    def make_invalid(self, text: str, problem: str) -> Item:
        """Return the item of an invalid record, which is going to be quarantined."""
        mark = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        return Item(f"unusable {mark}", self._place, data={_PROBLEM: f"{problem}: {shown}"})

    def _key_of(self, data: Mapping[str, Any]) -> str | None:
        if self._key is None:
            return first_key_field(data)
        value = self._key(data)
        if value in (None, "", [], {}):
            raise LookupError("the key field is empty")
        return str(value)


def _check_timeout(seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < math.inf:
        message = f"a timeout is a positive number of seconds, not {seconds}"
        raise ValueError(message)


def first_key_field(data: Mapping[str, Any]) -> str | None:
    """Return the value of the first default key field that has one."""
    values = (data.get(name) for name in KEY_FIELDS)
    return next((str(value) for value in values if value not in (None, "", [], {})), None)


def record_as_json(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a record as the JSON that is stored; raise TypeError if a field has no JSON form."""
    data: dict[str, Any] = orjson.loads(to_json(dict(record), default=_plain_or_bytes))
    return data


def record_fingerprint(data: Mapping[str, Any]) -> str:
    """Return a short hash of a record that does not depend on the order of its fields."""
    text = orjson.dumps(data, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _plain_or_bytes(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else plain(value)
