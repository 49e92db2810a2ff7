"""Just enough Markdown for the descriptions on the practice pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_ITEM = re.compile(r"(?:\d+\.|[-*]) +")
_MARKS = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[#*`>]|<[^>]*>")


def to_html(text: str, files: Mapping[int, str]) -> str:
    """Return Markdown as HTML; `files` are the addresses that `fileId:` references stand for."""
    for number, address in files.items():
        text = text.replace(f"(fileId:{number})", f"({address})")
    return "\n".join(_block(block) for block in text.split("\n\n") if block.strip())


def to_text(text: str, length: int) -> str:
    """Return the beginning of a Markdown text as plain words."""
    return " ".join(_MARKS.sub(r"\1", text).split())[:length]


def _block(block: str) -> str:
    head, _, rest = block.partition("\n")
    if head.startswith("#"):
        level = min(6, len(head) - len(head.lstrip("#")) + 1)
        heading = f"<h{level}>{_inline(head.strip('# '))}</h{level}>"
        return heading + ("\n" + _block(rest) if rest else "")
    lines = block.split("\n")
    if all(_ITEM.match(line) for line in lines):
        items = "".join(f"<li>{_inline(_ITEM.sub('', line, count=1))}</li>" for line in lines)
        return f"<ol>{items}</ol>"
    return f"<p>{_inline(block)}</p>"


def _inline(text: str) -> str:
    text = _IMAGE.sub(r'<img alt="\1" src="\2">', escape(text, quote=False))
    return _BOLD.sub(r"<strong>\1</strong>", _LINK.sub(r'<a href="\2">\1</a>', text))
