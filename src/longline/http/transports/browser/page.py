"""BrowserPage: a rendered page, with captured JSON responses and pages of a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import orjson

from longline.http.messages import Page

HTML = "text/html; charset=utf-8"
"""The content type of rendered pages."""
CAPTURE = "data-longline-capture"
"""The attribute of script elements with captured responses."""
CLICKS = "data-longline-clicks"
"""The attribute of the script element with the pages of a list."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One rendered page of a list."""

    url: str
    html: str


@dataclass(frozen=True, slots=True)
class Clicked:
    """Pages of a list, loaded by clicks.

    `end` is `more` when there are further pages, `last` when there is no more button, `same` when a
    click changed nothing; otherwise it says why the next page failed. With `has_address`, the last
    page can be opened again by its URL.
    """

    shown: tuple[Shown, ...]
    end: str
    has_address: bool = False


@dataclass(frozen=True)
class BrowserPage(Page):
    """A page as a browser renders it.

    `captured` are JSON responses by URL; further responses of a URL have #2, #3 … appended. They
    are in the body as well, each in a script element, so that an archived page still has them.
    `before` is the page before the actions, None without actions: what they do not replace should
    still be there. `led_away` names the action that led the browser to another URL.
    """

    captured: Mapping[str, Any] = field(default_factory=dict)
    before: Page | None = None
    led_away: str | None = None
    clicked: Clicked | None = None


def captured_in(page: Page) -> dict[str, Any]:
    """Return the captured responses of a page, also of an archived one."""
    if isinstance(page, BrowserPage):
        return dict(page.captured)
    return {
        str(node.attributes[CAPTURE]): orjson.loads(node.text())
        for node in page.css(f"script[{CAPTURE}]")
    }


def clicked_in(page: Page) -> Clicked:
    """Return the pages of a list of a page, also of an archived one."""
    if isinstance(page, BrowserPage) and page.clicked is not None:
        return page.clicked
    found = page.first(f"script[{CLICKS}]")
    if found is None:
        return Clicked((Shown(page.url, page.text),), "last")
    values = orjson.loads(found.text())
    shown = tuple(Shown(url, html) for url, html in values["shown"])
    return Clicked(shown, values["end"], values["has_address"])


def with_clicked(html: str, clicked: Clicked) -> str:
    """Return the HTML with the pages of its list appended."""
    values = {
        "shown": [(one.url, one.html) for one in clicked.shown],
        "end": clicked.end,
        "has_address": clicked.has_address,
    }
    return f'{html}<script type="application/json" {CLICKS}>{_in_script(values)}</script>'


def with_captured(html: str, captured: Mapping[str, Any]) -> str:
    """Return the HTML with captured responses appended."""
    return html + "".join(_element(url, value) for url, value in captured.items())


def _element(url: str, value: Any) -> str:
    return f'<script type="application/json" {CAPTURE}="{escape(url)}">{_in_script(value)}</script>'


def _in_script(value: Any) -> str:
    # Inside a script element, "<" is the one character that could end it.
    return orjson.dumps(value).decode().replace("<", "\\u003c")
