"""The source of an API manifest: lists are discovery; details and embedded endpoints are layers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, ClassVar
from urllib.parse import urljoin

from pydantic import BaseModel, Field, create_model

from longline.config.expressions import find, look_up
from longline.core.errors import BadOption, FailureKind, FetchError, SkipItem, UnexpectedShape
from longline.core.json import is_too_deep
from longline.core.model import Cursor, Item
from longline.core.threads import off_loop
from longline.http.messages import Page, without_userinfo
from longline.limits.backends.state import StateBackend
from longline.sources.api.manifest import ApiManifest, Endpoint, part_endpoints
from longline.sources.api.pagination import (
    PageParameters,
    PageResponse,
    Position,
    first_position,
    next_position,
    page_parameters,
)
from longline.sources.api.records import (
    describe_value,
    digest,
    field_origins,
    read_fields,
    record_key,
    select_record,
    select_records,
)
from longline.sources.api.requests import EndpointClient, RequestBuilder
from longline.sources.base import Options, Source, Visit, layer
from longline.sources.files import download_files
from longline.sources.manifest import fail_if_empty, options_model, source_attributes, url_problem

_CONCURRENT_LISTS = 8
_MAX_DIGESTS = 200_000  # records beyond this many are not checked for keys with different data
_SAME_KEY_OTHER_DATA = (
    "records on different pages have the same key and different data, and only the first is kept; "
    "the key may not be specific enough, or records changed during the run"
)
_SAME_KEY_ON_PAGE = "several records on one page have the same key, and only one of them is kept"


@dataclass(frozen=True, slots=True)
class ListTask:
    """One page of one list; `above` holds the fields of the parent record that it needs."""

    endpoint: str
    above: Mapping[str, Any] | None = None
    since: str | int | None = None
    place: Position = field(default_factory=Position)

    @property
    def scope(self) -> dict[str, Any]:
        """Values of names in braces, besides the parameters."""
        return {"parent": self.above or {}, "since": self.since}


@dataclass(slots=True)
class Progress:
    """Progress of discovery: remaining tasks, start time, and the latest change seen."""

    tasks: list[ListTask]
    started: float
    marks: dict[str, float] = field(default_factory=dict)
    since: Mapping[str, str | int] = field(default_factory=dict)
    """Starting point of each incremental list, which is needed to repeat the discovery."""

    def cursor(self) -> Cursor:
        values: dict[str, Any] = {
            "tasks": [asdict(task) for task in self.tasks],
            "started": self.started,
            "marks": dict(self.marks),
        }
        return Cursor({**values, "since": dict(self.since)} if self.since else values)

    @classmethod
    def from_cursor(cls, cursor: Mapping[str, Any]) -> Progress:
        tasks = [
            ListTask(**{**values, "place": Position(**values["place"])})
            for values in cursor["tasks"]
        ]
        return cls(tasks, cursor["started"], dict(cursor["marks"]), cursor.get("since", {}))


@dataclass(frozen=True, slots=True)
class _ListPage:
    """A received page: its URL, its records, and the position of the next page."""

    task: ListTask
    url: str = ""
    records: tuple[Any, ...] = ()
    next_place: Position | None = None
    size_bytes: int = 0


class ApiDiscovery:
    """Lists the records of an API for one run."""

    def __init__(
        self, manifest: ApiManifest, client: EndpointClient, builder: RequestBuilder
    ) -> None:
        self._endpoints = manifest.endpoints
        self._client = client
        self._builder = builder
        self._noted: set[tuple[str, str]] = set()
        self._digests: dict[str, str] = {}
        parts = part_endpoints(manifest.endpoints)
        lists = {name: one for name, one in manifest.endpoints.items() if name not in parts}
        self._children = {
            name: [child for child, one in lists.items() if one.parent == name] for name in lists
        }
        # Records of several endpoints may have the same key.
        self._prefixes_keys = sum(one.collect for one in lists.values()) > 1
        self.roots = [name for name, one in lists.items() if one.parent is None]

    def start(self, since: Mapping[str, str | int | None], at: float) -> Progress:
        """Return the first page of each list without a parent as the initial progress."""
        tasks = [
            ListTask(
                name,
                since=since.get(name),
                place=first_position(self._endpoints[name].pagination),
            )
            for name in reversed(self.roots)
        ]
        given = {name: value for name, value in since.items() if value is not None}
        return Progress(tasks, at, since=given)

    async def run(self, visit: Visit, progress: Progress) -> AsyncGenerator[Item | Cursor, None]:
        """Yield the items of the remaining tasks, and a cursor after each step."""
        while progress.tasks:
            count = min(_CONCURRENT_LISTS, len(progress.tasks))
            batch = [progress.tasks.pop() for _ in range(count)]
            more: list[ListTask] = []
            for page in await self._request_all(visit, batch):
                for item in self._items(page, visit):
                    yield item
                await off_loop(page.size_bytes, self._update_marks, page, progress, visit)
                for child in await off_loop(page.size_bytes, self._children_of, page):
                    if isinstance(child, Item):
                        yield child
                    else:
                        more.append(child)
                if page.next_place:
                    more.append(replace(page.task, place=page.next_place))
            progress.tasks.extend(reversed(more))
            yield progress.cursor()

    async def _request_all(self, visit: Visit, batch: list[ListTask]) -> list[_ListPage]:
        try:
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(self._request_list_page(visit, task)) for task in batch
                ]
        except ExceptionGroup as several:
            # The engine handles single errors, not groups: the first one represents all.
            first = several.exceptions[0]
            raise first from first.__cause__
        return [one.result() for one in running]

    async def _request_list_page(self, visit: Visit, task: ListTask) -> _ListPage:
        endpoint = self._endpoints[task.endpoint]
        extra = page_parameters(endpoint.pagination, task.place)
        since = endpoint.incremental.parameter if endpoint.incremental else None
        if since is not None and task.since is not None:
            extra = replace(extra, query={since: task.since, **extra.query})
        try:
            request = self._builder.build(task.endpoint, task.scope, extra)
            page, body = await self._client.request(visit, task.endpoint, request)
            return await off_loop(len(page.body), self._read_page, visit, task, page, body)
        except SkipItem as error:
            problem = str(error)
        except FetchError as error:
            if error.kind is not FailureKind.GONE or task.above is None:
                raise
            problem = str(error)  # the parent record has been removed meanwhile
        visit.note(task.endpoint, problem)
        if task.place.pages:
            # A missing list may be intended; a list that breaks off is incomplete.
            visit.cut(f"{task.endpoint}: the list ended after {task.place.pages} pages: {problem}")
        return _ListPage(task)

    def _read_page(self, visit: Visit, task: ListTask, page: Page, body: Any) -> _ListPage:
        endpoint = self._endpoints[task.endpoint]
        records = select_records(endpoint.records, body, page.url)
        keys = []
        for record in records:
            try:
                keys.append(record_key(endpoint.key or (), record, task.scope) or digest(record))
            except ValueError:
                keys.append(digest(record))
        if len(set(keys)) < len(keys):
            self._warn_once(visit, task.endpoint, _SAME_KEY_ON_PAGE)
        response = PageResponse(page, body, keys)
        place, cut = next_position(endpoint.pagination, task.place, response, self._builder.resolve)
        if cut:
            visit.cut(f"{task.endpoint}: {cut}")
        return _ListPage(task, page.url, tuple(records), place, len(page.body))

    def _items(self, page: _ListPage, visit: Visit) -> Iterator[Item]:
        name, endpoint = page.task.endpoint, self._endpoints[page.task.endpoint]
        if not endpoint.collect:
            return
        is_any_deep = is_too_deep(page.records)
        for number, record in enumerate(page.records):
            data: dict[str, Any] = {"endpoint": name, "page": page.url}
            try:
                key = record_key(endpoint.key or (), record, page.task.scope)
                key = f"{name}:{key}" if self._prefixes_keys else key
                problem = None
            except ValueError as error:
                key, problem = "", str(error)
            if is_any_deep and is_too_deep(record):
                data["problem"] = "it has a value that is nested too deeply to be stored"
                yield Item(key or f"{name} {page.url} {number}", page.url, data=data)
                continue
            data["record"] = record
            if page.task.above is not None:
                data["above"] = dict(page.task.above)
            if problem is not None:
                # Not lost: the item is quarantined with the reason.
                data["problem"] = problem
                yield Item(f"{name} {digest(record)}", page.url, data=data)
                continue
            mark = digest(record)
            is_kept = key in self._digests or len(self._digests) < _MAX_DIGESTS
            if is_kept and self._digests.setdefault(key, mark) != mark:
                self._warn_once(visit, name, _SAME_KEY_OTHER_DATA)
            yield Item(key, self._record_url(endpoint, record, page), data=data)

    def _record_url(self, endpoint: Endpoint, record: Any, page: _ListPage) -> str:
        try:
            own = find(endpoint.url, record) if endpoint.url else None
            if isinstance(own, str) and own:
                return urljoin(page.url, without_userinfo(own))
            if endpoint.detail:
                scope = child_scope(record, page.task.above)
                return self._builder.build(endpoint.detail, scope).url
        except (ValueError, UnexpectedShape):
            pass  # the layer that requests the detail reports the problem
        return page.url

    def _children_of(self, page: _ListPage) -> list[ListTask | Item]:
        """Return the tasks of child lists; an item with the problem of one that is impossible."""
        children: list[ListTask | Item] = []
        for record, name in product(page.records, self._children[page.task.endpoint]):
            known = child_scope(record, page.task.above)
            above: dict[str, Any] = {}
            for wanted in self._needed_names(name):
                if (value := look_up(wanted, known)) is not None:
                    *steps, last = wanted.split(".")[1:]
                    target = above
                    for step in steps:
                        target = target.setdefault(step, {})
                    target[last] = value
            task = ListTask(name, above, place=first_position(self._endpoints[name].pagination))
            try:
                self._builder.build(name, task.scope)
                children.append(task)
            except (ValueError, UnexpectedShape) as error:
                problem = f"{name} cannot be requested for {describe_value(record)}: {error}"
                data = {"endpoint": name, "page": page.url, "problem": problem}
                children.append(Item(f"{name} below {digest(record)}", page.url, data=data))
        return children

    def _needed_names(self, name: str) -> list[str]:
        """Return the names of the parent record that a list and its child lists need."""
        below = [self._endpoints[part].parent_names() for part in self._endpoints[name].parts]
        below += [self._needed_names(child) for child in self._children.get(name, ())]
        further = [one.removeprefix("parent.") for names in below for one in names]
        own = self._endpoints[name].parent_names()
        return list(dict.fromkeys([*own, *(one for one in further if one.startswith("parent."))]))

    def _update_marks(self, page: _ListPage, progress: Progress, visit: Visit) -> None:
        """Keep the latest change among the records; one that cannot be read is ignored."""
        name = page.task.endpoint
        incremental = self._endpoints[name].incremental
        if incremental is None:
            return
        for record in page.records:
            try:
                value = incremental.parse(find(incremental.field, record))
            except ValueError as error:
                self._note_once(visit, name, f"incremental by {incremental.field!r}: {error}")
                continue
            progress.marks[name] = max(value, progress.marks.get(name, value))

    def _warn_once(self, visit: Visit, name: str, text: str) -> None:
        self._note_once(visit, name, text)
        visit.warn(f"{name}: {text}")

    def _note_once(self, visit: Visit, name: str, text: str) -> None:
        about = (name, text.partition(":")[0])
        if about not in self._noted:
            self._noted.add(about)
            visit.note(name, text)


def child_scope(record: Any, above: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values of names in braces below a record: parent, and parent.parent."""
    fields = dict(record) if isinstance(record, Mapping) else {"value": record}
    return {"parent": {**fields, **({"parent": above} if above else {})}}


_NOT_LISTED = "no list of this API contains it; run the source instead of single items"


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The latest change seen: seconds since 1970, or an integer of the API's own."""

    value: float


def _latest(value: float, stored: Bookmark | None, _now: float) -> tuple[Bookmark, None]:
    """Return the later of two bookmarks: none moves back."""
    return (stored if stored and stored.value >= value else Bookmark(value)), None


def api_source(manifest: ApiManifest) -> type[Source]:
    """Return the source class of a manifest."""
    values = {
        **source_attributes(manifest),
        "kind": "api",
        "target": manifest.base_url,
        "Options": _options_model(manifest),
        "manifest": manifest,
    }
    parts = part_endpoints(manifest.endpoints)
    for name in (one for one in manifest.endpoints if one in parts):
        values[f"ask_{name}"] = _part_layer(name, is_optional=manifest.endpoints[name].optional)
    return type(manifest.name, (ApiSource,), values)


class ApiSource(Source):
    """Collects from an API according to its manifest."""

    manifest: ClassVar[ApiManifest]

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        parameters = self.options.model_dump()
        self._since = parameters.pop("since", None)
        self._parameters = parameters
        if problem := url_problem(self.manifest.base_url, parameters):
            raise BadOption("base_url", problem)
        self._builder = RequestBuilder(self.manifest, parameters)
        self._client = EndpointClient(self.manifest.endpoints)
        self._discovery = ApiDiscovery(self.manifest, self._client, self._builder)
        self.bookmarks: StateBackend[Bookmark] | None = None
        """Where the last complete run ended; without it, every run begins at the start."""

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the records of the lists; after a crash, from the last page."""
        may_be_empty = self.manifest.may_be_empty or bool(visit.cursor)
        if visit.cursor:
            progress = Progress.from_cursor(visit.cursor)
        else:
            since: dict[str, str | int | None] = {}
            for name in self._discovery.roots:
                since[name], is_later = await self._starting_point(name)
                may_be_empty = may_be_empty or is_later
            progress = self._discovery.start(since, visit.clock.now())
        stream = self._discovery.run(visit, progress)
        advice = "check records and query"
        stream = fail_if_empty(stream, self.name, advice, may_be_empty=may_be_empty)
        async with aclosing(stream) as found:
            async for one in found:
                yield one

    def cursor_to_repeat(self, last: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the first cursor with the starting points of that job, which have moved since."""
        since = (last or {}).get("since")
        if not last or not since:
            return None
        return self._discovery.start(since, last["started"]).cursor().value

    def identity_of(self, item: Item) -> str | None:
        return digest(item.data["record"]) if "record" in item.data else None

    async def finished(self, visit: Visit) -> None:
        """Advance the bookmarks after every record of a complete run is committed.

        `visit.cursor` is the last one of the job: another process may have listed its records
        before a crash. A partly read list advances nothing.
        """
        if self.bookmarks is None or not visit.cursor:
            return
        progress = Progress.from_cursor(visit.cursor)
        for name, seen in progress.marks.items() if not progress.tasks else ():
            incremental = self.manifest.endpoints[name].incremental
            # A record that changed during the run may be on a page that was read before.
            is_time = incremental is not None and incremental.type != "integer"
            mark = min(seen, progress.started) if is_time else seen
            await self.bookmarks.change(self._bookmark_name(name), partial(_latest, mark))

    @layer()
    async def record(self, visit: Visit) -> dict[str, Any]:
        """Read the fields of the listed record, without a request."""
        data = visit.item.data
        if "problem" in data:
            raise UnexpectedShape(visit.item.url, str(data["problem"]))
        if "record" not in data:
            raise UnexpectedShape(visit.item.url, _NOT_LISTED)
        visit.address = data["page"]
        endpoint = self.manifest.endpoints[data["endpoint"]]
        scope = {"parent": data.get("above") or {}}
        found = read_fields(endpoint.fields, data["record"], scope, visit.note)
        visit.origins.update(field_origins(endpoint.fields, found, f"record {data['page']}"))
        return await download_files(visit, endpoint.fields or {}, found, data["page"])

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Merge the fields of all layers; those of an optional part that failed are empty."""
        endpoint = self.manifest.endpoints[item.data["endpoint"]]
        missing = {
            name: None for name, part in endpoint.embed.items() if f"ask_{part}" not in layers
        }
        if endpoint.detail and f"ask_{endpoint.detail}" not in layers:
            missing |= dict.fromkeys(self.manifest.endpoints[endpoint.detail].fields or ())
        return {**missing, **super().compose(item, layers)}

    async def request_part(self, visit: Visit, part: str) -> dict[str, Any]:
        """Request an endpoint that adds fields to the record of this visit."""
        data = visit.item.data
        endpoint, own = self.manifest.endpoints[data["endpoint"]], self.manifest.endpoints[part]
        scope = child_scope(data["record"], data.get("above"))
        found: dict[str, Any] = {}
        if endpoint.detail == part:
            page, body = await self._request_endpoint(visit, part, scope)
            record = select_record(own.records, body, page.url)
            found |= read_fields(own.fields, record, scope, visit.note)
            visit.origins.update(field_origins(own.fields, found, f"ask_{part} {page.url}"))
            found = await download_files(visit, own.fields or {}, found, page.url)
        for name in (name for name, one in endpoint.embed.items() if one == part):
            found[name] = await self._embedded(visit, part, name, scope)
        return found

    async def _request_endpoint(
        self,
        visit: Visit,
        part: str,
        scope: Mapping[str, Any],
        extra: PageParameters | None = None,
    ) -> tuple[Page, Any]:
        try:
            request = self._builder.build(part, scope, extra)
        except ValueError as error:
            raise UnexpectedShape(visit.item.url, f"{part} cannot be requested: {error}") from error
        return await self._client.request(visit, part, request)

    async def _embedded(
        self, visit: Visit, part: str, field: str, scope: Mapping[str, Any]
    ) -> list[dict[str, Any]] | None:
        """Return the records of all pages; None, with a note, when a handler skips them."""
        endpoint = self.manifest.endpoints[part]
        position, found = first_position(endpoint.pagination), list[dict[str, Any]]()

        def note(name: str, text: str) -> None:
            visit.note(f"{field}.{name}", text)

        while True:
            extra = page_parameters(endpoint.pagination, position)
            try:
                page, body = await self._request_endpoint(visit, part, scope, extra)
            except SkipItem as error:
                visit.note(field, str(error))
                return None
            records = select_records(endpoint.records, body, page.url)
            for one in records:
                values = read_fields(endpoint.fields, one, scope, note)
                place = f"{field}[{len(found)}]."
                found.append(
                    await download_files(visit, endpoint.fields or {}, values, page.url, place)
                )
            response = PageResponse(page, body, [digest(one) for one in records])
            following, cut = next_position(
                endpoint.pagination, position, response, self._builder.resolve
            )
            if cut:
                visit.note(field, cut)
                visit.cut(f"{field}: {cut}")
            if following is None:
                return found
            position = following

    async def _starting_point(self, name: str) -> tuple[str | int | None, bool]:
        """Return where a list starts, and whether it may have nothing new since then.

        That is `--set since`, the end of the last run, or `start`.
        """
        incremental = self.manifest.endpoints[name].incremental
        if incremental is None:
            return None, False
        if self._since is not None:
            return incremental.format(incremental.parse(self._since)), True
        if self.bookmarks is not None:
            bookmark, _now = await self.bookmarks.read(self._bookmark_name(name))
            if bookmark is not None:
                return incremental.format(bookmark.value - incremental.look_back), True
        if incremental.start is None:
            return None, False
        return incremental.format(incremental.parse(incremental.start)), False

    def _bookmark_name(self, endpoint: str) -> str:
        # Jobs with the same requests share one.
        return f"{self.name}/{endpoint}/{digest([self._builder.base_url, self._parameters])}"


def _part_layer(
    part: str, *, is_optional: bool
) -> Callable[[Any, Visit], Awaitable[Mapping[str, Any]]]:
    async def request(self: ApiSource, visit: Visit) -> Mapping[str, Any]:
        return await self.request_part(visit, part)

    request.__name__ = f"ask_{part}"
    request.__doc__ = f"Request {part}."
    return layer(needs=("record",), optional=is_optional)(request)


def _options_model(manifest: ApiManifest) -> type[Options]:
    base = options_model(manifest.parameters)
    if not any(endpoint.incremental for endpoint in manifest.endpoints.values()):
        return base
    about = "Collect what changed since then, regardless of earlier runs."
    since: Any = (str | None, Field(default=None, description=about))
    return create_model("ApiOptions", __base__=base, since=since)
