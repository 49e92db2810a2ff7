"""Parse sitemaps and feeds in every format that the sitemap protocol allows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]  # ships no types
from defusedxml.ElementTree import (  # type: ignore[import-untyped]  # ships no types
    ParseError,
    fromstring,
    iterparse,
)

from longline.core.errors import UnexpectedShape
from longline.http.messages import Page

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
