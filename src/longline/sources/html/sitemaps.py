"""Items that sitemaps and feeds list, directly or through an index, packed or not."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from longline.config.manifests.base import fill
from longline.config.manifests.html import HtmlManifest
from longline.config.patterns import UserPattern, user_pattern
from longline.core.errors import Blocked, DiscoveryFailed, FetchError, Gone, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.core.threads import off_loop
from longline.http.errors import AuthFailed
from longline.http.messages import Page
from longline.http.robots_rules import Rules, text_of
from longline.limits.errors import BudgetSpent, CircuitOpen, Deferred
from longline.limits.retry import RETRIED_KINDS
from longline.sources.catalogue.sitemap import Sitemap, read_sitemap
from longline.sources.html.items import ItemFinder, joined
from longline.sources.visit import Visit

_GZIP = b"\x1f\x8b"
_PIECE = 64 * 1024  # bytes
_ABSENT = frozenset(range(400, 500)) - {401, 407, 429}  # there is no robots.txt
_ENDING = (AuthFailed, Blocked, BudgetSpent, CircuitOpen, Deferred)
"""What concerns more than one sitemap: it ends or delays discovery as a whole."""
_LARGEST = 100 * 1024 * 1024  # bytes; the protocol allows half of it


async def from_sitemaps(
    visit: Visit, manifest: HtmlManifest, finder: ItemFinder, parameters: Mapping[str, Any]
) -> AsyncIterator[Item | Cursor]:
    """Yield the items of every sitemap, with a cursor after each.

    A sitemap that cannot be read, or only in part, makes the job partial; the others are read.

    Raises:
        DiscoveryFailed: the only sitemap that was named does not exist.
        UnexpectedShape: the only one that was named is not a sitemap.
        FetchError: the only one that was named could not be fetched.
    """
    wanted = _pattern(manifest)
    starts = _starts(manifest, parameters)
    kept = visit.cursor or {}
    pending, read = list(kept.get("sitemaps", ())), int(kept.get("read", 0))
    if not kept:
        pending = await _named(visit, manifest, parameters, wanted)
    home = urlsplit((starts or _written(manifest, parameters))[0]).netloc
    only = pending[0] if len(pending) == 1 and not read else None
    seen, retried = set(pending), set[str]()
    while pending and read < manifest.most_pages:
        address = pending.pop(0)
        sitemap = await _read(visit, manifest.name, address, is_only=address == only)
        if sitemap is None and address not in retried:
            retried.add(address)
            pending.append(address)
            continue
        read += 1
        if sitemap is None:
            sitemap = Sitemap(is_index=False, addresses=(), problem="it cannot be fetched")
        if sitemap.problem:
            visit.cut(f"the sitemap {address} is incomplete: {sitemap.problem}")
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


def unpacked(page: Page) -> tuple[Page, str | None]:
    """Return the page with its body unpacked where it is packed with gzip, and a problem if any.

    Of a file that is cut or damaged, what comes before that place is returned.

    Raises:
        UnexpectedShape: nothing of it can be unpacked, or it is larger than any sitemap may be.
    """
    if not page.body.startswith(_GZIP):
        return page, None
    body, problem = bytearray(), None
    rest = page.body
    while rest.startswith(_GZIP):  # a file may have several members
        unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            for start in range(0, len(rest), _PIECE):
                piece = rest[start : start + _PIECE]
                body += unpacking.decompress(piece, _LARGEST + 1 - len(body))
                if len(body) > _LARGEST:
                    raise UnexpectedShape(page.url, f"a sitemap of more than {_LARGEST} bytes")
                if unpacking.eof:
                    rest = unpacking.unused_data + rest[start + _PIECE :]
                    break
            else:
                problem, rest = "the packed file is cut", b""
        except zlib.error as error:
            problem, rest = f"the packed file is damaged ({error})", b""
    if problem and not body:
        raise UnexpectedShape(page.url, f"not a packed sitemap ({problem})")
    if problem and not body.lstrip().startswith(b"<"):
        body = body[: body.rfind(b"\n") + 1]  # the last line may be half an address
    return replace(page, body=bytes(body)), problem


async def _read(visit: Visit, source: str, address: str, *, is_only: bool) -> Sitemap | None:
    """Return a sitemap, an empty one if it cannot be read, or None if that may pass."""
    try:
        page = await visit.fetch(address)
        # A full one has 50,000 addresses: long enough to delay all other requests.
        return await visit.in_thread(_parsed, page)
    except _ENDING:
        raise
    except (FetchError, UnexpectedShape) as error:
        if is_only and isinstance(error, Gone):
            raise DiscoveryFailed(source, str(error)) from error
        if is_only:
            raise
        if isinstance(error, FetchError) and error.kind in RETRIED_KINDS:
            return None
        return Sitemap(is_index=False, addresses=(), problem=str(error))


def _parsed(page: Page) -> Sitemap:
    page, problem = unpacked(page)
    sitemap = read_sitemap(page)
    return replace(sitemap, problem=problem or sitemap.problem)


async def _named(
    visit: Visit, manifest: HtmlManifest, parameters: Mapping[str, Any], wanted: UserPattern
) -> list[str]:
    """Return the sitemaps of the manifest, or those that robots.txt lists, or /sitemap.xml."""
    if written := _written(manifest, parameters):
        return written
    found: list[str] = []
    origins = dict.fromkeys(urljoin(one, "/") for one in _starts(manifest, parameters))
    for origin in origins:
        listed = await _listed_in_robots(visit, origin)
        # One that does not match may be the index of one that does.
        chosen = [one for one in listed if wanted.search(one)] or listed
        found += chosen or [urljoin(origin, "/sitemap.xml")]
    return list(dict.fromkeys(found))


async def _listed_in_robots(visit: Visit, origin: str) -> list[str]:
    try:
        page = await visit.fetch(urljoin(origin, "/robots.txt"), accept=_ABSENT)
    except FetchError as error:
        if isinstance(error, _ENDING):
            raise
        visit.warn(f"robots.txt was not searched for sitemaps: {error}")
        return []
    if page.status in _ABSENT:
        return []
    listed = Rules(text_of(page.body)).sitemaps
    return [url for one in listed if (url := joined(page.url, one))]


def _written(manifest: HtmlManifest, parameters: Mapping[str, Any]) -> list[str]:
    said = manifest.items.sitemap if manifest.items else False
    addresses = said if isinstance(said, tuple) else ()
    return list(dict.fromkeys(fill(one, parameters, in_address=True) for one in addresses))


def _starts(manifest: HtmlManifest, parameters: Mapping[str, Any]) -> list[str]:
    return [one for start in manifest.start for one in start.addresses(parameters)]


def _pattern(manifest: HtmlManifest) -> UserPattern:
    said = manifest.items.sitemaps if manifest.items else None
    return user_pattern(said or "")
