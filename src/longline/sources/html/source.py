"""The source of an HTML manifest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from longline.core.errors import BadOption, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.http.messages import Page
from longline.http.transports.browser.page import BrowserPage
from longline.sources.base import Options, Source, layer
from longline.sources.html.discovery import IndexDiscovery, discover_start_urls
from longline.sources.html.fields import AnyReader, Reading, make_readers, read_fields
from longline.sources.html.items import ELEMENT, ItemFinder
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.places import whole_page
from longline.sources.html.sitemaps import discover_sitemaps
from longline.sources.manifest import fail_if_empty, source_attributes, url_problem
from longline.sources.visit import Visit


def html_source(manifest: HtmlManifest) -> type[Source]:
    """Return the source class of a manifest."""
    sitemaps = manifest.items.sitemap if manifest.items else False
    urls = (
        *(start.url for start in manifest.start),
        *(sitemaps if isinstance(sitemaps, tuple) else ()),
    )
    attributes = {
        **source_attributes(manifest),
        "kind": "html",
        "target": next(iter(urls), None),
        "browser": manifest.browser,
        "manifest": manifest,
        "_finder": ItemFinder(manifest),
        "_readers": make_readers(manifest.fields, manifest.locale),
        "_required": tuple(name for name, one in manifest.fields.items() if one.required),
    }
    return type(manifest.name, (HtmlSource,), attributes)


class HtmlSource(Source):
    """The base of all HTML sources; `html_source` adds what a manifest says."""

    manifest: ClassVar[HtmlManifest]
    _finder: ClassVar[ItemFinder]
    _readers: ClassVar[tuple[AnyReader, ...]]
    _required: ClassVar[tuple[str, ...]]

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        for start in self.manifest.start:
            if problem := url_problem(start.url, self.options.model_dump()):
                raise BadOption(f"start {start.url}", problem)

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items of index pages, sitemaps or start URLs.

        Raises:
            DiscoveryFailed: there are none, and `may_be_empty` is not set.
        """
        stream = self._stream(visit)
        if not visit.cursor and not self.manifest.may_be_empty:
            stream = fail_if_empty(stream, self.name, "check items")
        async with aclosing(stream) as found:
            async for one in found:
                yield one

    @layer()
    async def page(self, visit: Visit) -> Mapping[str, Any]:
        """Read the fields of an item's page; those of an element were read by discovery.

        Raises:
            UnexpectedShape: a required field is missing.
        """
        item = visit.item
        carried = Reading.from_item_data(item.data) if "fields" in item.data else None
        if carried is not None and self.manifest.items and self.manifest.items.are_elements:
            return _checked_fields(carried, visit)
        reading = await self._read(visit)
        if carried is None:
            return _checked_fields(reading, visit)
        return {**_checked_fields(carried, visit), **_checked_fields(reading, visit)}

    def identity_of(self, item: Item) -> str | None:
        identity: str | None = item.data.get(ELEMENT)
        return identity

    def read(self, page: Page) -> Reading:
        """Return the fields of a page."""
        return read_fields(self._readers, whole_page(page))

    async def _read(self, visit: Visit) -> Reading:
        if self.transport == "browser":
            return await self._read_rendered(visit)
        reading = self.read(await visit.fetch(visit.item.url))
        if self.transport == "auto" and self._lacks_fields(reading):
            # Scripts may add what the page itself lacks.
            return await self._read_rendered(visit)
        return reading

    async def _read_rendered(self, visit: Visit) -> Reading:
        page = await visit.fetch(visit.item.url, rendered=True)
        if isinstance(page, BrowserPage) and page.led_away:
            visit.warn(
                f"`{page.led_away}` led from the pages of items to other URLs, and the fields were "
                "read there; write `replaces: true` at the action if that is intended"
            )
        return self.read(page)

    def _lacks_fields(self, reading: Reading) -> bool:
        """Return whether a required field is missing; without any, whether all are empty."""
        if self._required:
            return reading.problem is not None
        return all(value is None for value in reading.fields.values())

    def _stream(self, visit: Visit) -> Any:
        manifest, parameters = self.manifest, self.options.model_dump()
        if manifest.items is None:
            return discover_start_urls(visit, manifest, self._finder, parameters)
        if manifest.items.sitemap:
            return discover_sitemaps(visit, manifest, self._finder, parameters)
        return IndexDiscovery(visit, manifest, self._finder, parameters).run()


def _checked_fields(reading: Reading, visit: Visit) -> Mapping[str, Any]:
    reading.add_to(visit)
    if reading.problem is not None:
        raise UnexpectedShape(visit.address or visit.item.url, reading.problem)
    return reading.fields
