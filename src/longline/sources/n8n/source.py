"""The template catalogue of n8n.io, or of any host that serves the same API."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from longline.core.errors import DiscoveryFailed, FetchError, Gone, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.http.errors import RobotsDisallowed
from longline.pipeline.quality import CrossCheck, Expect, QualityRules
from longline.sources.base import Options, Source, Visit, layer
from longline.sources.html.sitemaps import Sitemap, read_sitemap
from longline.sources.n8n.content import (
    EMPTY_ON_PAGES,
    NOT_ON_PAGES,
    TemplatePage,
    fetch_page,
    list_images,
    list_videos,
    page_content,
    page_metadata,
    read_content,
)
from longline.sources.n8n.template import (
    WORKFLOW_FIELDS,
    Detail,
    fetch_detail,
    note_empty,
    parse_template_url,
    read_metadata,
    read_workflow,
)

if TYPE_CHECKING:
    from longline.sources.n8n.transcripts import Transcripts

_ANY_STATUS = frozenset(range(400, 600))
_NO_LIBRARY = (
    "transcripts need the extra 'transcripts' (pip install 'longline[transcripts]'); "
    "--set transcripts=false turns them off"
)
_WORKFLOW_SITEMAP = re.compile(r"/sitemap[-_]workflows[^/]*\.xml$")
_MAX_STALE_PAGES = 3
"""Pages in a row without a new template after which the search repeats itself."""
_SEARCH_FIELDS = {"price": "price", "purchaseUrl": "purchase_url", "totalViews": "total_views"}
_LONG_DESCRIPTION = 100  # characters of a description with the full score
_DEFAULT_NAME = re.compile(r"my workflow( \d+)?$")
_WORD = re.compile(r"[^\W_]{3,}")


def has_transcript_library() -> bool:
    """Return whether the extra `transcripts` is installed."""
    return find_spec("youtube_transcript_api") is not None


def _check_host_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.query or parts.fragment:
        message = f"{value!r} is not a URL like https://example.org, without ? and #"
        raise ValueError(message)
    return value.rstrip("/")


_BaseUrl = Annotated[str, AfterValidator(_check_host_url)]


class N8nOptions(Options):
    """Where the catalogue is, how it is listed, and what is collected of each template."""

    site_url: _BaseUrl = "https://n8n.io"
    """URL of the site with the pages and the sitemap."""
    api_url: _BaseUrl = "https://api.n8n.io/api"
    """URL of the template API; any host with the same API works."""
    youtube_url: _BaseUrl = "https://www.youtube.com"
    """Base URL for transcripts."""
    inventory: Literal["sitemap", "search"] = "sitemap"
    """How templates are found: by the sitemap, or by the search of the API."""
    detail: Literal["api", "pages"] = "api"
    """Where each is read: from the API, or from its public page (without the workflow)."""
    transcripts: bool = True
    """Fetch a transcript for each video."""
    language: str = Field("en", min_length=2)
    """Preferred language of transcripts."""
    rows: int = Field(100, ge=1, le=100)
    """Templates per page of the search; n8n.io accepts at most 100."""
    search: str = ""
    """Words to search for; needs inventory=search."""
    category: str = ""
    """Names of categories, comma-separated (ids match nothing); needs inventory=search."""

    @field_validator("search", "category")
    @classmethod
    def _check_inventory(cls, value: str, info: ValidationInfo) -> str:
        if value and info.data.get("inventory") != "search":
            message = "the sitemap cannot be filtered; add --set inventory=search"
            raise ValueError(message)
        return value


_TRANSIENT = frozenset({"disallowed", "blocked", "failed"})
"""Outcomes of transcripts that may change."""


class N8nRecord(BaseModel):
    """One template; other fields are accepted as they are."""

    model_config = ConfigDict(extra="allow")

    id: Annotated[StrictInt, Field(gt=0)]
    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    url: str
    workflow: dict[str, Any] | None


def _final_share(transcripts: Any) -> float:
    """Return the share of videos whose outcome is final; one without captions is."""
    if not transcripts:
        return 0.0
    return sum(one.get("outcome") not in _TRANSIENT for one in transcripts) / len(transcripts)


def _has_same_id(key: Any, url: str) -> bool | None:
    found = parse_template_url(url)
    return None if found is None else found[0] == key


def _is_similar(title: str, other: Any) -> bool | None:
    """Return whether two titles share a word: authors often rename a workflow to publish it."""
    title, other = title.strip().lower(), str(other).strip().lower()
    if not other or _DEFAULT_NAME.match(other):
        return None
    return title == other or bool({*_WORD.findall(title)} & {*_WORD.findall(other)})


def _has_same_count(count: int, declared: Any, types: Mapping[str, Any]) -> bool:
    # The site's count includes a start node that its list of types no longer has.
    return count in (declared, sum(n for n in types.values() if isinstance(n, int)))


RULES = QualityRules(
    layers={"metadata": 20, "workflow": 30, "content": 25, "media": 5, "transcripts": 5},
    expects=(
        Expect("metadata", "title", 4),
        Expect("metadata", "author", 2),
        Expect("metadata", "categories", 2),
        Expect("metadata", "created_at"),
        Expect("metadata", "total_views"),
        Expect("workflow", "workflow", 4),
        Expect("workflow", "node_count", 3, bool),
        Expect(
            "workflow",
            "connection_count",
            1,
            bool,
            when=lambda data: (
                (data.get("node_count") or 0) - (data.get("sticky_note_count") or 0) > 1
            ),
        ),
        Expect("content", "description", 2, when=lambda data: data.get("endpoint") != "page"),
        Expect(
            "content",
            "description_text",
            4,
            lambda text: min(1.0, len(text or "") / _LONG_DESCRIPTION),
        ),
        Expect(
            "transcripts",
            "transcripts",
            1,
            _final_share,
            when=lambda data: bool(data.get("videos")) and data.get("transcripts") is not None,
        ),
    ),
    checks=(
        CrossCheck("id", ("id", "url"), _has_same_id),
        CrossCheck("workflow name", ("title", "workflow_name"), _is_similar, weight=0.5),
        CrossCheck("page title", ("title", "page_title"), _is_similar),
        CrossCheck(
            "node count",
            ("node_count", "declared_node_count", "declared_node_types"),
            _has_same_count,
        ),
        CrossCheck("node types", ("node_types", "declared_node_types"), dict.__eq__),
        CrossCheck(
            "nodes read",
            ("node_types", "node_count"),
            lambda types, count: sum(types.values()) == count,
        ),
    ),
    consistency=15,
)


class N8n(Source):
    """Every workflow template: metadata, workflow, documentation, media, transcripts."""

    name = "n8n"
    Options = N8nOptions
    Record = N8nRecord
    rate = 2.0
    burst = 5
    volatile = frozenset({"views", "recent_views", "total_views"})
    quality_rules: ClassVar[QualityRules] = RULES

    options: N8nOptions

    def __init__(self, options: N8nOptions | None = None) -> None:
        super().__init__(options)
        # Most templates are free, and only search results have a price.
        rare = {"review_status", "ready_to_demo", "updated_at", "difficulty"}
        rare |= {"price", "purchase_url", "is_paid"}
        if self.options.inventory == "search":
            rare.add("slug")
        if not self.options.transcripts:
            rare.add("transcripts")
        if self.options.detail == "pages":
            rare |= EMPTY_ON_PAGES
        self.usually_empty = frozenset(rare)

    async def prepare(self, visit: Visit) -> None:
        """Send one request to the API, so that a host that forbids it stops the job."""
        if self.options.detail == "pages" and self.options.inventory == "sitemap":
            return
        try:
            await visit.fetch(f"{self.options.api_url}/health", accept=_ANY_STATUS)
        except RobotsDisallowed as error:
            advice = "the public pages may be read instead: --set detail=pages"
            if self.options.inventory == "search":
                advice += " --set inventory=sitemap"
            raise RobotsDisallowed(error.url, f"{error.reason}; {advice}") from error
        except FetchError as error:
            # Not every host has this URL; if the host is down, the items report it.
            visit.note("health", str(error))

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the templates of the chosen inventory."""
        if self.options.inventory == "search":
            async for found in _discover_by_search(visit, self.options):
                yield found
            return
        for item in await _discover_by_sitemap(visit, self.options.site_url):
            yield item

    @layer()
    async def metadata(self, visit: Visit) -> dict[str, Any]:
        """Read author, dates, views, categories and price."""
        if self.options.detail == "pages":
            return page_metadata(visit.item, await self._template_page(visit), visit.note)
        return read_metadata(visit.item, await self._template_detail(visit), visit.note)

    @layer()
    async def workflow(self, visit: Visit) -> dict[str, Any]:
        """Read the workflow and count its nodes."""
        if self.options.detail == "pages":
            # Scripts of the page load the workflow from the API.
            return note_empty(dict.fromkeys(WORKFLOW_FIELDS), NOT_ON_PAGES, visit.note)
        return read_workflow(await self._template_detail(visit), visit.note)

    @layer()
    async def content(self, visit: Visit) -> dict[str, Any]:
        """Read the description and the sticky notes."""
        if self.options.detail == "pages":
            return page_content(await self._template_page(visit), visit.note)
        return read_content(await self._template_detail(visit), visit.note)

    @layer(needs=("content",), optional=True)
    async def media(self, visit: Visit) -> dict[str, Any]:
        """List the images and videos, each once."""
        content = visit.results["content"]
        images = list_images(content["image_references"], visit.item.url, visit.note)
        return {"images": images, "videos": list_videos(content["video_references"])}

    @layer(needs=("media",), optional=True)
    async def transcripts(self, visit: Visit) -> dict[str, Any]:
        """Fetch a transcript of each video, or the reason why there is none."""
        videos = visit.results["media"]["videos"]
        if not self.options.transcripts:
            visit.note("transcripts", "switched off with transcripts=false")
            return {"transcripts": None}
        if videos and not has_transcript_library():
            visit.note("transcripts", _NO_LIBRARY)
            visit.warn(_NO_LIBRARY)
            return {"transcripts": None}
        return {"transcripts": [await self._transcripts.fetch(visit, v["id"]) for v in videos]}

    @cached_property
    def _transcripts(self) -> Transcripts:
        # The YouTube library and requests take 5 MB; most templates have no video.
        from longline.sources.n8n.transcripts import Transcripts  # noqa: PLC0415

        return Transcripts(self.options.youtube_url, self.options.language)

    async def _template_detail(self, visit: Visit) -> Detail:
        api_url = self.options.api_url
        return await visit.once("detail", lambda visit: fetch_detail(visit, api_url))

    async def _template_page(self, visit: Visit) -> TemplatePage:
        return await visit.once("page", fetch_page)


async def _discover_by_sitemap(visit: Visit, site: str) -> list[Item]:
    """Return every template in the sitemap; raise DiscoveryFailed if there is none."""
    parts = [f"{site}/sitemap-workflows.xml"]
    with suppress(Gone):
        index = await _read_site_sitemap(visit, f"{site}/sitemap_index.xml")
        named = [url for url in index.urls if _WORKFLOW_SITEMAP.search(urlsplit(url).path)]
        parts = [_on_site(url, site) for url in named] or parts
    items: dict[int, Item] = {}
    for part in dict.fromkeys(parts):
        try:
            sitemap = await _read_site_sitemap(visit, part)
        except Gone as error:
            problem = f"{error}; a host without a sitemap can be listed with --set inventory=search"
            raise DiscoveryFailed("n8n", problem) from error
        for url in sitemap.urls:
            if (found := parse_template_url(url)) is not None and found[0] not in items:
                key, slug = found
                data = {} if slug is None else {"slug": slug}
                items[key] = Item(str(key), _on_site(url, site), data=data)
    if not items:
        raise DiscoveryFailed("n8n", f"the sitemaps of {site} list no template")
    return list(items.values())


async def _read_site_sitemap(visit: Visit, url: str) -> Sitemap:
    sitemap = read_sitemap(await visit.fetch(url))
    if sitemap.problem:
        visit.cut(f"the sitemap {url} is incomplete: {sitemap.problem}")
    return sitemap


def _on_site(url: str, site: str) -> str:
    """Return the URL on the site that the user chose: a mirror may list the original's URLs."""
    return url if urlsplit(url).netloc == urlsplit(site).netloc else site + urlsplit(url).path


async def _discover_by_search(visit: Visit, options: N8nOptions) -> AsyncIterator[Item | Cursor]:
    """Yield every template of the search, with a cursor after each page."""
    # The list may have shrunk since a crash, so the last page is read again.
    cursor = visit.cursor or {}
    page = cursor.get("page", 1)
    before = cursor.get("before", 0)  # templates on the pages before the first one read here
    seen: set[int] = set()
    stale = 0
    while stale < _MAX_STALE_PAGES:
        total, rows = await _search_page(visit, options, page)
        items = _search_items(rows, options.site_url)
        # The list shifts while it is read: a template may be on two pages.
        new = {key: item for key, item in items if key not in seen}
        for item in new.values():
            yield item
        cursor = {"page": page, "before": before + len(seen)}
        seen |= new.keys()
        listed = before + len(seen)
        if invalid := len(rows) - len(items):
            visit.cut(f"the search lists {invalid} templates without an id on page {page}")
        if not rows and total is not None and listed < total:
            visit.cut(f"the search counts {total} templates and lists {listed}")
        yield Cursor(cursor)
        if not rows or (total is not None and len(seen) >= total):
            return
        stale = 0 if new else stale + 1
        page += 1
    problem = f"the search of {options.api_url} repeats itself after {len(seen)} templates"
    raise DiscoveryFailed("n8n", problem)


async def _search_page(
    visit: Visit, options: N8nOptions, page: int
) -> tuple[int | None, list[Any]]:
    # Newest first: a new template moves others to later pages, so that none is missed.
    params: dict[str, str | int] = {
        "page": page,
        "rows": options.rows,
        "sort": "createdAt:desc",
        **{name: value for name in ("search", "category") if (value := getattr(options, name))},
    }
    response = await visit.fetch(f"{options.api_url}/templates/search", params=params)
    found = response.json
    if not isinstance(found, dict) or not isinstance(found.get("workflows"), list):
        raise UnexpectedShape(response.url, "no list of workflows in the search response")
    total = found.get("totalWorkflows")
    return (total if isinstance(total, int) else None), found["workflows"]


def _search_items(rows: list[Any], site: str) -> list[tuple[int, Item]]:
    """Return the ids and items of the search results that have an id."""
    found = []
    for row in rows:
        key = row.get("id") if isinstance(row, Mapping) else None
        if isinstance(key, int) and key > 0:
            data = {ours: row[theirs] for theirs, ours in _SEARCH_FIELDS.items() if theirs in row}
            found.append((key, Item(str(key), f"{site}/workflows/{key}", data=data)))
    return found
