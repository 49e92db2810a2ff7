"""The template catalogue of n8n.io, or of any host that serves the same API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from longline.core.errors import FetchError
from longline.core.model import Cursor, Item
from longline.http.errors import RobotsDisallowed
from longline.pipeline.quality import QualityRules
from longline.sources.base import Source, layer
from longline.sources.catalogue.n8n.content import (
    check_image,
    list_images,
    list_videos,
    read_content,
)
from longline.sources.catalogue.n8n.inventory import from_search, from_sitemap
from longline.sources.catalogue.n8n.layers import read_metadata, read_workflow
from longline.sources.catalogue.n8n.options import N8nOptions
from longline.sources.catalogue.n8n.page import (
    EMPTY_ON_PAGES,
    TemplatePage,
    fetch_page,
    page_content,
    page_metadata,
    page_workflow,
)
from longline.sources.catalogue.n8n.record import RULES, N8nRecord
from longline.sources.catalogue.n8n.responses import Detail, fetch_detail
from longline.sources.visit import Visit

if TYPE_CHECKING:
    from longline.sources.catalogue.n8n.transcripts import Transcripts

_ANY_STATUS = frozenset(range(400, 600))
_NO_LIBRARY = (
    "transcripts need the extra 'transcripts' (pip install 'longline[transcripts]'); "
    "--set transcripts=false turns them off"
)


def has_transcript_library() -> bool:
    """Return whether the extra `transcripts` is installed."""
    return find_spec("youtube_transcript_api") is not None


class N8n(Source):
    """Every workflow template: metadata, workflow, documentation, media, transcripts.

    Between items it remembers one thing: that YouTube has turned us away.
    """

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
        self.usually_empty = _usually_empty(self.options)
        self._hosts = frozenset(
            urlsplit(address).hostname or ""
            for address in (self.options.site_url, self.options.api_url)
        )

    async def prepare(self, visit: Visit) -> None:
        """Ask the API one cheap question, so that a host that forbids it stops the job at once.

        Raises:
            RobotsDisallowed: robots.txt closes the API to us.
        """
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
            # Not every host has this address, and a host that is down is each item's to find out.
            visit.note("health", str(error))

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the templates of the chosen inventory."""
        listed = from_search if self.options.inventory == "search" else from_sitemap
        async for found in listed(visit, self.options):
            yield found

    @layer()
    async def metadata(self, visit: Visit) -> dict[str, Any]:
        """Read who published what and when."""
        if self.options.detail == "pages":
            return page_metadata(visit.item, await _fetch_page_once(visit), visit.note)
        return read_metadata(visit.item, await self._detail(visit), visit.note)

    @layer()
    async def workflow(self, visit: Visit) -> dict[str, Any]:
        """Read and count the workflow itself."""
        if self.options.detail == "pages":
            return dict(page_workflow(visit.note))
        return read_workflow(await self._detail(visit), visit.note)

    @layer()
    async def content(self, visit: Visit) -> dict[str, Any]:
        """Read the description and the sticky notes."""
        if self.options.detail == "pages":
            return page_content(await _fetch_page_once(visit), visit.note)
        return read_content(await self._detail(visit), visit.note)

    @layer(needs=("content",), optional=True)
    async def media(self, visit: Visit) -> dict[str, Any]:
        """List the images and videos, each once; look at the images when asked to."""
        content = visit.results["content"]
        images = list_images(content["image_references"], visit.item.url, visit.note)
        if self.options.images == "check":
            for image in images:
                image.update(await check_image(visit, image["url"], self._hosts))
        return {"images": images, "videos": list_videos(content["video_references"])}

    @layer(needs=("media",), optional=True)
    async def transcripts(self, visit: Visit) -> dict[str, Any]:
        """Ask for a transcript of each video; one that cannot be had is an outcome, too."""
        if not self.options.transcripts:
            visit.note("transcripts", "switched off with transcripts=false")
            return {"transcripts": None}
        videos = visit.results["media"]["videos"]
        if videos and not has_transcript_library():
            visit.note("transcripts", _NO_LIBRARY)
            visit.warn(_NO_LIBRARY)
            return {"transcripts": None}
        return {"transcripts": [await self._transcripts.fetch(visit, v["id"]) for v in videos]}

    @cached_property
    def _transcripts(self) -> Transcripts:
        # The YouTube library and requests take 5 MB; most templates have no video.
        from longline.sources.catalogue.n8n.transcripts import Transcripts  # noqa: PLC0415

        return Transcripts(self.options.youtube_url, self.options.language)

    async def _detail(self, visit: Visit) -> Detail:
        api_url = self.options.api_url
        return await visit.once("detail", lambda visit: fetch_detail(visit, api_url))


def _usually_empty(options: N8nOptions) -> frozenset[str]:
    """Return the fields that the chosen inventory and detail do not tell, or seldom."""
    seldom = {"review_status", "ready_to_demo", "updated_at", "difficulty"}
    # Most templates are free, and only the search says so.
    seldom |= {"price", "purchase_url", "is_paid"}
    if options.inventory == "search":
        seldom.add("slug")
    if not options.transcripts:
        seldom.add("transcripts")
    return frozenset(seldom | EMPTY_ON_PAGES if options.detail == "pages" else seldom)


async def _fetch_page_once(visit: Visit) -> TemplatePage:
    return await visit.once("page", fetch_page)
