"""Requests that look like a browser go through proxies, and errors never have credentials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from longline.core.clock import SystemClock
from longline.core.model import Usage
from longline.http.errors import ProxyFailed
from longline.http.impersonate import ImpersonatingTransport
from longline.http.messages import Request
from longline.http.proxies.proxy import parse_proxy
from longline.http.transport import HttpOptions
from tests.forward_proxy import ForwardProxy
from tests.proxy_servers import ProxyServers
from tests.scripted_site import ScriptedSite


async def test_requests_go_through_proxies_of_each_kind(
    site: ScriptedSite, proxy_servers: ProxyServers, tmp_path: Path
) -> None:
    site.says("/", "hello")
    secret = tmp_path / "login"
    secret.write_text("ada:Secr3t-9")
    login = replace(parse_proxy(proxy_servers.with_login).proxy, credentials=f"file:{secret}")
    transport = ImpersonatingTransport(HttpOptions(), SystemClock())

    proxies = [parse_proxy(line).proxy for line in proxy_servers.alive]
    pages = [
        (await transport(Request(f"{site.url}/", proxy=one), Usage())).text
        for one in (*proxies, login)
    ]
    await transport.close()

    assert pages == ["hello"] * 4


@pytest.mark.parametrize("login", ["", "ada:wrong-1"])
async def test_a_proxy_at_fault_is_named_without_its_login(
    site: ScriptedSite, proxy_servers: ProxyServers, tmp_path: Path, login: str
) -> None:
    line = proxy_servers.with_login if login else proxy_servers.dead
    secret = tmp_path / "login"
    secret.write_text(login)
    proxy = parse_proxy(line).proxy
    if login:
        proxy = replace(proxy, credentials=f"file:{secret}")
    transport = ImpersonatingTransport(HttpOptions(), SystemClock())

    with pytest.raises(ProxyFailed) as caught:
        await transport(Request(f"{site.url}/", proxy=proxy), Usage())
    await transport.close()

    assert caught.value.is_certain
    assert "wrong-1" not in f"{caught.value}{caught.value.__cause__}"


async def test_a_proxy_whose_login_cannot_be_read_is_at_fault(
    site: ScriptedSite, proxy_servers: ProxyServers, tmp_path: Path
) -> None:
    missing = f"file:{tmp_path / 'missing'}"
    proxy = replace(parse_proxy(proxy_servers.with_login).proxy, credentials=missing)
    transport = ImpersonatingTransport(HttpOptions(), SystemClock())

    with pytest.raises(ProxyFailed) as caught:
        await transport(Request(f"{site.url}/", proxy=proxy), Usage())
    await transport.close()

    assert caught.value.is_certain


@pytest.mark.parametrize(
    ("fault", "url"),
    [
        ("unreachable", "http://127.0.0.1:9/"),
        ("gateway", "https://127.0.0.1:9/"),
        ("garbage", "http://127.0.0.1:9/"),
    ],
)
async def test_what_may_be_the_sites_fault_is_not_certain(fault: str, url: str) -> None:
    proxy = await ForwardProxy(fault).start()
    transport = ImpersonatingTransport(HttpOptions(), SystemClock())

    with pytest.raises(ProxyFailed) as caught:
        await transport(Request(url, proxy=parse_proxy(proxy.line).proxy), Usage())
    await transport.close()
    await proxy.close()

    assert not caught.value.is_certain
