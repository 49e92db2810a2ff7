"""The life of the browser: few tabs, contexts that are changed, crashes, and no orphan ever."""

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

import orjson
import psutil
import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed
from longline.core.model import Usage
from longline.http.browser.chromium import MARK, BrowserOwner, sweep
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
        during, notes = browsers(), list(tmp_path.glob("*.json"))
        profile = Path(orjson.loads(notes[0].read_bytes())["profile"])
        family = [child for one in during for child in (one, *one.children(recursive=True))]

    assert (before, len(during), len(notes)) == (0, 1, 1)
    assert [one for one in family if _is_alive(one)] == []
    assert list(tmp_path.glob("*.json")) == []
    assert not profile.exists()


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


async def test_a_context_is_changed_after_so_many_pages(site: ScriptedSite, tmp_path: Path) -> None:
    heard: list[str | None] = []

    async def listen(request: web.Request) -> web.StreamResponse:
        heard.append(request.headers.get("Cookie"))
        response = web.Response(text="<p>", content_type="text/html")
        response.set_cookie("here", "before")
        return response

    site.answers["/page"] = listen

    async with browsing(tmp_path, {"recycle_pages": 2, "wait": "p"}) as transport:
        for _ in range(3):
            await transport(Request(f"{site.url}/page"), Usage())

    assert heard == [None, "here=before", None]


async def test_a_browser_that_has_had_many_contexts_is_followed_by_a_new_one(
    url: str, tmp_path: Path
) -> None:
    async with browsing(tmp_path, {"recycle_pages": 1, "wait": "p"}) as transport:
        await transport(Request(url), Usage())
        first = browsers()
        for _ in range(10):
            await transport(Request(url), Usage())
        second = browsers()

    assert len(first) == len(second) == 1
    assert first != second


async def test_cookies_are_forgotten_where_none_are_to_be_kept(
    site: ScriptedSite, tmp_path: Path
) -> None:
    heard: list[str | None] = []

    async def listen(request: web.Request) -> web.StreamResponse:
        heard.append(request.headers.get("Cookie"))
        response = web.Response(text="<p>", content_type="text/html")
        response.set_cookie("here", "before")
        return response

    site.answers["/page"] = listen

    async with browsing(tmp_path, {"wait": "p"}, keeps_cookies=False) as transport:
        for _ in range(2):
            await transport(Request(f"{site.url}/page"), Usage())

    assert heard == [None, None]


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


async def test_a_browser_that_runs_elsewhere_is_used_and_left_alone(
    url: str, tmp_path: Path
) -> None:
    skip_without_browser()
    with remote_browser(tmp_path / "remote") as (process, find_port):
        await in_time(lambda: find_port() is not None)
        async with browsing(
            tmp_path, READY, chromium=f"http://127.0.0.1:{find_port()}"
        ) as transport:
            page = await transport(Request(url), Usage())
            notes = list(tmp_path.glob("*.json"))
        is_left_alone = process.poll() is None

    assert page.first_text("p") == "hello"
    assert (notes, is_left_alone) == ([], True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_browser_outlives_the_process_it_belongs_to(
    url: str, tmp_path: Path, number: signal.Signals
) -> None:
    skip_without_browser()
    with holder(tmp_path, url) as process:
        await in_time(lambda: process.stdout is not None and _said(process))
        family = psutil.Process(process.pid).children(recursive=True)
        started = len(browsers(process.pid))

        process.send_signal(number)
        await asyncio.to_thread(process.wait, _PATIENCE)
        await in_time(lambda: not any(_is_alive(one) for one in family))

    assert started == 1
    assert browsers(process.pid) == []


async def test_what_a_dead_process_left_behind_is_swept_away(tmp_path: Path) -> None:
    profile = tmp_path / "playwright_chromiumdev_profile-x"
    profile.mkdir()
    left = pretender("dead-1")
    other = pretender("alive-1")
    gone = BrowserOwner(BrowserOwner.here().host, 2**22 + 1, 1.0)
    write_note(tmp_path / "dead-1.json", gone, profile=str(profile))
    write_note(tmp_path / "alive-1.json", BrowserOwner.here())
    write_note(tmp_path / "far-1.json", BrowserOwner("another-host", 1, 1.0))
    (tmp_path / "broken.json").write_text("{")

    try:
        swept = await asyncio.to_thread(sweep, tmp_path)

        assert swept == 1
        assert left.poll() is not None
        assert other.poll() is None
        assert not profile.exists()
        names = {file.name for file in tmp_path.glob("*.json")}
        assert names == {"alive-1.json", "far-1.json", "broken.json"}
    finally:
        other.kill()
        other.wait()


async def test_a_note_cannot_have_anything_but_a_profile_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    gone = BrowserOwner(BrowserOwner.here().host, 2**22 + 1, 1.0)
    write_note(tmp_path / "dead-1.json", gone, profile=str(precious))

    await asyncio.to_thread(sweep, tmp_path)

    assert precious.exists()


def test_a_pid_that_is_used_again_is_another_owner() -> None:
    here = BrowserOwner.here()

    assert not here.is_dead
    assert BrowserOwner(here.host, here.pid, here.started - 100).is_dead


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


def write_note(file: Path, owner: BrowserOwner, **more: str) -> None:
    values = {"host": owner.host, "pid": owner.pid, "started": owner.started, **more}
    file.write_bytes(orjson.dumps(values))


def pretender(token: str) -> subprocess.Popen[bytes]:
    """Start something that looks like a browser of ours."""
    code = "import time; time.sleep(60)"
    return subprocess.Popen([sys.executable, "-c", code, MARK + token])


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
def holder(folder: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that holds a page."""
    command = [sys.executable, str(HOLDER), str(folder), url, *([CHROMIUM] if CHROMIUM else [])]
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
