"""What comes back from a browser: the page as it is shown, and JSON that was read along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import orjson

from longline.http.messages import Page

HTML = "text/html; charset=utf-8"
"""The content type of what a browser shows."""
CAPTURE = "data-longline-capture"
"""The attribute of the script elements that hold what was read along."""
CLICKS = "data-longline-clicks"
"""The attribute of the script element that holds the pages of a list."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One page of a list as it was shown."""

    url: str
    html: str


@dataclass(frozen=True, slots=True)
class Clicked:
    """Pages of a list, one click after the other.

    `end` is `more` when there are further pages, `last` when there is no button to click any more,
    `same` when a click changed nothing; else it says why the next page could not be had. What
    `has_address` can be shown again by opening the address of the last page.
    """

    shown: tuple[Shown, ...]
    end: str
    has_address: bool = False


@dataclass(frozen=True)
class BrowserPage(Page):
    """A page as a browser shows it.

    `captured` are the JSON answers that were read along, by address; one that answered several
    times has #2, #3 … behind it. They stand in the body as well, each in a script element, so
    that an archived page still has them. `before` is the page that the actions began with, None
    when there were none: what they were not meant to replace should still be there. `led_away`
    names the action that led the browser to another address.
    """

    captured: Mapping[str, Any] = field(default_factory=dict)
    before: Page | None = None
    led_away: str | None = None
    clicked: Clicked | None = None


def captured_in(page: Page) -> dict[str, Any]:
    """Return what was read along with a page, from wherever the page comes: also an archive."""
    if isinstance(page, BrowserPage):
        return dict(page.captured)
    return {
        str(node.attributes[CAPTURE]): orjson.loads(node.text())
        for node in page.css(f"script[{CAPTURE}]")
    }


def clicked_in(page: Page) -> Clicked:
    """Return the pages of a list that came with a page, from wherever it comes: also an archive."""
    if isinstance(page, BrowserPage) and page.clicked is not None:
        return page.clicked
    found = page.first(f"script[{CLICKS}]")
    if found is None:
        return Clicked((Shown(page.url, page.text),), "last")
    said = orjson.loads(found.text())
    shown = tuple(Shown(url, html) for url, html in said["shown"])
    return Clicked(shown, said["end"], said["has_address"])


def with_clicked(html: str, clicked: Clicked) -> str:
    """Return a page with those of its list at its end."""
    said = {
        "shown": [(one.url, one.html) for one in clicked.shown],
        "end": clicked.end,
        "has_address": clicked.has_address,
    }
    return f'{html}<script type="application/json" {CLICKS}>{_in_script(said)}</script>'


def with_captured(html: str, captured: Mapping[str, Any]) -> str:
    """Return a page with what was read along at its end."""
    return html + "".join(_element(url, value) for url, value in captured.items())


def _element(url: str, value: Any) -> str:
    return f'<script type="application/json" {CAPTURE}="{escape(url)}">{_in_script(value)}</script>'


def _in_script(value: Any) -> str:
    # Inside a script element, "<" is the one character that could end it.
    return orjson.dumps(value).decode().replace("<", "\\u003c")
