"""A source made of an API manifest: lists are discovery; details and what is embedded, layers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, Field, create_model

from longline.config.manifests.api import ApiManifest, parts_of
from longline.config.manifests.base import problem_with
from longline.core.errors import BadOption, SkipItem, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.limits.backends.cells import Cells
from longline.sources.adapters.manifested import attributes_of, not_empty, options_of
from longline.sources.api.discovery import Discovery, Progress, scope_below
from longline.sources.api.paging import Answered, beginning, following, turn_of
from longline.sources.api.records import digest, origins_of, read_fields, select, select_one
from longline.sources.api.requests import Asker, Calls
from longline.sources.base import Options, Source, layer
from longline.sources.visit import Visit

# ---------------- Where the last complete run of a source ended, kept between its jobs


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The latest that was seen: seconds since 1970, or an integer of the API's own."""

    value: float


class Bookmarks(Protocol):
    """Bookmarks by name."""

    async def read(self, name: str) -> float | None:
        """Return where the last complete run ended; None when there was none."""

    async def write(self, name: str, value: float) -> None:
        """Keep where a run ended; one that lies behind the kept one changes nothing."""


class MemoryBookmarks(Bookmarks):
    """Bookmarks that are gone when the process ends."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    async def read(self, name: str) -> float | None:
        return self._values.get(name)

    async def write(self, name: str, value: float) -> None:
        self._values[name] = max(value, self._values.get(name, value))


class CellBookmarks(Bookmarks):
    """Bookmarks in cells, shared by all who open them."""

    def __init__(self, cells: Cells[Bookmark]) -> None:
        self._cells = cells

    async def read(self, name: str) -> float | None:
        kept, _now = await self._cells.read(name)
        return None if kept is None else kept.value

    async def write(self, name: str, value: float) -> None:
        def step(kept: Bookmark | None, _now: float) -> tuple[Bookmark, None]:
            return (kept if kept and kept.value >= value else Bookmark(value)), None

        await self._cells.change(name, step)


def bookmark_name(source: str, endpoint: str, base_url: str, parameters: Mapping[str, Any]) -> str:
    """Return the name of a bookmark: jobs share one when they ask the same of the same API."""
    return f"{source}/{endpoint}/{digest([base_url, parameters])}"


_NOT_LISTED = "it was not found by a list of this API; run the source instead of single items"


def api_source(manifest: ApiManifest) -> type[Source]:
    """Make a source of a manifest."""
    values = {
        **attributes_of(manifest),
        "kind": "api",
        "target": manifest.base_url,
        "Options": _options(manifest),
        "manifest": manifest,
    }
    parts = parts_of(manifest.endpoints)
    for name in (one for one in manifest.endpoints if one in parts):
        values[f"ask_{name}"] = _layer(name, is_optional=manifest.endpoints[name].optional)
    return type(manifest.name, (ApiSource,), values)


class ApiSource(Source):
    """Collects from an API as its manifest says."""

    manifest: ClassVar[ApiManifest]

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        parameters = self.options.model_dump()
        self._since = parameters.pop("since", None)
        self._parameters = parameters
        if problem := problem_with(self.manifest.base_url, parameters):
            raise BadOption("base_url", problem)
        self._calls = Calls(self.manifest, parameters)
        self._asker = Asker(self.manifest.endpoints)
        self._discovery = Discovery(self.manifest, self._asker, self._calls)
        self.bookmarks: Bookmarks | None = None
        """Where the last complete run ended; without it, every run begins at the start."""

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the records of the lists; after a crash, from the page it had come to.

        Raises:
            DiscoveryFailed: there was none, and neither the manifest says that this is fine nor
                was only the latest asked for.
        """
        may_be_empty = self.manifest.may_be_empty or bool(visit.cursor)
        if visit.cursor:
            progress = Progress.of(visit.cursor)
        else:
            since = {name: await self._begin(name) for name in self._discovery.roots}
            progress = self._discovery.start(since, visit.clock.now())
            may_be_empty = may_be_empty or await self._asks_for_the_latest()
        stream = self._discovery.run(visit, progress)
        if not may_be_empty:
            stream = not_empty(stream, self.name, "look at records and query")
        async with aclosing(stream) as found:
            async for one in found:
                yield one

    def cursor_to_repeat(self, last: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the first cursor with the bookmarks of that job: they have moved on since."""
        since = (last or {}).get("since")
        return (
            self._discovery.start(since, last["started"]).cursor().value if last and since else None
        )

    def identity_of(self, item: Item) -> str | None:
        return digest(item.data["record"]) if "record" in item.data else None

    async def finished(self, visit: Visit) -> None:
        """Move the bookmarks on, once every record of a complete run is committed.

        `visit.cursor` is the last one of the job: another process may have listed its records,
        before a crash. A list read in part moves nothing.
        """
        if self.bookmarks is None or not visit.cursor:
            return
        progress = Progress.of(visit.cursor)
        for name, seen in progress.marks.items() if not progress.tasks else ():
            incremental = self.manifest.endpoints[name].incremental
            # What changed while it was listed may be on a page that was read before.
            is_moment = incremental is not None and incremental.type != "integer"
            mark = min(seen, progress.started) if is_moment else seen
            await self.bookmarks.write(self._bookmark(name), mark)

    @layer()
    async def record(self, visit: Visit) -> dict[str, Any]:
        """Read the fields of the record as the list gave it; this asks for nothing."""
        data = visit.item.data
        if "problem" in data:
            raise UnexpectedShape(visit.item.url, str(data["problem"]))
        if "record" not in data:
            raise UnexpectedShape(visit.item.url, _NOT_LISTED)
        visit.address = data["page"]
        endpoint = self.manifest.endpoints[data["endpoint"]]
        scope = {"parent": data.get("above") or {}}
        found = read_fields(endpoint.fields, data["record"], scope, visit.note)
        visit.origins.update(origins_of(endpoint.fields, found, f"record {data['page']}"))
        return found

    def compose(self, item: Item, layers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Put all fields side by side; those of an optional part that failed are empty."""
        endpoint = self.manifest.endpoints[item.data["endpoint"]]
        missing = {
            name: None for name, part in endpoint.embed.items() if f"ask_{part}" not in layers
        }
        if endpoint.detail and f"ask_{endpoint.detail}" not in layers:
            missing |= dict.fromkeys(self.manifest.endpoints[endpoint.detail].fields or ())
        return {**missing, **super().compose(item, layers)}

    async def complete(self, visit: Visit, part: str) -> dict[str, Any]:
        """Ask an endpoint for what it adds to the record of this visit."""
        data = visit.item.data
        endpoint = self.manifest.endpoints[data["endpoint"]]
        scope = scope_below(data["record"], data.get("above"))
        found: dict[str, Any] = {}
        if endpoint.detail == part:
            found |= await self._detail(visit, part, scope)
        for field in (name for name, one in endpoint.embed.items() if one == part):
            found[field] = await self._embedded(visit, part, field, scope)
        return found

    async def _detail(self, visit: Visit, part: str, scope: Mapping[str, Any]) -> dict[str, Any]:
        endpoint = self.manifest.endpoints[part]
        try:
            call = self._calls.make(part, scope)
        except ValueError as error:
            raise UnexpectedShape(visit.item.url, f"{part} cannot be asked for: {error}") from error
        page, body = await self._asker.ask(visit, part, call)
        one = select_one(endpoint.records, body, page.url)
        found = read_fields(endpoint.fields, one, scope, visit.note)
        visit.origins.update(origins_of(endpoint.fields, found, f"ask_{part} {page.url}"))
        return found

    async def _embedded(
        self, visit: Visit, part: str, field: str, scope: Mapping[str, Any]
    ) -> list[dict[str, Any]] | None:
        """Return the records of all pages; None, with a note, when a rule says to skip them."""
        endpoint = self.manifest.endpoints[part]
        place, found = beginning(endpoint.pagination), list[dict[str, Any]]()

        def note(name: str, text: str) -> None:
            visit.note(f"{field}.{name}", text)

        while True:
            try:
                call = self._calls.make(part, scope, turn_of(endpoint.pagination, place))
                page, body = await self._asker.ask(visit, part, call)
            except SkipItem as error:
                visit.note(field, str(error))
                return None
            except ValueError as error:
                problem = f"{part} cannot be asked for: {error}"
                raise UnexpectedShape(visit.item.url, problem) from error
            records = select(endpoint.records, body, page.url)
            found += [read_fields(endpoint.fields, one, scope, note) for one in records]
            answered = Answered(page, body, [digest(one) for one in records])
            onward, cut = following(endpoint.pagination, place, answered, self._calls.onward)
            if cut:
                visit.note(field, cut)
                visit.cut(f"{field}: {cut}")
            if onward is None:
                return found
            place = onward

    async def _asks_for_the_latest(self) -> bool:
        """Say whether a list begins after its start: then there may be nothing new in it."""
        for name in self._discovery.roots:
            if self.manifest.endpoints[name].incremental is None:
                continue
            if self._since is not None or await self._kept(name) is not None:
                return True
        return False

    async def _kept(self, name: str) -> float | None:
        return await self.bookmarks.read(self._bookmark(name)) if self.bookmarks else None

    async def _begin(self, name: str) -> str | int | None:
        """Return where a list begins: as the user says, where the last run ended, or the start."""
        incremental = self.manifest.endpoints[name].incremental
        if incremental is None:
            return None
        if self._since is not None:
            return incremental.write(incremental.read(self._since))
        kept = await self._kept(name)
        if kept is not None:
            return incremental.write(kept - incremental.look_back)
        return (
            None
            if incremental.start is None
            else incremental.write(incremental.read(incremental.start))
        )

    def _bookmark(self, name: str) -> str:
        return bookmark_name(self.name, name, self._calls.base_url, self._parameters)


def _layer(part: str, *, is_optional: bool) -> Callable[[Any, Visit], Awaitable[Mapping[str, Any]]]:
    async def ask(self: ApiSource, visit: Visit) -> Mapping[str, Any]:
        return await self.complete(visit, part)

    ask.__name__ = f"ask_{part}"
    ask.__doc__ = f"Ask for {part}."
    return layer(needs=("record",), optional=is_optional)(ask)


def _options(manifest: ApiManifest) -> type[Options]:
    base = options_of(manifest.parameters)
    if not any(endpoint.incremental for endpoint in manifest.endpoints.values()):
        return base
    about = "Collect what changed since then, whatever was collected before."
    since: Any = (str | None, Field(default=None, description=about))
    return create_model("ApiOptions", __base__=base, since=since)
