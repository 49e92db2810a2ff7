"""Pages that a browser opens through proxies."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from longline.core.model import Usage
from longline.http.address_policy import AddressPolicy
from longline.http.errors import ProxyFailed
from longline.http.messages import Request
from longline.http.proxies.proxy import Proxy
from tests.forward_proxy import ForwardProxy
from tests.http.browsing import browsing
from tests.scripted_site import ScriptedSite

pytestmark = pytest.mark.real_time


async def test_each_proxy_and_session_has_its_own_context(
    site: ScriptedSite, tmp_path: Path
) -> None:
    seen: list[tuple[str | None, str | None]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.remote, request.cookies.get("a")))
        response = web.Response(text="<p>hello</p>", content_type="text/html")
        response.set_cookie("a", "1")
        return response

    site.answers["/page"] = answer
    servers = [await ForwardProxy(own=f"127.0.3.{number}").start() for number in (1, 2)]
    first, second = (Proxy("http", "127.0.0.1", one.port) for one in servers)
    addresses = AddressPolicy(("127.0.0.1",))
    url = f"{site.url}/page"

    async with browsing(tmp_path, addresses=addresses) as transport:
        for proxy, session in ((first, "1"), (first, "1"), (second, "2"), (first, "3")):
            request = Request(url, is_rendered=True, proxy=proxy, session=session)
            page = await transport(request, Usage())
            assert "hello" in page.text
        await transport(Request(url, is_rendered=True), Usage())
    for server in servers:
        await server.close()

    assert seen == [
        *[("127.0.3.1", None), ("127.0.3.1", "1"), ("127.0.3.2", None), ("127.0.3.1", None)],
        ("127.0.0.1", None),
    ]


async def test_what_chromium_cannot_do_is_said(
    site: ScriptedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_LOGIN", "ada:Secr3t-9")
    proxy = Proxy("socks5", "127.0.0.1", 1, "env:PROXY_LOGIN")

    async with browsing(tmp_path) as transport:
        with pytest.raises(ProxyFailed, match="SOCKS") as caught:
            await transport(Request(f"{site.url}/a", is_rendered=True, proxy=proxy), Usage())

    assert "Secr3t-9" not in str(caught.value)


async def test_a_proxy_that_wants_a_login_is_at_fault(site: ScriptedSite, tmp_path: Path) -> None:
    server = await ForwardProxy("auth").start()
    proxy = Proxy("http", "127.0.0.1", server.port)

    async with browsing(tmp_path) as transport:
        with pytest.raises(ProxyFailed) as caught:
            await transport(Request(f"{site.url}/a", is_rendered=True, proxy=proxy), Usage())
    await server.close()

    assert caught.value.is_certain
