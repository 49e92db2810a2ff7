"""Sitemaps and feeds: parse every format of the protocol, and discover items with them."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]  # ships no types
from defusedxml.ElementTree import (  # type: ignore[import-untyped]  # ships no types
    ParseError,
    fromstring,
    iterparse,
)

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
from longline.sources.base import Visit
from longline.sources.html.items import ItemFinder
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.places import absolute_url

_BOM = "\ufeff"
_REPLACED = "\ufffd"
_STRAY_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});)")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_DECLARATION = re.compile(r"\A<\?xml[^>]*\?>")
_WEB = re.compile(r"https?://", re.IGNORECASE)
_TOO_DEEP = 100
_ENTRIES = {
    "urlset": "url",
    "sitemapindex": "sitemap",
    "rss": "item",
    "RDF": "item",
    "feed": "entry",
}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Sitemap:
    """The URLs of one sitemap; those of an index are sitemaps themselves.

    `problem` says why URLs may be missing, when a part of it cannot be read.
    """

    is_index: bool
    urls: tuple[str, ...]
    problem: str | None = None


def read_sitemap(page: Page) -> Sitemap:
    """Return the URLs of a sitemap or feed in order, including duplicates.

    It may be a sitemap or an index in XML, RSS 0.9 to 2.0, Atom, or text with one URL per line.
    What comes before an error is read, and the problem is reported with it.

    Raises:
        UnexpectedShape: it has another format, nothing of it can be read, or it declares entities.
    """
    body = page.body.strip()
    if not body:
        raise UnexpectedShape(page.url, "not a sitemap: it is empty")
    is_wide = body.startswith(_UTF_16)
    if is_wide or body.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
        return _read_xml(page.url, page.body if is_wide else body)
    return _read_text(page.url, body.decode("utf-8-sig", "replace"))


def _read_text(url: str, text: str) -> Sitemap:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = [line for line in lines if _is_decodable(line) and _WEB.match(line)]
    if not found:
        raise UnexpectedShape(url, "not a sitemap: it is not XML, and no line is a URL")
    others = len(lines) - len(found)
    problem = f"{others} of {len(lines)} lines are not URLs" if others else None
    return Sitemap(is_index=False, urls=tuple(found), problem=problem)


def _read_xml(url: str, body: bytes) -> Sitemap:
    try:
        # A document type is the only way to entities, and no sitemap needs one.
        return _sitemap_of(url, fromstring(body, forbid_dtd=True))
    except ParseError as error:
        first = error
    except (DefusedXmlException, ValueError, LookupError) as error:
        raise UnexpectedShape(url, f"not a sitemap ({error})") from error
    repaired = _repair(body)
    try:
        return _sitemap_of(url, fromstring(repaired, forbid_dtd=True))
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        found = max(
            (_parse_until_error(body), _parse_until_error(repaired)),
            key=lambda one: len(one.urls),
        )
        if not found.urls:
            raise UnexpectedShape(url, f"not a sitemap ({first})") from error
        problem = f"it is invalid after {len(found.urls)} URLs ({first})"
        return Sitemap(found.is_index, found.urls, problem)


def _repair(body: bytes) -> bytes:
    """Return the body with ampersands escaped and invalid characters replaced."""
    text = body.decode("utf-8-sig", "replace").lstrip()
    text = _NOT_XML.sub(_REPLACED, _DECLARATION.sub("", text))
    return _STRAY_AMPERSAND.sub("&amp;", text).encode()


def _parse_until_error(body: bytes) -> Sitemap:
    """Return the URLs of the entries that end before the first error."""
    root, depth = "", 0
    urls: list[str] = []
    try:
        for event, element in iterparse(io.BytesIO(body), events=("start", "end"), forbid_dtd=True):
            if event == "start":
                root = root or _local_name(element)
                depth += 1
                if depth > _TOO_DEEP:
                    break
                continue
            depth -= 1
            if _local_name(element) == _ENTRIES.get(root):
                urls += _urls_of(root, element)
                element.clear()
    except (ParseError, DefusedXmlException, ValueError, LookupError):
        pass
    return Sitemap(root == "sitemapindex", tuple(filter(_is_decodable, urls)))


def _sitemap_of(url: str, root: Any) -> Sitemap:
    kind = _local_name(root)
    if kind not in _ENTRIES:
        raise UnexpectedShape(url, f"not a sitemap or feed, but <{kind}>")
    urls = [one for entry in _feed_entries(kind, root) for one in _urls_of(kind, entry)]
    usable = tuple(filter(_is_decodable, urls))
    unusable = len(urls) - len(usable)
    problem = f"{unusable} URLs have characters that cannot be read" if unusable else None
    return Sitemap(kind == "sitemapindex", usable, problem)


def _feed_entries(kind: str, root: Any) -> Iterator[Any]:
    if kind in {"urlset", "sitemapindex"}:
        return iter(root)
    # The items of RSS 2.0 are in its channel, those of RSS 1.0 next to it.
    places = [root, *(one for one in root if _local_name(one) == "channel")]
    return (one for place in places for one in place if _local_name(one) == _ENTRIES[kind])


def _urls_of(kind: str, entry: Any) -> list[str]:
    # Direct children only: <image:loc> is deeper, and is not a page.
    if kind in {"urlset", "sitemapindex"}:
        return [
            _element_text(one) for one in entry if _local_name(one) == "loc" and _element_text(one)
        ]
    if kind == "feed":
        links = [one for one in entry if _local_name(one) == "link"]
        hrefs = [one.get("href", "").strip() for one in links if _is_alternate(one)]
        return [href for href in hrefs if href][:1]
    links = [
        _element_text(one) for one in entry if _local_name(one) == "link" and _element_text(one)
    ]
    # A guid is a URL unless the feed says otherwise.
    guids = (
        _element_text(one)
        for one in entry
        if _local_name(one) == "guid" and one.get("isPermaLink", "true") == "true"
    )
    return links[:1] or [guid for guid in guids if _WEB.match(guid)][:1]


def _is_alternate(link: Any) -> bool:
    return str(link.get("rel", "alternate")) == "alternate"


def _is_decodable(url: str) -> bool:
    return _REPLACED not in url


def _element_text(element: Any) -> str:
    return (element.text or "").strip()


def _local_name(element: Any) -> str:
    # Comments and processing instructions have a function for a tag.
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


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
