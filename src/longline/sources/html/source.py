"""A manifest of HTML pages as a source: selectors are made ready once, pages are read with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from longline.config.manifests.base import problem_with
from longline.config.manifests.html import HtmlManifest
from longline.core.errors import BadOption, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.http.messages import Page
from longline.http.transports.browser.page import BrowserPage
from longline.sources.adapters.manifested import attributes_of, not_empty
from longline.sources.base import Options, Source, layer
from longline.sources.html.discovery import Walk, from_starts
from longline.sources.html.fields import AnyReader, Reading, read_fields, readers_of, whole
from longline.sources.html.items import ELEMENT, ItemFinder
from longline.sources.html.sitemaps import from_sitemaps
from longline.sources.visit import Visit


def html_source(manifest: HtmlManifest) -> type[Source]:
    """Make a source of a manifest."""
    attributes = {
        **attributes_of(manifest),
        "kind": "html",
        "target": _target(manifest),
        "browser": manifest.browser,
        "manifest": manifest,
        "_finder": ItemFinder(manifest),
        "_readers": readers_of(manifest.fields, manifest.locale),
        "_required": tuple(name for name, one in manifest.fields.items() if one.required),
    }
    return type(manifest.name, (HtmlSource,), attributes)


class HtmlSource(Source):
    """What all sources of HTML manifests share; `html_source` adds what a manifest says."""

    manifest: ClassVar[HtmlManifest]
    _finder: ClassVar[ItemFinder]
    _readers: ClassVar[tuple[AnyReader, ...]]
    _required: ClassVar[tuple[str, ...]]

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        for start in self.manifest.start:
            if problem := problem_with(start.url, self.options.model_dump()):
                raise BadOption(f"start {start.url}", problem)

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items that index pages, elements, sitemaps or the start addresses give.

        Raises:
            DiscoveryFailed: there was nothing, and the manifest does not say that this is fine.
        """
        stream = self._stream(visit)
        if not visit.cursor and not self.manifest.may_be_empty:
            stream = not_empty(stream, self.name, "look at items")
        async with aclosing(stream) as found:
            async for one in found:
                yield one

    @layer()
    async def page(self, visit: Visit) -> Mapping[str, Any]:
        """Read the fields of an item's page; of an element, those that discovery has read.

        Raises:
            UnexpectedShape: a required field is missing.
        """
        item = visit.item
        carried = Reading.carried(item.data) if "fields" in item.data else None
        if carried is not None and self.manifest.items and self.manifest.items.are_elements:
            return _told(carried, visit)
        reading = await self._read(visit)
        if carried is None:
            return _told(reading, visit)
        return {**_told(carried, visit), **_told(reading, visit)}

    def identity_of(self, item: Item) -> str | None:
        identity: str | None = item.data.get(ELEMENT)
        return identity

    def read(self, page: Page) -> Reading:
        """Return what a page holds."""
        return read_fields(self._readers, whole(page))

    async def _read(self, visit: Visit) -> Reading:
        url = visit.item.url
        if self.transport == "browser":
            return await self._read_rendered(visit)
        reading = self.read(await visit.fetch(url))
        if self.transport == "auto" and self._is_bare(reading):
            # Its scripts may bring what the page itself has not.
            return await self._read_rendered(visit)
        return reading

    async def _read_rendered(self, visit: Visit) -> Reading:
        page = await visit.fetch(visit.item.url, rendered=True)
        if isinstance(page, BrowserPage) and page.led_away:
            visit.warn(
                f"`{page.led_away}` led from the pages of items to other addresses, and the fields "
                "were read there; write `replaces: true` at the action if that is meant"
            )
        return self.read(page)

    def _is_bare(self, reading: Reading) -> bool:
        """Say whether what must be there is not; where nothing must, whether all is empty."""
        if self._required:
            return reading.problem is not None
        return all(value is None for value in reading.fields.values())

    def _stream(self, visit: Visit) -> Any:
        manifest, parameters = self.manifest, self.options.model_dump()
        if manifest.items is None:
            return from_starts(visit, manifest, self._finder, parameters)
        if manifest.items.sitemap:
            return from_sitemaps(visit, manifest, self._finder, parameters)
        return Walk(visit, manifest, self._finder, parameters).found()


def _target(manifest: HtmlManifest) -> str | None:
    sitemaps = manifest.items.sitemap if manifest.items else False
    named = sitemaps if isinstance(sitemaps, tuple) else ()
    return next(iter((*(start.url for start in manifest.start), *named)), None)


def _told(reading: Reading, visit: Visit) -> Mapping[str, Any]:
    reading.tell(visit)
    if reading.problem is not None:
        raise UnexpectedShape(visit.address or visit.item.url, reading.problem)
    return reading.fields
