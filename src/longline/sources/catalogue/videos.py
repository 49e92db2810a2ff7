"""Finding YouTube videos in text, in every form in which people write them."""

from __future__ import annotations

import re

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
