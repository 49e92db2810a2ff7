"""Pages through a real Chromium: what comes back, what is waited for, what is done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed
from longline.core.model import CUT, Usage
from longline.http.errors import BadAnswer, NeverReady, TimedOut
from longline.http.messages import Page, Request
from tests.http.browsing import COUNT, browsing, open_shop
from tests.scripted_site import ScriptedSite

pytestmark = pytest.mark.real_time


def html(site: ScriptedSite, path: str, text: str, **more: Any) -> str:
    site.says(path, text, headers={"Content-Type": "text/html; charset=utf-8"}, **more)
    return f"{site.url}{path}"


def titles(page: Page) -> list[str]:
    return [node.text(strip=True) for node in page.css(".item")]


async def test_a_page_comes_as_its_scripts_have_made_it(site: ScriptedSite, tmp_path: Path) -> None:
    url, usage = open_shop(site), Usage()

    async with browsing(tmp_path, {"wait": ".item"}) as transport:
        page = await transport(Request(url), usage)

    assert titles(page) == [f"thing {n}" for n in range(COUNT)]
    assert (page.url, page.status) == (url, 200)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "content-length" not in page.headers
    assert (usage.requests, usage.status) == (2, 200)
    assert usage.received_bytes == len(page.body)


async def test_without_a_wait_a_page_is_ready_when_it_is_idle(
    site: ScriptedSite, tmp_path: Path
) -> None:
    async with browsing(tmp_path) as transport:
        page = await transport(Request(open_shop(site)), Usage())

    assert len(titles(page)) == COUNT


async def test_images_are_not_loaded_by_default(site: ScriptedSite, tmp_path: Path) -> None:
    url = open_shop(site)

    async with browsing(tmp_path) as transport:
        await transport(Request(url), Usage())
    hits_by_default = site.hits["/picture.png"]
    async with browsing(tmp_path, {"block": []}) as transport:
        await transport(Request(url), Usage())

    assert hits_by_default == 0
    assert site.hits["/picture.png"] == 1


async def test_a_page_that_grows_is_scrolled_to_its_end(site: ScriptedSite, tmp_path: Path) -> None:
    url = html(
        site,
        "/endless",
        """<div id="all"></div><script>
        let rows = 0;
        function grow() {
          if (rows >= 40) return;
          for (let i = 0; i < 10; i++, rows++)
            all.insertAdjacentHTML("beforeend", `<p class="item" style="height:200px">${rows}</p>`);
        }
        grow();
        addEventListener("scroll", () => {
          if (innerHeight + scrollY >= document.body.scrollHeight - 50) grow();
        });
        </script>""",
    )

    usage = Usage()
    async with browsing(tmp_path, {"actions": [{"scroll": "end"}]}) as transport:
        page = await transport(Request(url), usage)

    assert len(titles(page)) == 40
    assert usage.events == []


@pytest.mark.parametrize(("repeat", "items", "cuts"), [(2, 150, 1), (20, COUNT, 0)])
async def test_a_button_that_is_left_after_the_last_click_is_a_cut(
    site: ScriptedSite, tmp_path: Path, repeat: int, items: int, cuts: int
) -> None:
    url, usage = open_shop(site, batch=50), Usage()
    spec = {"wait": ".item", "actions": [{"click": "#more", "repeat": repeat}]}

    async with browsing(tmp_path, spec) as transport:
        page = await transport(Request(url), usage)

    assert len(titles(page)) == items
    assert [one.type for one in usage.events] == [CUT] * cuts


async def test_a_page_that_still_grows_after_the_last_scroll_is_a_cut(
    site: ScriptedSite, tmp_path: Path
) -> None:
    growing = """<div id="all" style="height:2000px"></div><script>
      let times = 0;
      addEventListener("scroll", () => {
        if (times++ < 8) all.style.height = `${2000 * (times + 1)}px`;
      });
    </script>"""
    url, usage = html(site, "/growing", growing), Usage()

    async with browsing(tmp_path, {"actions": [{"scroll": "end", "most": 3}]}) as transport:
        await transport(Request(url), usage)

    assert [one.type for one in usage.events] == [CUT]


async def test_a_form_is_filled_in_and_sent(site: ScriptedSite, tmp_path: Path) -> None:
    url = html(
        site,
        "/search",
        """<form action="/found"><input id="q" name="q"><select id="sort" name="sort">
        <option value="a">Newest</option><option value="b">Cheapest</option></select></form>""",
    )

    async def found(request: web.Request) -> web.StreamResponse:
        text = f"<p class='item'>{request.query['q']} by {request.query['sort']}</p>"
        return web.Response(text=text, content_type="text/html", status=203)

    site.answers["/found"] = found
    actions = [
        {"click": "#cookies", "optional": True},
        {"fill": "#q", "value": "red shoes"},
        {"select": "#sort", "value": "Cheapest"},
        {"press": "Enter", "at": "#q"},
        {"wait": ".item"},
    ]

    async with browsing(tmp_path, {"actions": actions}) as transport:
        page = await transport(Request(url), Usage())

    assert titles(page) == ["red shoes by b"]
    assert (page.url, page.status) == (f"{site.url}/found?q=red+shoes&sort=b", 203)


async def test_pages_may_have_steps_of_their_own(site: ScriptedSite, tmp_path: Path) -> None:
    plain = html(site, "/about", "<p>about</p>")
    spec = {"pages": [{"match": "/shop$", "wait": ".item"}], "wait": "p"}

    async with browsing(tmp_path, spec) as transport:
        shop = await transport(Request(open_shop(site)), Usage())
        about = await transport(Request(plain), Usage())

    assert len(titles(shop)) == COUNT
    assert about.first_text("p") == "about"


async def test_an_element_that_never_appears_is_an_error_and_the_page_is_kept(
    site: ScriptedSite, tmp_path: Path
) -> None:
    url, usage = html(site, "/empty", "<p>nothing here</p>"), Usage()
    spec = {"wait": {"selector": ".item", "timeout": 0.3}, "screenshots": 1}

    async with browsing(tmp_path, spec) as transport:
        for _ in range(2):
            with pytest.raises(NeverReady) as missing:
                await transport(Request(url), usage)
            assert (missing.value.what, missing.value.seconds) == (".item", 0.3)

    kept = sorted((tmp_path / "failures").iterdir())
    assert [file.suffix for file in kept] == [".html", ".png"]
    assert "nothing here" in kept[0].read_text("utf-8")
    assert [one.data["file"] for one in usage.events][1] == str(kept[0])


@pytest.mark.parametrize(
    "script", ["window.ready === true", "window.ready;\r\n\t", "() => window.ready"]
)
async def test_a_script_and_silence_can_be_waited_for(
    site: ScriptedSite, tmp_path: Path, script: str
) -> None:
    policy = {"Content-Type": "text/html", "Content-Security-Policy": "script-src 'unsafe-inline'"}
    late = "<script>setTimeout(() => window.ready = true, 300)</script>"
    site.says("/slow", late, headers=policy)
    url, spec = f"{site.url}/slow", {"wait": {"script": script, "idle": True}}

    async with browsing(tmp_path, spec) as transport:
        page = await transport(Request(url), Usage())

    assert page.seconds >= 0.3


async def test_a_page_that_hangs_meets_its_deadline(site: ScriptedSite, tmp_path: Path) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        await response.write(b"<p>")
        while request.transport is not None:
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    site.answers["/hang"] = hang

    async with browsing(tmp_path) as transport:
        with pytest.raises(TimedOut) as late:
            await transport(Request(f"{site.url}/hang", timeout=0.7), Usage())

    assert late.value.seconds == 0.7


async def test_a_redirect_of_the_page_is_left_to_the_chain(
    site: ScriptedSite, tmp_path: Path
) -> None:
    site.says("/old", status=302, headers={"Location": "/new"})
    html(site, "/new", "<p>new</p>")

    async with browsing(tmp_path) as transport:
        page = await transport(Request(f"{site.url}/old"), Usage())

    assert (page.status, page.headers["location"]) == (302, "/new")
    assert site.hits["/new"] == 0


async def test_an_answer_of_any_status_comes_back(site: ScriptedSite, tmp_path: Path) -> None:
    site.says("/gone", status=404)
    site.says("/nothing", status=204)
    busy = html(site, "/busy", "<p>later</p>", status=503)

    async with browsing(tmp_path, {"wait": "p"}) as transport:
        gone = await transport(Request(f"{site.url}/gone"), Usage())
        nothing = await transport(Request(f"{site.url}/nothing"), Usage())
        later = await transport(Request(busy), Usage())

    assert (gone.status, nothing.status, later.status) == (404, 204, 503)
    assert (gone.body, nothing.body, later.first_text("p")) == (b"", b"", "later")


async def test_data_is_returned_unchanged(site: ScriptedSite, tmp_path: Path) -> None:
    site.says("/data.json", '{"a": 1}', headers={"Content-Type": "application/json"})

    async with browsing(tmp_path) as transport:
        page = await transport(Request(f"{site.url}/data.json"), Usage())

    assert page.json == {"a": 1}
    assert page.headers["content-type"] == "application/json; charset=utf-8"


async def test_a_download_is_an_error(site: ScriptedSite, tmp_path: Path) -> None:
    site.says("/x.zip", "PK", headers={"Content-Type": "application/zip"})

    async with browsing(tmp_path) as transport:
        with pytest.raises(BadAnswer, match="download"):
            await transport(Request(f"{site.url}/x.zip"), Usage())


async def test_headers_and_cookies_go_to_the_page_and_cookies_come_back(
    site: ScriptedSite, tmp_path: Path
) -> None:
    heard: dict[str, str | None] = {}

    async def listen(request: web.Request) -> web.StreamResponse:
        heard[request.path] = request.headers.get("X-Key")
        heard[f"{request.path} cookie"] = request.headers.get("Cookie")
        response = web.Response(text="<script src='/part.js'></script>", content_type="text/html")
        response.set_cookie("seen", "yes")
        return response

    site.answers |= {"/who": listen, "/part.js": listen}
    headers = {"X-Key": "secret", "Cookie": "a=1; b=2"}

    async with browsing(tmp_path, user_agent="longline/test") as transport:
        page = await transport(Request(f"{site.url}/who", headers=headers), Usage())

    assert (heard["/who"], heard["/who cookie"]) == ("secret", "a=1; b=2")
    assert heard["/part.js"] is None
    assert "seen=yes" in page.headers["set-cookie"]


async def test_hidden_parameters_are_sent_and_never_shown(
    site: ScriptedSite, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def listen(request: web.Request) -> web.StreamResponse:
        asked.append(request.query_string)
        text = "<script>history.replaceState({}, '', location.href + '#top')</script>"
        return web.Response(text=text, content_type="text/html")

    site.answers["/who"] = listen

    async with browsing(tmp_path) as transport:
        page = await transport(Request(f"{site.url}/who?a=1", hidden={"key": "s3cret"}), Usage())
        with pytest.raises(ConnectFailed) as failed:
            await transport(Request("http://127.0.0.1:9/", hidden={"key": "s3cret"}), Usage())

    assert asked == ["a=1&key=s3cret"]
    assert page.url == f"{site.url}/who?a=1#top"
    assert "s3cret" not in f"{failed.value!r} {failed.value}"


@pytest.mark.parametrize(
    "request_", [Request("file:///etc/passwd"), Request("http://x/", method="POST"), Request("x")]
)
async def test_what_a_browser_cannot_be_asked_is_refused(tmp_path: Path, request_: Request) -> None:
    async with browsing(tmp_path) as transport:
        with pytest.raises(BadAnswer):
            await transport(request_, Usage())


async def test_a_body_that_is_too_large_is_refused(site: ScriptedSite, tmp_path: Path) -> None:
    url = html(site, "/large", "<p>" + "x" * 5000)

    async with browsing(tmp_path, largest_body=1000) as transport:
        with pytest.raises(BadAnswer, match=r"\b1000\b"):
            await transport(Request(url), Usage())
