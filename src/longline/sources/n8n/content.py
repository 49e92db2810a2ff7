"""What explains a template: description, sticky notes, images, videos; or its public page."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import BadStatus, FetchError, SkipItem, UnexpectedShape
from longline.core.model import Item
from longline.http.messages import Page, without_userinfo
from longline.limits.retry import RETRIED_STATUSES
from longline.sources.base import Visit
from longline.sources.n8n.template import (
    STICKY_NOTE,
    AddNote,
    Detail,
    empty_workflow,
    nodes_of,
    parse_template_url,
    slug_of,
    template_id,
)

_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_BARE_LINK = re.compile(r"https?://[^\s<>()\[\]\"'`|\\]+")
_MAX_CHARACTERS = 50_000
"""Characters of a text that are read: the time of deep nesting grows with its square."""
_HEADINGS = "h1, h2, h3, h4, h5, h6"
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
# Servers that do not implement HEAD return 501.
_RETURNED_STATUSES = frozenset(range(400, 600)) - (RETRIED_STATUSES - {501})
_NO_HEAD_STATUSES = frozenset({400, 403, 404, 405, 501})
_FILE = "fileid:"
_TITLE_SUFFIX = re.compile(r"\s*\|\s*n8n workflow template\s*$", re.IGNORECASE)
_OTHER_TEMPLATES = "section.section-creator-workflows"
_NOT_CONTENT = (
    "nav, footer, [role=dialog], dialog, [id*=cookie i], [class*=cookie i], [id*=onetrust i]"
)
_NOT_ON_PAGES = "not on the page; the API has it"
_ONLY_IN_API = [
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
]
_DECLARED_COUNTS = ("declared_node_count", "declared_node_types")
EMPTY_ON_PAGES = frozenset(
    {
        *_ONLY_IN_API,
        *empty_workflow("", lambda _field, _text: None),
        *_DECLARED_COUNTS,
        *("description", "sticky_notes"),
    }
)
"""Fields that the page of a template never has."""


@dataclass(frozen=True, slots=True)
class RichText:
    """Text, headings, images (URL and alternative text) and links; URLs are as written."""

    text: str = ""
    headings: list[dict[str, Any]] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


_Places = list[tuple[str, str, RichText]]
"""Name, source text and parsed text of each place that explains a template."""


def read_content(detail: Detail, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 3; every empty one is noted with its reason."""
    description = detail.values.get("description")
    if not isinstance(description, str):
        unexpected = "" if description is None else f" (it is {type(description).__name__})"
        note("description", detail.why_empty("description") + unexpected)
        description = None
    notes = _sticky_notes(detail, note)
    parsed = read_markdown(description or "")
    places = [("description", description or "", parsed)]
    places += [("sticky note", text, _read_note(text)) for one in notes if (text := one["text"])]
    return {
        "description": description,
        "description_text": _description_text(description, parsed, note),
        "headings": parsed.headings,
        "sticky_notes": notes,
        "image_references": [*_images_in(places), *_attached_images(detail, note)],
        "video_references": _videos_in(places),
        "links": list(dict.fromkeys(link for *_, one in places for link in one.links)),
    }


def _description_text(description: str | None, parsed: RichText, note: AddNote) -> str | None:
    if description is None:
        note("description_text", "there is no description")
        return None
    if len(description) > _MAX_CHARACTERS:
        note("description_text", f"only the first {_MAX_CHARACTERS} characters are read")
    elif not parsed.text:
        note("description_text", "the description has no text, only images")
    return parsed.text


def _sticky_notes(detail: Detail, note: AddNote) -> list[dict[str, Any]]:
    nodes = nodes_of(detail.values.get("workflow"))
    found = [_sticky_note(node) for node in nodes if node.get("type") == STICKY_NOTE]
    for key, missing in (("text", "text"), ("position", "position"), ("width", "size")):
        if count := sum(entry[key] is None for entry in found):
            note("sticky_notes", f"{count} of {len(found)} have no {missing}")
    return found


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


def _read_note(text: str) -> RichText:
    # Most notes have neither link nor image, and parsing Markdown is slow.
    return read_markdown(text) if "](" in text or "<" in text or "://" in text else RichText()


def _images_in(places: _Places) -> list[dict[str, Any]]:
    return [
        {"address": url, "alt": alt, "found_in": place}
        for place, _text, parsed in places
        for url, alt in parsed.images
    ]


def _attached_images(detail: Detail, note: AddNote) -> list[dict[str, Any]]:
    """Return the images of the response's own list, to which `fileId:N` in a text refers."""
    images = detail.values.get("image")
    if not isinstance(images, list):
        note("image_references", f"the list of attached images is {detail.why_empty('image')}")
        return []
    usable = [one for one in images if isinstance(one, Mapping) and isinstance(one.get("url"), str)]
    for one in images:
        if one not in usable:
            note("image_references", f"an attached image without a URL: {one!r:.80}")
    return [
        {"address": one["url"], "alt": "", "found_in": "attached", "file": one.get("id")}
        for one in usable
    ]


def _videos_in(places: _Places) -> list[dict[str, str]]:
    pairs = dict.fromkeys(
        (video, place) for place, text, _ in places for video in find_videos(text)
    )
    return [{"id": video, "found_in": place} for video, place in pairs]


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
        for node in root.css(_HEADINGS)
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
        image = images.setdefault(url, {"url": url, "alt": "", "found_in": []})
        image["alt"] = image["alt"] or reference["alt"]
        if reference["found_in"] not in image["found_in"]:
            image["found_in"].append(reference["found_in"])
    return list(images.values())


def list_videos(references: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return each video once, with the places where it was found."""
    videos: dict[str, dict[str, Any]] = {}
    for reference in references:
        key = reference["id"]
        url = f"https://www.youtube.com/watch?v={key}"
        video = videos.setdefault(key, {"id": key, "url": url, "found_in": []})
        if reference["found_in"] not in video["found_in"]:
            video["found_in"].append(reference["found_in"])
    return list(videos.values())


def _resolve(url: str, files: Mapping[str, str], page_url: str) -> str | None:
    if url.lower().startswith(_FILE):
        return files.get(url[len(_FILE) :].strip())
    try:
        absolute = urljoin(page_url, without_userinfo(url))
        is_web = urlsplit(absolute).scheme in {"http", "https"} and urlsplit(absolute).netloc
    except ValueError:  # a bracket in the host
        return None
    return absolute if is_web else None


async def check_image(visit: Visit, url: str, trusted_hosts: frozenset[str]) -> dict[str, Any]:
    """Request an image and return its status, type and size in bytes, or the problem.

    Private addresses are not requested unless the user named their host.
    """
    host = urlsplit(url).hostname or ""
    if host not in trusted_hosts and _is_private(host):
        return _unchecked(None, "not requested: it is in a private network")
    try:
        page = await visit.fetch(url, method="HEAD", accept=_RETURNED_STATUSES)
        if page.status in _NO_HEAD_STATUSES:
            page = await visit.fetch(url, accept=_RETURNED_STATUSES)
    except FetchError as error:
        return _unchecked(error.status if isinstance(error, BadStatus) else None, str(error))
    length = page.headers.get("content-length", "")
    return {
        "status": page.status,
        "type": page.headers.get("content-type"),
        "size_bytes": int(length) if length.isdigit() else len(page.body) or None,
    }


def _unchecked(status: int | None, problem: str) -> dict[str, Any]:
    return {"status": status, "type": None, "size_bytes": None, "problem": problem}


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


@dataclass(frozen=True, slots=True)
class TemplatePage:
    """The page of one template, reduced to the part about this template."""

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
    if not title:
        raise UnexpectedShape(page.url, "neither <h1> nor og:title on the page")
    return TemplatePage(page, _template_part(page), title)


def page_metadata(item: Item, found: TemplatePage, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 1, most of them empty, with a note."""
    fields: dict[str, Any] = {
        "id": template_id(item),
        "url": item.url,
        "slug": slug_of(item, note),
        "endpoint": "page",
        "title": found.title,
        "page_title": _page_title(found.page),
        "summary": found.page.first_attribute("meta[name=description]", "content"),
        "author": _page_author(found.body),
        "integrations": _integrations(found.body),
    }
    for name in ("page_title", "summary", "author"):
        if fields[name] is None:
            note(name, "not on the page")
    for name in _ONLY_IN_API:
        note(name, _NOT_ON_PAGES)
    return {**fields, **dict.fromkeys(_ONLY_IN_API)}


def page_workflow(note: AddNote) -> dict[str, None]:
    """Return the fields of layer 2, all empty: scripts load the workflow from the API."""
    for name in _DECLARED_COUNTS:
        note(name, _NOT_ON_PAGES)
    return {**empty_workflow(_NOT_ON_PAGES, note), **dict.fromkeys(_DECLARED_COUNTS)}


def page_content(found: TemplatePage, note: AddNote) -> dict[str, Any]:
    """Return the fields of layer 3, from the part of the page that is about this template."""
    note("description", "the page has no Markdown; its text is in description_text")
    note("sticky_notes", "the page does not have the workflow, which they are part of")
    videos = find_videos(found.body.html or "")
    parsed = _read_html(found.body)
    images = _images_in([("page", "", parsed)])
    if image := found.page.first_attribute("meta[property='og:image']", "content"):
        images.append({"address": image, "alt": "", "found_in": "og:image"})
    return {
        "description": None,
        "description_text": parsed.text,
        "headings": parsed.headings,
        "sticky_notes": None,
        "image_references": images,
        "video_references": [{"id": video, "found_in": "page"} for video in videos],
        "links": parsed.links,
    }


def _page_title(page: Page) -> str | None:
    title = page.first_attribute("meta[property='og:title']", "content")
    return _TITLE_SUFFIX.sub("", title).strip() or None if title else None


def _template_part(page: Page) -> LexborNode:
    tree = LexborHTMLParser(page.text)  # a copy, since nodes are removed
    body = tree.css_first("#__nuxt") or tree.body
    if body is None:
        raise UnexpectedShape(page.url, "an empty page")
    _remove_nodes(body.css(_NOT_CONTENT))
    sections = body.css("section")
    others = {node.mem_id for node in body.css(_OTHER_TEMPLATES)}
    first = next((n for n, node in enumerate(sections) if node.mem_id in others), len(sections))
    _remove_nodes(sections[first:])
    return body


def _remove_nodes(nodes: list[LexborNode]) -> None:
    # From the end: inner nodes go before the outer ones, and none is removed twice.
    for node in reversed(nodes):
        node.decompose()


def _page_author(body: LexborNode) -> dict[str, Any] | None:
    link = body.css_first("a[href*='/creators/']")
    path = (link.attributes.get("href") or "") if link else ""
    username = path.partition("/creators/")[2].strip("/").partition("/")[0]
    if link is None or not username:
        return None
    name = " ".join(link.text().split())
    return {"username": username, **({"name": name} if name else {})}


def _integrations(body: LexborNode) -> list[str]:
    links = (node.attributes.get("href") or "" for node in body.css("a[href*='/integrations/']"))
    slugs = (link.partition("/integrations/")[2].strip("/").partition("/")[0] for link in links)
    return list(dict.fromkeys(slug for slug in slugs if slug))
