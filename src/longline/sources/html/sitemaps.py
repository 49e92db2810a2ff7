"""Sitemaps and feeds: parse every format of the protocol, and discover items with them."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]  # ships no types
from defusedxml.ElementTree import ParseError, iterparse  # type: ignore[import-untyped]  # the same

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
from longline.core.model import Cursor
from longline.core.threads import off_loop
from longline.http.errors import AuthFailed
from longline.http.messages import Page
from longline.http.robots import Rules, text_of
from longline.limits.retry import RETRIED_KINDS
from longline.sources.base import Visit
from longline.sources.html.items import ItemFinder
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.places import absolute_url
from longline.sources.manifest import Discovered

_REPLACED = "\ufffd"
_STRAY_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-fA-F]{1,6});)")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_DECLARATION = re.compile(r"\A<\?xml[^>]*\?>")
_WEB = re.compile(r"https?://", re.IGNORECASE)
_TOO_DEEP = 100
_MAX_ENTRY_DEPTH = 2  # the items of RSS 2.0 are in its channel, those of RSS 1.0 next to it
_ALTERNATE = (None, "alternate")
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
    found = [line for line in lines if _REPLACED not in line and _WEB.match(line)]
    if not found:
        raise UnexpectedShape(url, "not a sitemap: it is not XML, and no line is a URL")
    others = len(lines) - len(found)
    problem = f"{others} of {len(lines)} lines are not URLs" if others else None
    return Sitemap(is_index=False, urls=tuple(found), problem=problem)


def _read_xml(url: str, body: bytes) -> Sitemap:
    sitemap = _parse_xml(url, body)
    if sitemap.problem:
        # Once more, with ampersands escaped and invalid characters replaced.
        text = body.decode("utf-8-sig", "replace").lstrip()
        text = _NOT_XML.sub(_REPLACED, _DECLARATION.sub("", text))
        repaired = _parse_xml(url, _STRAY_AMPERSAND.sub("&amp;", text).encode())
        if not repaired.problem or len(repaired.urls) > len(sitemap.urls):
            sitemap = repaired
    if sitemap.problem and not sitemap.urls:
        raise UnexpectedShape(url, f"not a sitemap: {sitemap.problem}")
    usable = tuple(one for one in sitemap.urls if _REPLACED not in one)
    unusable = len(sitemap.urls) - len(usable)
    unreadable = f"{unusable} URLs have characters that cannot be read" if unusable else None
    return Sitemap(sitemap.is_index, usable, sitemap.problem or unreadable)


def _parse_xml(url: str, body: bytes) -> Sitemap:
    """Return the URLs of the entries that end before the first error."""
    root, depth, urls, problem = "", 0, list[str](), None
    # A document type is the only way to entities, and no sitemap needs one.
    events = iterparse(io.BytesIO(body), events=("start", "end"), forbid_dtd=True)
    try:
        for event, element in events:
            name = element.tag.rpartition("}")[2]
            if event == "end":
                depth -= 1
                if name == _ENTRIES[root] and depth <= _MAX_ENTRY_DEPTH:
                    urls += _urls_of(root, element)
                    element.clear()
                continue
            root = root or name
            depth += 1
            if root not in _ENTRIES:
                raise UnexpectedShape(url, f"not a sitemap or feed, but <{root}>")
            if depth > _TOO_DEEP:
                problem = f"it is nested too deeply after {len(urls)} URLs"
                break
    except DefusedXmlException as error:
        raise UnexpectedShape(url, f"not a sitemap ({error})") from error
    except (ParseError, ValueError, LookupError) as error:
        problem = f"it is invalid after {len(urls)} URLs ({error})"
    return Sitemap(root == "sitemapindex", tuple(urls), problem)


def _urls_of(kind: str, entry: Any) -> list[str]:
    # Direct children only: <image:loc> is deeper, and is not a page.
    children = [(one.tag.rpartition("}")[2], (one.text or "").strip(), one) for one in entry]
    if kind in {"urlset", "sitemapindex"}:
        return [text for name, text, _ in children if name == "loc" and text]
    if kind == "feed":
        links = [one for name, _, one in children if name == "link"]
        hrefs = [one.get("href", "").strip() for one in links if one.get("rel") in _ALTERNATE]
        return [href for href in hrefs if href][:1]
    links = [text for name, text, _ in children if name == "link" and text]
    # A guid is a URL unless the feed says otherwise.
    guids = [
        text
        for name, text, one in children
        if name == "guid" and one.get("isPermaLink", "true") == "true" and _WEB.match(text)
    ]
    return links[:1] or guids[:1]


_GZIP = b"\x1f\x8b"
_PIECE_BYTES = 64 * 1024
_NO_ROBOTS_STATUSES = frozenset(range(400, 500)) - {401, 407, 429}
_FATAL_ERRORS = (AuthFailed, Blocked, BudgetSpent, CircuitOpen, Deferred)
"""Errors that concern more than one sitemap: they end or defer discovery as a whole."""
_MAX_BYTES = 100 * 1024 * 1024  # twice what the protocol allows


async def discover_sitemaps(
    visit: Visit, manifest: HtmlManifest, finder: ItemFinder, parameters: Mapping[str, Any]
) -> Discovered:
    """Yield the items of every sitemap, with a cursor after each.

    A sitemap that cannot be read, or only in part, makes the job partial; the others are read.

    Raises:
        DiscoveryFailed: the only sitemap does not exist.
        UnexpectedShape: the only sitemap is not a sitemap.
        FetchError: the only sitemap could not be fetched.
    """
    items = manifest.items
    selected = user_pattern((items and items.sitemaps) or "")
    starts = [one for start in manifest.start for one in start.urls(parameters)]
    named = items.sitemap if items and isinstance(items.sitemap, tuple) else ()
    configured = list(dict.fromkeys(fill(one, parameters, in_url=True) for one in named))
    host = urlsplit((starts or configured)[0]).netloc
    cursor = visit.cursor or {}
    pending, read = list(cursor.get("sitemaps", ())), int(cursor.get("read", 0))
    if not cursor:
        pending = configured or await _sitemaps_of_sites(visit, starts, selected)
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
        wants = selected.search if sitemap.is_index else finder.matches
        size_bytes = sum(map(len, sitemap.urls))
        urls, unusable = await off_loop(size_bytes, _select_urls, url, sitemap.urls, wants)
        if unusable:
            visit.warn(f"{unusable} entries of {url} are not URLs of web pages")
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


def _select_urls(
    base: str, links: tuple[str, ...], wants: Callable[[str], object]
) -> tuple[list[str], int]:
    """Return the wanted URLs, each once, and how many links are not URLs of web pages."""
    urls = [url for one in links if (url := absolute_url(base, one))]
    return list(dict.fromkeys(filter(wants, urls))), len(links) - len(urls)


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
    """Return the sitemap of a page that may be gzipped; of a damaged file, its intact part.

    Raises:
        UnexpectedShape: nothing can be decompressed, or it is larger than a sitemap may be.
    """
    if not page.body.startswith(_GZIP):
        return read_sitemap(page)
    body, problem = bytearray(), None
    with gzip.GzipFile(fileobj=io.BytesIO(page.body)) as file:
        try:
            while piece := file.read1(_PIECE_BYTES):
                body += piece
                if len(body) > _MAX_BYTES:
                    raise UnexpectedShape(page.url, f"a sitemap of more than {_MAX_BYTES} bytes")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            problem = f"the gzip file is damaged ({error})"
    if problem and not body:
        raise UnexpectedShape(page.url, f"not a gzipped sitemap: {problem}")
    if problem and not body.lstrip().startswith(b"<"):
        body = body[: body.rfind(b"\n") + 1]  # the last line may be half a URL
    sitemap = read_sitemap(replace(page, body=bytes(body)))
    return replace(sitemap, problem=problem or sitemap.problem)


async def _sitemaps_of_sites(visit: Visit, starts: list[str], selected: UserPattern) -> list[str]:
    """Return the sitemaps that robots.txt of each site lists, or else /sitemap.xml."""
    found: list[str] = []
    for origin in dict.fromkeys(urljoin(one, "/") for one in starts):
        listed: list[str] = []
        try:
            page = await visit.fetch(urljoin(origin, "/robots.txt"), accept=_NO_ROBOTS_STATUSES)
        except _FATAL_ERRORS:
            raise
        except FetchError as error:
            visit.warn(f"robots.txt was not searched for sitemaps: {error}")
        else:
            if page.status not in _NO_ROBOTS_STATUSES:
                links = Rules(text_of(page.body)).sitemaps
                listed = [url for one in links if (url := absolute_url(page.url, one))]
        # One that does not match may be the index of one that does.
        matching = [one for one in listed if selected.search(one)] or listed
        found += matching or [urljoin(origin, "/sitemap.xml")]
    return list(dict.fromkeys(found))
