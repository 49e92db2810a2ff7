"""Items that a sitemap lists, or an index of sitemaps, packed or not."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from longline.config.manifests.html import HtmlManifest
from longline.config.manifests.templates import fill
from longline.config.patterns import UserPattern, user_pattern
from longline.errors import DiscoveryFailed, Gone, UnexpectedShape
from longline.fetching.messages import Page
from longline.model import Cursor, Item
from longline.sources.adapters.html_items import ItemFinder
from longline.sources.adapters.html_links import UNUSABLE, joined
from longline.sources.catalogue.sitemap import Sitemap, read_sitemap
from longline.sources.visit import Visit
from longline.threads import off_loop

_GZIP = b"\x1f\x8b"
_LARGEST = 100 * 1024 * 1024  # bytes; the protocol allows half of it


async def from_sitemaps(
    visit: Visit, manifest: HtmlManifest, finder: ItemFinder, parameters: Mapping[str, Any]
) -> AsyncIterator[Item | Cursor]:
    """Yield the items of every sitemap, with a cursor after each.

    Raises:
        DiscoveryFailed: there is no sitemap where one was named.
        UnexpectedShape: something there is no sitemap.
    """
    wanted = _pattern(manifest)
    named = _named(manifest, parameters)
    home = urlsplit(named[0]).netloc
    kept = visit.cursor or {}
    pending, read = list(kept.get("sitemaps", named)), int(kept.get("read", 0))
    seen = set(pending)
    while pending and read < manifest.most_pages:
        address = pending.pop(0)
        sitemap = await _read(visit, manifest.name, address, is_named=address in named)
        read += 1
        size_bytes = sum(map(len, sitemap.addresses))
        addresses = await off_loop(size_bytes, _absolute, address, sitemap)
        if unusable := len(sitemap.addresses) - len(addresses):
            visit.warn(f"{unusable} entries of {address} are not addresses of web pages")
        wants = wanted.search if sitemap.is_index else finder.wants
        addresses = await off_loop(size_bytes, _chosen, addresses, wants)
        if sitemap.is_index:
            new = [one for one in addresses if one not in seen]
            seen.update(new)
            pending += new
        else:
            for one in addresses:
                yield finder.named(one, home)
        yield Cursor({"sitemaps": list(pending), "read": read})
    if pending:
        visit.cut(f"{len(pending)} sitemaps were left out: most_pages is {manifest.most_pages}")


def _absolute(base: str, sitemap: Sitemap) -> list[str]:
    return [url for one in sitemap.addresses if (url := joined(base, one))]


def _chosen(addresses: list[str], wants: Callable[[str], object]) -> list[str]:
    """Return the addresses that are wanted, each once."""
    return list(dict.fromkeys(filter(wants, addresses)))


def unpacked(page: Page) -> Page:
    """Return the page with its body unpacked, where it is packed with gzip.

    Raises:
        UnexpectedShape: it is broken, or larger than any sitemap may be.
    """
    if not page.body.startswith(_GZIP):
        return page
    unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        body = unpacking.decompress(page.body, _LARGEST)
    except zlib.error as error:
        raise UnexpectedShape(page.url, f"not a packed sitemap ({error})") from error
    if unpacking.unconsumed_tail:
        raise UnexpectedShape(page.url, f"a sitemap of more than {_LARGEST} bytes")
    return replace(page, body=body)


async def _read(visit: Visit, source: str, address: str, *, is_named: bool) -> Sitemap:
    try:
        page = await visit.fetch(address)
        # A full one has 50,000 addresses: long enough to hold up everybody else.
        return await visit.in_thread(_parsed, page)
    except Gone as error:
        if is_named:
            raise DiscoveryFailed(source, str(error)) from error
        visit.cut(f"a sitemap is missing: {error}")
    except (UnexpectedShape, *UNUSABLE) as error:
        if is_named:
            raise
        visit.cut(f"a sitemap cannot be read: {error}")
    return Sitemap(is_index=False, addresses=())


def _parsed(page: Page) -> Sitemap:
    return read_sitemap(unpacked(page))


def _named(manifest: HtmlManifest, parameters: Mapping[str, Any]) -> list[str]:
    said = manifest.items.sitemap if manifest.items else False
    if isinstance(said, tuple):
        return [fill(address, parameters, in_address=True) for address in said]
    starts = (one for start in manifest.start for one in start.addresses(parameters))
    return list(dict.fromkeys(urljoin(one, "/sitemap.xml") for one in starts))


def _pattern(manifest: HtmlManifest) -> UserPattern:
    said = manifest.items.sitemaps if manifest.items else None
    return user_pattern(said or "")
