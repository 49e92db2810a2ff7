"""Reading Markdown that is mixed with HTML, as people write descriptions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

_MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_BARE_LINK = re.compile(r"https?://[^\s<>()\[\]\"'`|\\]+")
LONGEST = 50_000
"""Characters of a text that are read. Deep nesting takes time that grows with its square, and
whoever writes a description must not be able to stop the event loop."""
_HEADINGS = "h1, h2, h3, h4, h5, h6"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text holds. Images are (address, alternative text); addresses are as written."""

    text: str = ""
    headings: list[dict[str, Any]] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def read_markdown(source: str) -> Reading:
    """Return what is in a text of Markdown and HTML, up to its LONGEST-th character."""
    html = _BREAK.sub("<br>\n", _MARKDOWN.render(source[:LONGEST]))
    body = LexborHTMLParser(html).body
    return read_html(body) if body else Reading()


def read_html(root: LexborNode) -> Reading:
    """Return what is in an HTML element; scripts and styles are taken out of it."""
    root.strip_tags(["script", "style", "noscript", "template"], recursive=True)
    text = _tidy(root.text())
    hrefs = [node.attributes.get("href") or "" for node in root.css("a")]
    bare = [link.rstrip(".,;:!?*_") for link in _BARE_LINK.findall(text)]
    links = [link for link in hrefs + bare if link.startswith(("http://", "https://"))]
    return Reading(text, _headings(root), _images(root), list(dict.fromkeys(links)))


def _headings(root: LexborNode) -> list[dict[str, Any]]:
    return [
        {"level": int((node.tag or "h1")[1]), "text": text}
        for node in root.css(_HEADINGS)
        if (text := " ".join(node.text().split()))
    ]


def _images(root: LexborNode) -> list[tuple[str, str]]:
    return [
        (address.strip(), node.attributes.get("alt") or "")
        for node in root.css("img")
        if (address := node.attributes.get("src"))
    ]


def _tidy(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


# ---------------- Finding YouTube videos in text, in every form in which people write them

# 11 characters too, but words of YouTube's for a playlist and for a channel's live stream.
_NOT_VIDEOS = frozenset({"videoseries", "live_stream"})
_ID = r"(?P<id>[A-Za-z0-9_-]{11})(?![A-Za-z0-9_-])"
_FORMS = re.compile(
    r"(?:"
    r"@\[youtube\]\(\s*"  # n8n's own way to embed one
    r"|(?<![\w.-])(?:https?:)?(?://)?(?:[a-z]+\.)?youtube(?:-nocookie)?\.com"
    r"/(?:watch/?\?(?:[^\s\"'<>()]{0,200}?(?:&amp;|&))?v=|(?:embed|shorts|live|v|e)/)"
    r"|(?<![\w.-])(?:https?:)?(?://)?(?:www\.)?youtu\.be/"
    r"|(?:img\.youtube\.com|i\d?\.ytimg\.com)/(?:vi|vi_webp|an_webp)/"  # a still picture of one
    rf"){_ID}",
    re.IGNORECASE,
)


def find_videos(text: str) -> list[str]:
    """Return the ids of the videos in a text, each once, in order of appearance."""
    found = (match["id"] for match in _FORMS.finditer(text))
    return list(dict.fromkeys(video for video in found if video not in _NOT_VIDEOS))


def watch_address(video: str) -> str:
    """Return the address at which people watch a video."""
    return f"https://www.youtube.com/watch?v={video}"
