"""HTML manifests as a test writes them, and what comes of them on a scripted web."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import yaml

from longline.core.model import Item
from longline.http.messages import Page
from longline.sources.base import Source, Visit
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.source import html_source
from tests.sources.scripted import ScriptedWeb, collect, discovered
from tests.virtual import VirtualClock

SITE = "https://shop.test"


def manifest_of(text: str, **more: Any) -> HtmlManifest:
    """Read a manifest; it is named, and has a field, where the test does not care."""
    values = {"name": "shop", "fields": {"title": "h1"}, **yaml.safe_load(dedent(text)), **more}
    return HtmlManifest.model_validate(values)


def source_of(text: str, **options: Any) -> Source:
    return html_source(manifest_of(text)).with_options(options)


def linked(*paths: str, more: str = "") -> str:
    """Write an index page with links to items, and something below them."""
    links = "".join(f'<h3><a href="{path}">{path}</a></h3>' for path in paths)
    return f"<main>{links}</main>{more}"


async def found_keys(text: str, script: dict[str, Any], clock: VirtualClock) -> list[str]:
    items, _ = await discovered(source_of(text), ScriptedWeb(script), clock)
    return [item.key for item in items]


async def read(text: str, html: str | bytes, clock: VirtualClock) -> tuple[dict[str, Any], Visit]:
    """Read a page at /p/1 with the fields of a manifest."""
    url = f"{SITE}/p/1"
    source = source_of(f"start: {SITE}\n{dedent(text)}")
    body = html.encode() if isinstance(html, str) else html
    page = Page(url, 200, {"content-type": "text/html; charset=utf-8"}, body)
    return await collect(source, ScriptedWeb({url: page}), Item("1", url), clock)
