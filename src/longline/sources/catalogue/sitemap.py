"""Reading a sitemap, or the index of several, from XML that nobody vouches for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]  # ships no types
from defusedxml.ElementTree import (  # type: ignore[import-untyped]  # ships no types
    ParseError,
    fromstring,
)

from longline.errors import UnexpectedShape
from longline.fetching.messages import Page


@dataclass(frozen=True, slots=True)
class Sitemap:
    """The addresses of one sitemap; those of an index are sitemaps themselves."""

    is_index: bool
    addresses: tuple[str, ...]


def read_sitemap(page: Page) -> Sitemap:
    """Return the addresses a sitemap lists, in its order, with doubles.

    Raises:
        UnexpectedShape: this is no sitemap, or its XML declares entities.
    """
    try:
        # A document type is the only way to entities, and no sitemap needs one.
        root = fromstring(page.body, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise UnexpectedShape(page.url, f"not a sitemap ({error})") from error
    kind = _local_name(root)
    if kind not in {"urlset", "sitemapindex"}:
        raise UnexpectedShape(page.url, f"not a sitemap, but <{kind}>")
    return Sitemap(kind == "sitemapindex", tuple(_addresses(root)))


def _addresses(root: Any) -> list[str]:
    # Direct children only: <image:loc> lies deeper and is no page.
    return [
        field.text.strip()
        for entry in root
        for field in entry
        if _local_name(field) == "loc" and field.text and field.text.strip()
    ]


def _local_name(element: Any) -> str:
    # Comments and processing instructions have a function for a tag.
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
