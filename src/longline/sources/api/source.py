"""The source of an API manifest: lists are discovery; details and embedded endpoints are layers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, Field, create_model

from longline.core.errors import BadOption, SkipItem, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.limits.backends.state import StateBackend
from longline.sources.api.discovery import ApiDiscovery, Progress, child_scope
from longline.sources.api.manifest import ApiManifest, part_endpoints
from longline.sources.api.pagination import (
    PageResponse,
    first_position,
    next_position,
    page_parameters,
)
from longline.sources.api.records import (
    digest,
    field_origins,
    read_fields,
    select_record,
    select_records,
)
from longline.sources.api.requests import EndpointClient, RequestBuilder
from longline.sources.base import Options, Source, layer
from longline.sources.manifest import fail_if_empty, options_model, source_attributes, url_problem
from longline.sources.visit import Visit

_NOT_LISTED = "it was not found by a list of this API; run the source instead of single items"


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The latest change seen: seconds since 1970, or an integer of the API's own."""

    value: float


class Bookmarks:
    """Where the last complete run of a source ended, shared by the jobs of a home."""

    def __init__(self, cells: StateBackend[Bookmark]) -> None:
        self._cells = cells

    async def read(self, name: str) -> float | None:
        """Return where the last complete run ended; None when there was none."""
        bookmark, _now = await self._cells.read(name)
        return None if bookmark is None else bookmark.value

    async def write(self, name: str, value: float) -> None:
        """Store where a run ended; a value below the stored one is ignored."""

        def latest(stored: Bookmark | None, _now: float) -> tuple[Bookmark, None]:
            return (stored if stored and stored.value >= value else Bookmark(value)), None

        await self._cells.change(name, latest)


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
        self.bookmarks: Bookmarks | None = None
        """Where the last complete run ended; without it, every run begins at the start."""

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the records of the lists; after a crash, from the last page.

        Raises:
            DiscoveryFailed: there are none, `may_be_empty` is not set, and the run is not
                incremental.
        """
        may_be_empty = self.manifest.may_be_empty or bool(visit.cursor)
        if visit.cursor:
            progress = Progress.from_cursor(visit.cursor)
        else:
            since = {name: await self._starting_point(name) for name in self._discovery.roots}
            progress = self._discovery.start(since, visit.clock.now())
            may_be_empty = may_be_empty or await self._is_incremental_run()
        stream = self._discovery.run(visit, progress)
        if not may_be_empty:
            stream = fail_if_empty(stream, self.name, "check records and query")
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
            await self.bookmarks.write(self._bookmark_name(name), mark)

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
        return found

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
        endpoint = self.manifest.endpoints[data["endpoint"]]
        scope = child_scope(data["record"], data.get("above"))
        found: dict[str, Any] = {}
        if endpoint.detail == part:
            found |= await self._detail(visit, part, scope)
        for field in (name for name, one in endpoint.embed.items() if one == part):
            found[field] = await self._embedded(visit, part, field, scope)
        return found

    async def _detail(self, visit: Visit, part: str, scope: Mapping[str, Any]) -> dict[str, Any]:
        endpoint = self.manifest.endpoints[part]
        try:
            request = self._builder.build(part, scope)
        except ValueError as error:
            raise UnexpectedShape(visit.item.url, f"{part} cannot be requested: {error}") from error
        page, body = await self._client.request(visit, part, request)
        record = select_record(endpoint.records, body, page.url)
        found = read_fields(endpoint.fields, record, scope, visit.note)
        visit.origins.update(field_origins(endpoint.fields, found, f"ask_{part} {page.url}"))
        return found

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
                request = self._builder.build(part, scope, extra)
                page, body = await self._client.request(visit, part, request)
            except SkipItem as error:
                visit.note(field, str(error))
                return None
            except ValueError as error:
                problem = f"{part} cannot be requested: {error}"
                raise UnexpectedShape(visit.item.url, problem) from error
            records = select_records(endpoint.records, body, page.url)
            found += [read_fields(endpoint.fields, one, scope, note) for one in records]
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

    async def _is_incremental_run(self) -> bool:
        """Return whether a list starts after its beginning, so that it may have nothing new."""
        for name in self._discovery.roots:
            if self.manifest.endpoints[name].incremental is None:
                continue
            if self._since is not None or await self._read_bookmark(name) is not None:
                return True
        return False

    async def _starting_point(self, name: str) -> str | int | None:
        """Return where a list starts: `--set since`, the end of the last run, or `start`."""
        incremental = self.manifest.endpoints[name].incremental
        if incremental is None:
            return None
        if self._since is not None:
            return incremental.format(incremental.parse(self._since))
        bookmark = await self._read_bookmark(name)
        if bookmark is not None:
            return incremental.format(bookmark - incremental.look_back)
        if incremental.start is None:
            return None
        return incremental.format(incremental.parse(incremental.start))

    async def _read_bookmark(self, name: str) -> float | None:
        return await self.bookmarks.read(self._bookmark_name(name)) if self.bookmarks else None

    def _bookmark_name(self, endpoint: str) -> str:
        """Return the name of a bookmark: jobs with the same requests share one."""
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
