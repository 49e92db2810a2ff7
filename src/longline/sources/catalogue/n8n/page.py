"""A template as its public page shows it, for when the API is not to be used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import SkipItem, UnexpectedShape
from longline.core.model import Item
from longline.http.messages import Page
from longline.sources.catalogue.n8n.inventory import parse_template_address
from longline.sources.catalogue.n8n.layers import TakeNote, no_workflow, slug_of
from longline.sources.catalogue.n8n.markdown import find_videos, read_html
from longline.sources.catalogue.n8n.responses import template_id
from longline.sources.visit import Visit

_ADDED_TO_TITLES = re.compile(r"\s*\|\s*n8n workflow template\s*$", re.IGNORECASE)
_OTHERS_BEGIN = "section.section-creator-workflows"
_NOT_CONTENT = (
    "nav, footer, [role=dialog], dialog, [id*=cookie i], [class*=cookie i], [id*=onetrust i]"
)
_NOT_ON_PAGES = "the page does not tell it; the API would"
_ONLY_IN_API = (
    "views",
    "recent_views",
    "total_views",
    "created_at",
    "updated_at",
    "status",
    "review_status",
    "difficulty",
    "ready_to_demo",
    "last_updated_by",
    "categories",
    "price",
    "purchase_url",
    "is_paid",
)


EMPTY_ON_PAGES = frozenset(
    {
        *_ONLY_IN_API,
        *no_workflow("", lambda _field, _text: None),
        *("declared_node_count", "declared_node_types", "description", "sticky_notes"),
    }
)
"""Fields that the page of a template never fills."""


@dataclass(frozen=True, slots=True)
class TemplatePage:
    """The page of one template, cut down to what is about this template."""

    page: Page
    body: LexborNode
    title: str


async def fetch_page(visit: Visit) -> TemplatePage:
    """Return the page of this visit's template.

    Raises:
        SkipItem: the site has put another page in its place.
        UnexpectedShape: the page has no title.
    """
    page = await visit.fetch(visit.item.url)
    found = parse_template_address(page.url)
    if found is None or found[0] != template_id(visit.item):
        raise SkipItem(f"{visit.item.url} now leads to {page.url}")
    title = page.first_text("h1") or _page_title(page)
    if not title:
        raise UnexpectedShape(page.url, "neither <h1> nor og:title on the page")
    return TemplatePage(page, _template_part(page), title)


def page_metadata(item: Item, found: TemplatePage, note: TakeNote) -> dict[str, Any]:
    """Return the fields of layer 1, most of them empty and noted so."""
    for field in _ONLY_IN_API:
        note(field, _NOT_ON_PAGES)
    return {
        "id": template_id(item),
        "url": item.url,
        "slug": slug_of(item, note),
        "endpoint": "page",
        "title": found.title,
        "page_title": _or_note("page_title", _page_title(found.page), note),
        "summary": _or_note(
            "summary", found.page.first_attribute("meta[name=description]", "content"), note
        ),
        "author": _page_author(found, note),
        "integrations": _integrations(found.body),
        **dict.fromkeys(_ONLY_IN_API),
    }


def page_workflow(note: TakeNote) -> dict[str, None]:
    """Return the fields of layer 2, all empty: the canvas is filled by a script from elsewhere."""
    for field in ("declared_node_count", "declared_node_types"):
        note(field, _NOT_ON_PAGES)
    empty = no_workflow("the page shows the workflow but does not hold it; the API would", note)
    return {**empty, "declared_node_count": None, "declared_node_types": None}


def page_content(found: TemplatePage, note: TakeNote) -> dict[str, Any]:
    """Return the fields of layer 3, from the part of the page that is about this template."""
    note("description", "the page has no Markdown; its text is in description_text")
    note("sticky_notes", "the page does not hold the workflow they are in")
    videos = find_videos(found.body.html or "")
    reading = read_html(found.body)
    images = [{"address": a, "alt": alt, "found_in": "page"} for a, alt in reading.images]
    if picture := found.page.first_attribute("meta[property='og:image']", "content"):
        images.append({"address": picture, "alt": "", "found_in": "og:image"})
    return {
        "description": None,
        "description_text": reading.text,
        "headings": reading.headings,
        "sticky_notes": None,
        "image_references": images,
        "video_references": [{"id": video, "found_in": "page"} for video in videos],
        "links": reading.links,
    }


def _or_note(field: str, value: str | None, note: TakeNote) -> str | None:
    if value is None:
        note(field, "the page has none")
    return value


def _page_title(page: Page) -> str | None:
    title = page.first_attribute("meta[property='og:title']", "content")
    return _ADDED_TO_TITLES.sub("", title).strip() or None if title else None


def _template_part(page: Page) -> LexborNode:
    # A tree of our own, because cutting changes it.
    tree = LexborHTMLParser(page.text)
    body = tree.css_first("#__nuxt") or tree.body
    if body is None:
        raise UnexpectedShape(page.url, "an empty page")
    _remove_nodes(body.css(_NOT_CONTENT))
    sections = body.css("section")
    others = {node.mem_id for node in body.css(_OTHERS_BEGIN)}
    first = next((n for n, node in enumerate(sections) if node.mem_id in others), len(sections))
    _remove_nodes(sections[first:])
    return body


def _remove_nodes(nodes: list[LexborNode]) -> None:
    # From the end, so that what lies inside another goes first and nothing is removed twice.
    for node in reversed(nodes):
        node.decompose()


def _page_author(found: TemplatePage, note: TakeNote) -> dict[str, Any] | None:
    link = found.body.css_first("a[href*='/creators/']")
    path = (link.attributes.get("href") or "") if link else ""
    username = path.partition("/creators/")[2].strip("/").partition("/")[0]
    if link is None or not username:
        note("author", "the page links to no creator")
        return None
    name = " ".join(link.text().split())
    return {"username": username, **({"name": name} if name else {})}


def _integrations(body: LexborNode) -> list[str]:
    links = (node.attributes.get("href") or "" for node in body.css("a[href*='/integrations/']"))
    slugs = (link.partition("/integrations/")[2].strip("/").partition("/")[0] for link in links)
    return list(dict.fromkeys(slug for slug in slugs if slug))
