"""What a page asks for by itself: paced, counted, blocked; and deadlines that wait for the pace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longline.core.clock import SystemClock
from longline.core.errors import Deferred, FailureKind
from longline.core.model import Usage
from longline.http.browser.manifest import BrowserOptions
from longline.http.browser.traffic import Blocker, PausableTimeouts
from longline.http.browser.transport import BrowserTransport
from longline.http.messages import Page, Request
from tests.http.browsing import browsing, open_shop
from tests.scripted_site import ScriptedSite


@pytest.mark.real_time
async def test_every_request_of_a_page_acquires_a_slot(site: ScriptedSite, tmp_path: Path) -> None:
    turns: list[str] = []

    async def before(url: str) -> None:
        turns.append(url)

    async with browsing(tmp_path, {"wait": ".item"}, before=before) as transport:
        await transport(Request(open_shop(site)), Usage())

    assert turns == [f"{site.url}/api/items?from=0"]


@pytest.mark.real_time
async def test_waiting_for_a_turn_does_not_bring_the_deadline_closer(
    site: ScriptedSite, tmp_path: Path
) -> None:
    async def before(_url: str) -> None:
        await asyncio.sleep(1.2)

    spec = {"wait": {"selector": ".item", "timeout": 1}}
    async with browsing(tmp_path, spec, before=before) as transport:
        await transport(Request(f"{site.url}/nothing", timeout=15), Usage())  # starts the browser
        page = await transport(Request(open_shop(site), timeout=15), Usage())

    assert len(page.css(".item")) == 200


@pytest.mark.real_time
async def test_a_redirect_inside_a_page_is_counted_and_acquires_a_slot(
    site: ScriptedSite, tmp_path: Path
) -> None:
    turns: list[str] = []

    async def before(url: str) -> None:
        turns.append(url)

    html = {"Content-Type": "text/html"}
    site.says("/page", "<script src='/one.js'></script>", headers=html)
    site.says("/one.js", status=302, headers={"Location": "/two.js"})
    site.says("/two.js", "document.title = 'here'", headers={"Content-Type": "text/javascript"})
    usage = Usage()

    async with browsing(tmp_path, before=before) as transport:
        page = await transport(Request(f"{site.url}/page"), usage)

    assert page.first_text("title") == "here"
    assert turns == [f"{site.url}/one.js", f"{site.url}/two.js"]
    assert usage.requests == 3


@pytest.mark.real_time
async def test_a_page_whose_parts_may_not_be_asked_for_is_not_taken_for_whole(
    site: ScriptedSite, tmp_path: Path
) -> None:
    async def before(url: str) -> None:
        raise Deferred(url, 2e9, "the site rests", FailureKind.OVERLOAD)

    spec = {"wait": {"selector": ".item", "timeout": 0.5}}
    async with browsing(tmp_path, spec, before=before) as transport:
        with pytest.raises(Deferred, match="the site rests"):
            await transport(Request(open_shop(site)), Usage())

    assert site.hits["/api/items"] == 0


@pytest.mark.real_time
async def test_a_window_that_a_page_opens_asks_for_nothing(
    site: ScriptedSite, tmp_path: Path
) -> None:
    site.says(
        "/page",
        "<button id=b onclick=\"window.open('/popup')\">b</button>",
        headers={"Content-Type": "text/html"},
    )

    async with browsing(tmp_path, {"actions": [{"click": "#b"}]}) as transport:
        page = await transport(Request(f"{site.url}/page"), Usage())

    assert page.status == 200
    assert site.hits["/popup"] == 0


@pytest.mark.parametrize(
    ("url", "kind", "is_blocked"),
    [
        ("https://shop.test/a.png", "image", True),
        ("https://shop.test/app.js", "script", False),
        ("https://www.google-analytics.com/g/collect", "ping", True),
        ("https://notgoogle-analytics.com/x", "script", False),
        ("https://ads.shop.test/x", "script", True),
        ("https://ads.shop.test:8443/x", "script", True),
        ("https://deep.below.test/x", "xhr", True),
        ("https://below.test/x", "xhr", False),
    ],
)
def test_what_is_blocked(url: str, kind: str, *, is_blocked: bool) -> None:
    blocker = Blocker(("image", "trackers", "ads.shop.test", "*.below.test"))

    assert blocker.blocks(url, kind) is is_blocked


def test_an_empty_list_blocks_nothing() -> None:
    blocker = Blocker(())

    assert not blocker.blocks("https://www.google-analytics.com/a.png", "image")


async def test_a_timeout_pauses_while_a_request_waits() -> None:
    patience, loop = PausableTimeouts(), asyncio.get_running_loop()

    async def work() -> None:
        async with asyncio.timeout(10) as deadline:
            with patience.pausing(deadline):
                await asyncio.sleep(4)
                with patience.waiting(), patience.waiting():
                    await asyncio.sleep(100)
                await asyncio.sleep(50)

    with pytest.raises(TimeoutError):
        await work()

    assert loop.time() == pytest.approx(110, abs=0.1)


async def test_a_timeout_that_starts_during_a_wait_is_paused() -> None:
    patience, loop = PausableTimeouts(), asyncio.get_running_loop()

    async def wait() -> None:
        with patience.waiting():
            await asyncio.sleep(100)

    async def work() -> None:
        await asyncio.sleep(1)
        async with asyncio.timeout(10) as deadline:
            with patience.pausing(deadline):
                await asyncio.sleep(200)

    with pytest.raises(TimeoutError):
        await asyncio.gather(wait(), work())

    assert loop.time() == pytest.approx(110, abs=0.1)


async def test_only_rendered_requests_go_to_the_browser() -> None:
    http = Named("http")
    transport = BrowserTransport(http, BrowserOptions(), SystemClock())

    plain = await transport(Request("http://x/robots.txt"), Usage())

    assert plain.text == "http"


class Named:
    """A transport that answers with its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        return Page(request.url, 200, {}, self._name.encode())
