"""A Chromium and the servers that it opens; the tests of one process share them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from longline.http.browser.manifest import find_chromium
from tests.http.browsing import CHROMIUM, skip_without_browser
from tests.server.web.browser.served import Served, demo_running, server_running
from tests.server.web.browser.visitor import Visitor, visiting

OpenVisitor = Callable[[Served], Awaitable[Visitor]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    skip_without_browser()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_chromium(CHROMIUM), chromium_sandbox=os.geteuid() != 0
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """The dashboard of `longline demo --serve`, whose practice web keeps running."""
    del browser  # without one, nothing is started
    async with demo_running(tmp_path_factory.mktemp("demo")) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def empty(browser: Browser, tmp_path: Path) -> AsyncIterator[Served]:
    """The dashboard of `longline serve` with an empty home."""
    del browser
    async with server_running(tmp_path) as served:
        yield served


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[OpenVisitor]:
    """Return what opens a dashboard in a window of its own, and fails on errors of its pages."""
    async with AsyncExitStack() as stack:

        async def open_visitor(served: Served) -> Visitor:
            return await stack.enter_async_context(visiting(browser, served))

        yield open_visitor
