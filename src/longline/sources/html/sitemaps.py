"""Discovery by sitemaps and feeds, directly or through a sitemap index, plain or gzipped."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from longline.config.expressions import UserPattern, fill, user_pattern
from longline.core.errors import (
    Blocked,
    BudgetSpent,
    CircuitOpen,
    Deferred,
    DiscoveryFailed,
    FetchError,
    Gone,
    UnexpectedShape,
)
from longline.core.model import Cursor, Item
from longline.core.threads import off_loop
from longline.http.errors import AuthFailed
from longline.http.messages import Page
from longline.http.robots import Rules, text_of
from longline.limits.retry import RETRIED_KINDS
from longline.sources.html.items import ItemFinder
from longline.sources.html.links import absolute_url
from longline.sources.html.manifest import HtmlManifest
from longline.sources.sitemap import Sitemap, read_sitemap
from longline.sources.visit import Visit

_GZIP = b"\x1f\x8b"
_PIECE_BYTES = 64 * 1024
_NO_ROBOTS_STATUSES = frozenset(range(400, 500)) - {401, 407, 429}
_FATAL_ERRORS = (AuthFailed, Blocked, BudgetSpent, CircuitOpen, Deferred)
"""Errors that concern more than one sitemap: they end or defer discovery as a whole."""
_MAX_BYTES = 100 * 1024 * 1024  # twice what the protocol allows


async def discover_sitemaps(
    visit: Visit, manifest: HtmlManifest, finder: ItemFinder, parameters: Mapping[str, Any]
) -> AsyncIterator[Item | Cursor]:
    """Yield the items of every sitemap, with a cursor after each.

    A sitemap that cannot be read, or only in part, makes the job partial; the others are read.

    Raises:
        DiscoveryFailed: the only sitemap does not exist.
        UnexpectedShape: the only sitemap is not a sitemap.
        FetchError: the only sitemap could not be fetched.
    """
    selected = user_pattern((manifest.items and manifest.items.sitemaps) or "")
    cursor = visit.cursor or {}
    pending, read = list(cursor.get("sitemaps", ())), int(cursor.get("read", 0))
    if not cursor:
        pending = await _initial_sitemaps(visit, manifest, parameters, selected)
    starts = _start_urls(manifest, parameters)
    host = urlsplit((starts or _configured_sitemaps(manifest, parameters))[0]).netloc
    only = pending[0] if len(pending) == 1 and not read else None
    seen, retried = set(pending), set[str]()
    while pending and read < manifest.most_pages:
        url = pending.pop(0)
        sitemap = await _fetch_sitemap(visit, manifest.name, url, is_only=url == only)
        if sitemap is None and url not in retried:
            retried.add(url)
            pending.append(url)
            continue
        read += 1
        if sitemap is None:
            sitemap = Sitemap(is_index=False, urls=(), problem="it cannot be fetched")
        if sitemap.problem:
            visit.cut(f"the sitemap {url} is incomplete: {sitemap.problem}")
        size_bytes = sum(map(len, sitemap.urls))
        urls = await off_loop(size_bytes, _absolute_urls, url, sitemap)
        if unusable := len(sitemap.urls) - len(urls):
            visit.warn(f"{unusable} entries of {url} are not URLs of web pages")
        wants = selected.search if sitemap.is_index else finder.matches
        urls = await off_loop(size_bytes, _select_unique, urls, wants)
        if sitemap.is_index:
            new = [one for one in urls if one not in seen]
            seen.update(new)
            pending += new
        else:
            for one in urls:
                yield finder.at_url(one, host)
        yield Cursor({"sitemaps": list(pending), "read": read})
    if pending:
        visit.cut(f"{len(pending)} sitemaps were left out: most_pages is {manifest.most_pages}")


def _absolute_urls(base: str, sitemap: Sitemap) -> list[str]:
    return [url for one in sitemap.urls if (url := absolute_url(base, one))]


def _select_unique(urls: list[str], wants: Callable[[str], object]) -> list[str]:
    return list(dict.fromkeys(filter(wants, urls)))


async def _fetch_sitemap(visit: Visit, source: str, url: str, *, is_only: bool) -> Sitemap | None:
    """Return a sitemap, an empty one if it cannot be read, or None if a retry may help."""
    try:
        page = await visit.fetch(url)
        # A full one has 50,000 URLs: parsing it would delay all other requests.
        return await visit.in_thread(_parse_sitemap, page)
    except _FATAL_ERRORS:
        raise
    except (FetchError, UnexpectedShape) as error:
        if is_only and isinstance(error, Gone):
            raise DiscoveryFailed(source, str(error)) from error
        if is_only:
            raise
        if isinstance(error, FetchError) and error.kind in RETRIED_KINDS:
            return None
        return Sitemap(is_index=False, urls=(), problem=str(error))


def _parse_sitemap(page: Page) -> Sitemap:
    page, problem = _decompress(page)
    sitemap = read_sitemap(page)
    return replace(sitemap, problem=problem or sitemap.problem)


def _decompress(page: Page) -> tuple[Page, str | None]:
    """Return the page with its body decompressed if it is gzipped, and the problem if any.

    Of a file that is truncated or damaged, the part before that is returned.

    Raises:
        UnexpectedShape: nothing can be decompressed, or it is larger than a sitemap may be.
    """
    if not page.body.startswith(_GZIP):
        return page, None
    body, problem = bytearray(), None
    rest = page.body
    while rest.startswith(_GZIP):  # a file may have several members
        decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            for start in range(0, len(rest), _PIECE_BYTES):
                piece = rest[start : start + _PIECE_BYTES]
                body += decompressor.decompress(piece, _MAX_BYTES + 1 - len(body))
                if len(body) > _MAX_BYTES:
                    raise UnexpectedShape(page.url, f"a sitemap of more than {_MAX_BYTES} bytes")
                if decompressor.eof:
                    rest = decompressor.unused_data + rest[start + _PIECE_BYTES :]
                    break
            else:
                problem, rest = "the gzip file is truncated", b""
        except zlib.error as error:
            problem, rest = f"the gzip file is damaged ({error})", b""
    if problem and not body:
        raise UnexpectedShape(page.url, f"not a gzipped sitemap ({problem})")
    if problem and not body.lstrip().startswith(b"<"):
        body = body[: body.rfind(b"\n") + 1]  # the last line may be half a URL
    return replace(page, body=bytes(body)), problem


async def _initial_sitemaps(
    visit: Visit, manifest: HtmlManifest, parameters: Mapping[str, Any], selected: UserPattern
) -> list[str]:
    """Return the sitemaps of the manifest, or those of robots.txt, or /sitemap.xml."""
    if configured := _configured_sitemaps(manifest, parameters):
        return configured
    found: list[str] = []
    origins = dict.fromkeys(urljoin(one, "/") for one in _start_urls(manifest, parameters))
    for origin in origins:
        listed = await _sitemaps_in_robots(visit, origin)
        # One that does not match may be the index of one that does.
        matching = [one for one in listed if selected.search(one)] or listed
        found += matching or [urljoin(origin, "/sitemap.xml")]
    return list(dict.fromkeys(found))


async def _sitemaps_in_robots(visit: Visit, origin: str) -> list[str]:
    try:
        page = await visit.fetch(urljoin(origin, "/robots.txt"), accept=_NO_ROBOTS_STATUSES)
    except FetchError as error:
        if isinstance(error, _FATAL_ERRORS):
            raise
        visit.warn(f"robots.txt was not searched for sitemaps: {error}")
        return []
    if page.status in _NO_ROBOTS_STATUSES:
        return []
    listed = Rules(text_of(page.body)).sitemaps
    return [url for one in listed if (url := absolute_url(page.url, one))]


def _configured_sitemaps(manifest: HtmlManifest, parameters: Mapping[str, Any]) -> list[str]:
    sitemap = manifest.items.sitemap if manifest.items else False
    urls = sitemap if isinstance(sitemap, tuple) else ()
    return list(dict.fromkeys(fill(one, parameters, in_url=True) for one in urls))


def _start_urls(manifest: HtmlManifest, parameters: Mapping[str, Any]) -> list[str]:
    return [one for start in manifest.start for one in start.urls(parameters)]
