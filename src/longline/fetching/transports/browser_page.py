"""What comes back from a browser: the page as it is shown, and JSON that was read along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import orjson

from longline.fetching.messages import Page

CAPTURE = "data-longline-capture"
"""The attribute of the script elements that hold what was read along."""


@dataclass(frozen=True)
class BrowserPage(Page):
    """A page as a browser shows it.

    `captured` are the JSON answers that were read along, by address; one that answered several
    times has #2, #3 … behind it. They stand in the body as well, each in a script element, so
    that an archived page still has them.
    """

    captured: Mapping[str, Any] = field(default_factory=dict)


def captured_in(page: Page) -> dict[str, Any]:
    """Return what was read along with a page, from wherever the page comes: also an archive."""
    if isinstance(page, BrowserPage):
        return dict(page.captured)
    return {
        str(node.attributes[CAPTURE]): orjson.loads(node.text())
        for node in page.css(f"script[{CAPTURE}]")
    }


def with_captured(html: str, captured: Mapping[str, Any]) -> str:
    """Return a page with what was read along at its end."""
    return html + "".join(_element(url, value) for url, value in captured.items())


def _element(url: str, value: Any) -> str:
    # Inside a script element, "<" is the one sign that could end it.
    text = orjson.dumps(value).decode().replace("<", "\\u003c")
    return f'<script type="application/json" {CAPTURE}="{escape(url)}">{text}</script>'
