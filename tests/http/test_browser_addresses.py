"""A browser and the address policy: what pages ask for by themselves, however they do it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from longline.core.errors import ConnectFailed
from longline.core.model import Usage
from longline.http.address_policy import AddressPolicy
from longline.http.browser.chromium import BrowserProxy
from longline.http.errors import PrivateAddress
from longline.http.messages import Page, Request
from tests.http.browsing import browsing
from tests.http.test_private_addresses import PUBLIC, Names, scope
from tests.scripted_site import ScriptedSite

pytestmark = pytest.mark.real_time
HTML = {"Content-Type": "text/html", "Access-Control-Allow-Origin": "*"}
PAGE = """<!doctype html><link rel="icon" href="data:,"><h1>Page</h1>
<script>
async function ask(url) { try { await fetch(url, {mode: "no-cors"}); } catch (error) {} }
async function all() {
  for (const url of %s) await ask(url);
  const done = document.createElement("p");
  done.id = "done"; document.body.append(done);
}
all();
</script>"""


def show_page(*urls: str) -> str:
    """Return a page that requests these URLs, one after another."""
    return PAGE % json.dumps(urls)


@dataclass
class Web:
    public: ScriptedSite
    private: ScriptedSite
    names: Names
    folder: Path

    def policy(self) -> AddressPolicy:
        return AddressPolicy(resolver=self.names, scope=scope)

    async def show(self, path: str, *, wait: str | None = "#done", host: str = PUBLIC) -> Page:
        """Open a page of the public site in a browser that keeps the policy."""
        policy = self.policy()
        await policy.begin(self.public.url)
        spec = {"wait": {"selector": wait, "timeout": 10}} if wait else {}
        async with browsing(self.folder, spec, addresses=policy) as transport:
            url = f"http://{host}:{self.public.port}{path}"
            return await transport(Request(url), Usage())

    def inside(self, host: str) -> str:
        return f"http://{host}:{self.private.port}/secret"


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    names = Names({"public.test": [PUBLIC], "inside.test": ["127.0.0.1"]})
    async with ScriptedSite(PUBLIC) as public, ScriptedSite() as private:
        private.says("/secret", "secret", headers=HTML)
        yield Web(public, private, names, tmp_path)


async def test_public_parts_of_a_page_are_loaded(web: Web) -> None:
    web.public.says("/part", "x", headers=HTML)
    web.public.says("/page", show_page(f"http://public.test:{web.public.port}/part"), headers=HTML)

    page = await web.show("/page", host="public.test")

    assert page.first("#done") is not None
    assert web.public.hits["/part"] == 1


async def test_no_part_of_a_page_reaches_a_private_address(web: Web) -> None:
    hosts = ("127.0.0.1", "localhost", "inside.test", "2130706433", "[::1]")
    inside = web.inside("127.0.0.1")
    socket = inside.replace("http", "ws")
    html = f"<iframe src='{inside}'></iframe><script>new WebSocket('{socket}')</script>"
    web.public.says("/page", html + show_page(*map(web.inside, hosts)), headers=HTML)

    page = await web.show("/page")

    assert page.first("h1") is not None
    assert not web.private.hits


async def test_a_part_that_redirects_to_a_private_address_is_refused(web: Web) -> None:
    hosts = ("127.0.0.1", "inside.test")
    for host in hosts:
        web.public.says(f"/{host}", status=302, headers={"Location": web.inside(host)})
    web.public.says("/page", show_page(*(f"/{host}" for host in hosts)), headers=HTML)

    await web.show("/page")

    assert [web.public.hits[f"/{host}"] for host in hosts] == [1, 1]
    assert not web.private.hits


async def test_a_page_at_a_private_address_is_refused(web: Web) -> None:
    policy = web.policy()
    await policy.begin(web.public.url)

    async with browsing(web.folder, addresses=policy) as transport:
        with pytest.raises(PrivateAddress):
            await transport(Request(web.inside("inside.test")), Usage())

    assert not web.private.hits


async def test_a_host_that_is_down_is_not_called_private(web: Web) -> None:
    policy = web.policy()
    await policy.begin(web.public.url)

    async with browsing(web.folder, addresses=policy) as transport:
        with pytest.raises(ConnectFailed):
            await transport(Request(f"http://{PUBLIC}:9/"), Usage())


async def test_what_is_no_browser_gets_nothing_out_of_the_proxy(web: Web) -> None:
    proxy = BrowserProxy(web.policy())
    await proxy.start()
    port = int(proxy.flags[0].rpartition(":")[2])

    for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x05\x01\x00\x05\x02\x00\x01" + bytes(6), b"\x05"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        assert b"\x05\x00\x00" not in answer[2:]
    await proxy.close()
