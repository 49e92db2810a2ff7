"""What explains a template: description, sticky notes, images, videos; or its public page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import SkipItem, UnexpectedShape
from longline.core.model import Item
from longline.http.messages import Page, without_userinfo
from longline.sources.base import Visit
from longline.sources.n8n.template import (
    ONLY_IN_API,
    STICKY_NOTE,
    WORKFLOW_FIELDS,
    AddNote,
    Detail,
    nodes_of,
    note_empty,
    parse_template_url,
    slug_of,
    template_id,
)

_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_BARE_LINK = re.compile(r"https?://[^\s<>()\[\]\"'`|\\]+")
_MAX_CHARACTERS = 50_000
"""Characters of a text that are read: the time of deep nesting grows with its square."""
# Also 11 characters, but YouTube's names for a playlist and for the live stream of a channel.
_NOT_VIDEOS = frozenset({"videoseries", "live_stream"})
_VIDEO = re.compile(
    r"(?:"
    r"@\[youtube\]\(\s*"  # n8n's own syntax to embed one
    r"|(?<![\w.-])(?:https?:)?(?://)?(?:[a-z]+\.)?youtube(?:-nocookie)?\.com"
    r"/(?:watch/?\?(?:[^\s\"'<>()]{0,200}?(?:&amp;|&))?v=|(?:embed|shorts|live|v|e)/)"
    r"|(?<![\w.-])(?:https?:)?(?://)?(?:www\.)?youtu\.be/"
    r"|(?:img\.youtube\.com|i\d?\.ytimg\.com)/(?:vi|vi_webp|an_webp)/"  # a still of one
    r")(?P<id>[A-Za-z0-9_-]{11})(?![A-Za-z0-9_-])",
    re.IGNORECASE,
)
_FILE = "fileid:"
_TITLE_SUFFIX = re.compile(r"\s*\|\s*n8n workflow template\s*$", re.IGNORECASE)
_OTHER_TEMPLATES = "section.section-creator-workflows"
_NOT_CONTENT = (
    "nav, footer, [role=dialog], dialog, [id*=cookie i], [class*=cookie i], [id*=onetrust i]"
)
NOT_ON_PAGES = "not on the page; the API has it"
EMPTY_ON_PAGES = frozenset({*ONLY_IN_API, *WORKFLOW_FIELDS, "description", "sticky_notes"})
"""Fields that the page of a template never has."""


@dataclass(frozen=True, slots=True)
class RichText:
    """Text, headings, images (URL and alternative text) and links; URLs are as written."""

    text: str = ""
    headings: list[dict[str, Any]] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def read_content(detail: Detail, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 3; every empty one is noted with its reason."""
    description = detail.values.get("description")
    if not isinstance(description, str):
        description = None
    parsed = read_markdown(description or "")
    if len(description or "") > _MAX_CHARACTERS:
        note("description_text", f"only the first {_MAX_CHARACTERS} characters are read")
    elif description and not parsed.text:
        note("description_text", "the description has no text, only images")
    notes = [
        _sticky_note(node)
        for node in nodes_of(detail.values.get("workflow"))
        if node.get("type") == STICKY_NOTE
    ]
    places = [("description", description or "", parsed)]
    for text in (one["text"] or "" for one in notes):
        # Most notes have neither link nor image, and parsing Markdown is slow.
        is_rich = "](" in text or "<" in text or "://" in text
        places.append(("sticky note", text, read_markdown(text) if is_rich else RichText()))
    fields = {
        "description": description,
        "description_text": None if description is None else parsed.text,
        "headings": parsed.headings,
        "sticky_notes": notes,
        "image_references": [
            *(_image(url, alt, place) for place, _, one in places for url, alt in one.images),
            *_attached_images(detail),
        ],
        "video_references": [
            {"id": video, "found_in": place}
            for place, text, _ in places
            for video in find_videos(text)
        ],
        "links": list(dict.fromkeys(link for *_, one in places for link in one.links)),
    }
    return note_empty(fields, detail.reason, note)


def _sticky_note(node: Mapping[str, Any]) -> dict[str, Any]:
    parameters = node.get("parameters")
    parameters = parameters if isinstance(parameters, Mapping) else {}
    text = parameters.get("content")
    return {
        "name": node.get("name"),
        "text": text if isinstance(text, str) else None,
        "position": node.get("position"),
        "width": parameters.get("width"),
        "height": parameters.get("height"),
    }


def _image(address: str, alt: str, found_in: str) -> dict[str, Any]:
    return {"address": address, "alt": alt, "found_in": found_in}


def _attached_images(detail: Detail) -> list[dict[str, Any]]:
    """Return the images of the response's own list, to which `fileId:N` in a text refers."""
    images = detail.values.get("image")
    return [
        {**_image(one["url"], "", "attached"), "file": one.get("id")}
        for one in (images if isinstance(images, list) else ())
        if isinstance(one, Mapping) and isinstance(one.get("url"), str)
    ]


def read_markdown(source: str) -> RichText:
    """Return the content of a text of Markdown and HTML."""
    html = _BREAK.sub("<br>\n", _MARKDOWN.render(source[:_MAX_CHARACTERS]))
    body = LexborHTMLParser(html).body
    return _read_html(body) if body else RichText()


def _read_html(root: LexborNode) -> RichText:
    root.strip_tags(["script", "style", "noscript", "template"], recursive=True)
    lines = (" ".join(line.split()) for line in root.text().splitlines())
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    headings = [
        {"level": int((node.tag or "h1")[1]), "text": heading}
        for node in root.css("h1, h2, h3, h4, h5, h6")
        if (heading := " ".join(node.text().split()))
    ]
    images = [
        (url.strip(), node.attributes.get("alt") or "")
        for node in root.css("img")
        if (url := node.attributes.get("src"))
    ]
    hrefs = [node.attributes.get("href") or "" for node in root.css("a")]
    bare = [link.rstrip(".,;:!?*_") for link in _BARE_LINK.findall(text)]
    links = [link for link in hrefs + bare if link.startswith(("http://", "https://"))]
    return RichText(text, headings, images, list(dict.fromkeys(links)))


def find_videos(text: str) -> list[str]:
    """Return the ids of the YouTube videos in a text, each once, in order."""
    found = (match["id"] for match in _VIDEO.finditer(text))
    return list(dict.fromkeys(video for video in found if video not in _NOT_VIDEOS))


def list_images(
    references: Iterable[Mapping[str, Any]], page_url: str, note: AddNote
) -> list[dict[str, Any]]:
    """Return each image once, with the places where it was found; unusable ones are noted."""
    references = list(references)
    files = {str(one["file"]): one["address"] for one in references if "file" in one}
    images: dict[str, dict[str, Any]] = {}
    for reference in references:
        url = _resolve(reference["address"], files, page_url)
        if url is None:
            note("images", f"cannot be resolved: {reference['address']:.80}")
            continue
        image = _add_place(images, url, {"url": url, "alt": ""}, reference["found_in"])
        image["alt"] = image["alt"] or reference["alt"]
    return list(images.values())


def list_videos(references: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return each video once, with the places where it was found."""
    videos: dict[str, dict[str, Any]] = {}
    for reference in references:
        key = reference["id"]
        url = f"https://www.youtube.com/watch?v={key}"
        _add_place(videos, key, {"id": key, "url": url}, reference["found_in"])
    return list(videos.values())


def _add_place(
    media: dict[str, dict[str, Any]], key: str, entry: dict[str, Any], place: str
) -> dict[str, Any]:
    found = media.setdefault(key, {**entry, "found_in": []})
    if place not in found["found_in"]:
        found["found_in"].append(place)
    return found


def _resolve(url: str, files: Mapping[str, str], page_url: str) -> str | None:
    if url.lower().startswith(_FILE):
        return files.get(url[len(_FILE) :].strip())
    try:
        absolute = urljoin(page_url, without_userinfo(url))
        is_web = urlsplit(absolute).scheme in {"http", "https"} and urlsplit(absolute).netloc
    except ValueError:  # a bracket in the host
        return None
    return absolute if is_web else None


@dataclass(frozen=True, slots=True)
class TemplatePage:
    """The page of one template; `body` has only the part about this template."""

    page: Page
    body: LexborNode
    title: str


async def fetch_page(visit: Visit) -> TemplatePage:
    """Return the page of this visit's template.

    Raises:
        SkipItem: the URL redirects to another page.
        UnexpectedShape: the page has no title.
    """
    page = await visit.fetch(visit.item.url)
    found = parse_template_url(page.url)
    if found is None or found[0] != template_id(visit.item):
        raise SkipItem(f"{visit.item.url} redirects to {page.url}")
    title = page.first_text("h1") or _page_title(page)
    tree = LexborHTMLParser(page.text)  # a copy, since nodes are removed
    body = tree.css_first("#__nuxt") or tree.body
    if not title or body is None:
        raise UnexpectedShape(page.url, "neither <h1> nor og:title on the page")
    _remove_nodes(body.css(_NOT_CONTENT))
    sections = body.css("section")
    others = {node.mem_id for node in body.css(_OTHER_TEMPLATES)}
    first = next((n for n, node in enumerate(sections) if node.mem_id in others), len(sections))
    _remove_nodes(sections[first:])
    return TemplatePage(page, body, title)


def _remove_nodes(nodes: list[LexborNode]) -> None:
    # From the end: inner nodes go before the outer ones, and none is removed twice.
    for node in reversed(nodes):
        node.decompose()


def _page_title(page: Page) -> str | None:
    title = page.first_attribute("meta[property='og:title']", "content")
    return _TITLE_SUFFIX.sub("", title).strip() or None if title else None


def page_metadata(item: Item, found: TemplatePage, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 1, most of them empty, with a note."""
    fields: dict[str, Any] = {
        "id": template_id(item),
        "url": item.url,
        "slug": slug_of(item),
        "endpoint": "page",
        "title": found.title,
        "page_title": _page_title(found.page),
        "summary": found.page.first_attribute("meta[name=description]", "content"),
        "author": None,
        "integrations": list(
            dict.fromkeys(slug for slug, _ in _links_below(found, "integrations"))
        ),
    }
    for username, name in _links_below(found, "creators")[:1]:
        fields["author"] = {"username": username, **({"name": name} if name else {})}
    note_empty(fields, "not on the page", note)
    return {**fields, **note_empty(dict.fromkeys(ONLY_IN_API), NOT_ON_PAGES, note)}


def _links_below(found: TemplatePage, folder: str) -> list[tuple[str, str]]:
    """Return slug and text of each link to a page of `/folder/`."""
    links = []
    for node in found.body.css(f"a[href*='/{folder}/']"):
        href = node.attributes.get("href") or ""
        slug = href.partition(f"/{folder}/")[2].strip("/").partition("/")[0]
        if slug:
            links.append((slug, " ".join(node.text().split())))
    return links


def page_content(found: TemplatePage, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 3, from the part of the page that is about this template."""
    videos = find_videos(found.body.html or "")
    parsed = _read_html(found.body)
    images = [_image(url, alt, "page") for url, alt in parsed.images]
    if image := found.page.first_attribute("meta[property='og:image']", "content"):
        images.append(_image(image, "", "og:image"))
    fields = {
        "description": None,
        "description_text": parsed.text,
        "headings": parsed.headings,
        "sticky_notes": None,
        "image_references": images,
        "video_references": [{"id": video, "found_in": "page"} for video in videos],
        "links": parsed.links,
    }
    return note_empty(fields, NOT_ON_PAGES, note)
