"""A small shop that is nothing without its scripts, and the browser to look at it with."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web

from longline.core.clock import SystemClock
from longline.core.model import Usage
from longline.http.browser.chromium import MARK
from longline.http.browser.manifest import BrowserOptions, BrowserSpec, check_browser
from longline.http.browser.transport import BrowserTransport
from longline.http.errors import NoBrowser
from longline.http.messages import Page, Request
from tests.scripted_site import ScriptedSite

CHROMIUM = os.environ.get("LONGLINE_CHROMIUM")

SHOP = """<!doctype html><title>Shop</title>
<link rel="icon" href="data:,"><img src="/picture.png"><h1>Shop</h1>
<ul id="items"></ul><button id="more">more</button>
<script>
const list = document.querySelector("#items"), more = document.querySelector("#more");
let next = 0;
async function load() {
  const answer = await fetch(`/api/items?from=${next}`);
  const {items, last} = await answer.json();
  for (const one of items) {
    const row = document.createElement("li");
    row.className = "item"; row.textContent = one.title; list.append(row);
  }
  next += items.length;
  if (last) more.remove();
}
more.addEventListener("click", load);
load();
</script>"""
COUNT = 200


def skip_without_browser() -> None:
    """A missing browser skips a test, unless LONGLINE_REQUIRE_BROWSER says that it fails it."""
    try:
        check_browser(CHROMIUM)
    except NoBrowser as error:
        if os.environ.get("LONGLINE_REQUIRE_BROWSER"):
            raise
        pytest.skip(str(error))


def open_shop(site: ScriptedSite, *, batch: int = COUNT) -> str:
    """Let the site be a shop of 200 things that come in batches; return its address."""
    site.says("/shop", SHOP, headers={"Content-Type": "text/html"})

    async def items(request: web.Request) -> web.StreamResponse:
        first = int(request.query["from"])
        rows = [{"title": f"thing {n}"} for n in range(first, min(first + batch, COUNT))]
        return web.json_response({"items": rows, "last": first + batch >= COUNT})

    site.answers["/api/items"] = items
    return f"{site.url}/shop"


class Rendering:
    """Sends every plain request to the browser instead."""

    transport: BrowserTransport

    async def __call__(self, request: Request, usage: Usage) -> Page:
        return await self.transport(replace(request, is_rendered=True), usage)


@asynccontextmanager
async def browsing(
    folder: Path,
    spec: dict[str, Any] | None = None,
    *,
    before: Callable[[str], Awaitable[Any]] | None = None,
    **options: Any,
) -> AsyncIterator[BrowserTransport]:
    """Open a browser for the time of a block."""
    skip_without_browser()
    written = BrowserSpec.model_validate(spec or {})
    usual = {"chromium": CHROMIUM, "failures": folder / "failures", "timeout": 20.0}
    known = BrowserOptions(written, **{**usual, **options})
    rendering = Rendering()
    transport = rendering.transport = BrowserTransport(rendering, known, SystemClock(), before)
    try:
        yield transport
    finally:
        await transport.close()


def browsers(of: int | None = None) -> list[psutil.Process]:
    """Return the browsers of a process (this one, if none is named) that are alive."""
    mark = f"{MARK}{of or os.getpid()}-"
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if any(word.startswith(mark) for word in process.info["cmdline"] or ())
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
