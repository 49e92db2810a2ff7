"""The browser process: tabs, replacement, crashes, and no orphan."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed
from longline.core.model import Usage
from longline.http.browser.manifest import check_browser, find_chromium
from longline.http.errors import NoBrowser
from longline.http.messages import Request
from tests.http.browsing import CHROMIUM, browsers, browsing, skip_without_browser
from tests.scripted_site import ScriptedSite

pytestmark = pytest.mark.real_time
HOLDER = Path(__file__).parent / "browser_process.py"
READY = {"wait": "p"}
_PATIENCE = 15.0


@pytest.fixture
def url(site: ScriptedSite) -> str:
    site.says("/page", "<p>hello</p>", headers={"Content-Type": "text/html"})
    return f"{site.url}/page"


async def test_a_browser_starts_with_the_first_page_and_ends_with_the_transport(
    url: str, tmp_path: Path
) -> None:
    async with browsing(tmp_path, READY) as transport:
        before = len(browsers())
        await transport(Request(url), Usage())
        during = browsers()
        profile = next(
            word.removeprefix("--user-data-dir=")
            for word in during[0].cmdline()
            if word.startswith("--user-data-dir=")
        )
        family = [child for one in during for child in (one, *one.children(recursive=True))]

    assert (before, len(during)) == (0, 1)
    assert [one for one in family if _is_alive(one)] == []
    assert not Path(profile).exists()


async def test_no_more_pages_are_open_than_there_are_tabs(
    site: ScriptedSite, tmp_path: Path
) -> None:
    open_now, most, both = 0, 0, asyncio.Event()

    async def wait_for_company(_request: web.Request) -> web.StreamResponse:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        if open_now > 1:
            both.set()
        await both.wait()
        open_now -= 1
        return web.Response(text="<p>", content_type="text/html")

    site.answers["/page"] = wait_for_company

    async with browsing(tmp_path, {"tabs": 2, "wait": "p"}) as transport:
        asked = (transport(Request(f"{site.url}/page?{n}"), Usage()) for n in range(4))
        await asyncio.gather(*asked)

    assert most == 2


async def test_a_new_browser_is_started_after_recycle_pages(
    site: ScriptedSite, tmp_path: Path
) -> None:
    received = record_cookies(site)

    async with browsing(tmp_path, {"recycle_pages": 2, "wait": "p"}) as transport:
        for _ in range(3):
            await transport(Request(f"{site.url}/page"), Usage())

    assert received == [None, "here=before", None]


async def test_cookies_are_cleared_if_none_are_kept(site: ScriptedSite, tmp_path: Path) -> None:
    received = record_cookies(site)

    async with browsing(tmp_path, {"wait": "p"}, keeps_cookies=False) as transport:
        for _ in range(2):
            await transport(Request(f"{site.url}/page"), Usage())

    assert received == [None, None]


def record_cookies(site: ScriptedSite) -> list[str | None]:
    """Set a cookie with each page; return the list of received Cookie headers."""
    received: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        received.append(request.headers.get("Cookie"))
        response = web.Response(text="<p>", content_type="text/html")
        response.set_cookie("here", "before")
        return response

    site.answers["/page"] = answer
    return received


async def never() -> web.StreamResponse:
    """Give no answer; the site ends it with the test."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_browser_that_crashes_fails_its_page_and_is_restarted(
    site: ScriptedSite, url: str, tmp_path: Path
) -> None:
    async def crash(_request: web.Request) -> web.StreamResponse:
        for browser in browsers():
            browser.kill()
        return await never()

    site.answers["/crash"] = crash

    async with browsing(tmp_path, READY) as transport:
        with pytest.raises(ConnectFailed, match="crash"):
            await transport(Request(f"{site.url}/crash"), Usage())
        page = await transport(Request(url), Usage())

    assert page.first_text("p") == "hello"
    assert browsers() == []


async def test_a_page_that_is_given_up_leaves_its_tab_to_the_next(
    site: ScriptedSite, url: str, tmp_path: Path
) -> None:
    reached = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        reached.set()
        return await never()

    site.answers["/hang"] = hang

    async with browsing(tmp_path, {"tabs": 1, "wait": "p"}) as transport:
        given_up = asyncio.ensure_future(transport(Request(f"{site.url}/hang"), Usage()))
        await reached.wait()
        given_up.cancel()
        page = await transport(Request(url), Usage())

    assert given_up.cancelled()
    assert page.first_text("p") == "hello"


async def test_a_remote_browser_is_used_and_not_ended(url: str, tmp_path: Path) -> None:
    skip_without_browser()
    with remote_browser(tmp_path / "remote") as (process, find_port):
        await in_time(lambda: find_port() is not None)
        async with browsing(
            tmp_path, READY, chromium=f"http://127.0.0.1:{find_port()}"
        ) as transport:
            page = await transport(Request(url), Usage())
        is_running = process.poll() is None

    assert page.first_text("p") == "hello"
    assert is_running


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_browser_outlives_the_process_it_belongs_to(
    url: str, number: signal.Signals
) -> None:
    skip_without_browser()
    with holder(url) as process:
        await in_time(lambda: process.stdout is not None and _said(process))
        family = psutil.Process(process.pid).children(recursive=True)
        started = len(browsers(process.pid))

        process.send_signal(number)
        await asyncio.to_thread(process.wait, _PATIENCE)
        await in_time(lambda: not any(_is_alive(one) for one in family))

    assert started == 1
    assert browsers(process.pid) == []


def test_a_named_browser_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NoBrowser, match=r"/no/such/program.*LONGLINE_CHROMIUM"):
        find_chromium("/no/such/program")


def test_a_missing_browser_is_reported_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))

    with pytest.raises(NoBrowser, match="LONGLINE_CHROMIUM"):
        check_browser()
    check_browser("ws://127.0.0.1:9222")


async def in_time(holds: Callable[[], bool]) -> None:
    """Return as soon as something holds that processes of their own bring about."""
    until = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


@contextmanager
def remote_browser(
    profile: Path,
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str | None]]]:
    """Start a browser that listens; give it, and what finds its port once it does."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    program = find_chromium(CHROMIUM)
    assert program is not None
    process = subprocess.Popen(
        [program, *flags, f"--user-data-dir={profile}"], stderr=subprocess.DEVNULL
    )

    def find_port() -> str | None:
        file = profile / "DevToolsActivePort"
        return file.read_text().splitlines()[0] if file.exists() and file.stat().st_size else None

    try:
        yield process, find_port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def holder(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that holds a page."""
    command = [sys.executable, str(HOLDER), url, *([CHROMIUM] if CHROMIUM else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _said(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return b"open" in (process.stdout.read() or b"")


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
