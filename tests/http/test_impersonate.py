"""The transport that looks like a browser keeps the promises of the usual one."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.clock import SystemClock
from longline.core.errors import ConnectFailed
from longline.core.model import JobState, Usage
from longline.http.address_policy import AddressPolicy
from longline.http.errors import (
    BadAnswer,
    BadCertificate,
    BodyCut,
    PrivateAddress,
    TimedOut,
    UnknownHost,
)
from longline.http.impersonate import ImpersonatingTransport
from longline.http.messages import Request
from longline.http.transport import HttpOptions
from longline.orchestrator import Orchestrator
from tests.certificates import Authority
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

OPTIONS = HttpOptions(timeout=20, largest_body=10_000)


@pytest.fixture
async def transport() -> AsyncIterator[ImpersonatingTransport]:
    transport = ImpersonatingTransport(OPTIONS, SystemClock())
    yield transport
    await transport.close()


async def test_it_sends_what_a_browser_sends_and_keeps_no_cookies(
    site: ScriptedSite, transport: ImpersonatingTransport
) -> None:
    seen: list[web.BaseRequest] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request)
        headers = {"set-cookie": "a=1", "content-encoding": "gzip"}
        return web.Response(body=gzip.compress(await request.read()), headers=headers)

    site.answers["/form"] = answer
    usage = Usage()
    for _ in range(2):
        request = Request(f"{site.url}/form", "POST", {"x-own": "ü"}, b"a=1", hidden={"key": "s"})
        page = await transport(request, usage)

    assert (page.url, page.status, page.body) == (f"{site.url}/form", 200, b"a=1")
    assert page.headers["Set-Cookie"] == "a=1"
    assert "Chrome/" in seen[1].headers["User-Agent"]
    assert seen[1].query == {"key": "s"}
    assert "Cookie" not in seen[1].headers
    assert usage.requests == 2


async def test_redirects_are_returned(
    site: ScriptedSite, transport: ImpersonatingTransport
) -> None:
    site.says("/old", status=302, headers={"location": "/new"})

    page = await transport(Request(f"{site.url}/old"), Usage())

    assert (page.status, page.headers["location"]) == (302, "/new")


async def test_the_slot_is_taken_before_the_request(
    site: ScriptedSite, transport: ImpersonatingTransport
) -> None:
    hits: list[int] = []

    async def before_write() -> None:
        hits.append(site.hits.total())

    site.says("/")
    await transport(Request(f"{site.url}/", before_write=before_write), Usage())

    assert hits == [0]


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with_pause = request.path == "/slow"
    for _ in range(1000):
        await response.write(b"x" * 1000)
        await asyncio.sleep(0.05 if with_pause else 0)
    return response


async def cut_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "5000"})
    await response.prepare(request)
    await response.write(b"x" * 1000)
    assert request.transport is not None
    request.transport.close()
    return response


@pytest.mark.parametrize(
    ("path", "timeout", "error"),
    [("/fast", None, BadAnswer), ("/slow", 0.2, TimedOut), ("/cut", None, BodyCut)],
)
async def test_a_body_is_limited_in_size_and_time(
    site: ScriptedSite,
    transport: ImpersonatingTransport,
    path: str,
    timeout: float | None,  # noqa: ASYNC109  # a case, not a cancel scope
    error: type[Exception],
) -> None:
    site.answers |= {"/fast": endless, "/slow": endless, "/cut": cut_off}

    with pytest.raises(error):
        await transport(Request(f"{site.url}{path}", timeout=timeout), Usage())


async def test_the_rest_of_a_body_is_not_awaited(
    site: ScriptedSite, transport: ImpersonatingTransport
) -> None:
    site.answers["/slow"] = endless

    async with asyncio.timeout(10):  # half of that of the transport
        page = await transport(Request(f"{site.url}/slow", enough=1500), Usage())

    assert page.body == b"x" * 1500


@pytest.mark.parametrize(
    ("url", "headers", "error"),
    [
        ("http://127.0.0.1:1/", {}, ConnectFailed),
        ("http://nowhere.invalid/", {}, UnknownHost),
        ("http://127.0.0.1:99999/", {}, BadAnswer),
        ("http://127.0.0.1:1/", {"x-a": "b\r\nx-c: d"}, BadAnswer),
    ],
)
async def test_errors_do_not_have_hidden_parameters(
    transport: ImpersonatingTransport, url: str, headers: dict[str, str], error: type[Exception]
) -> None:
    request = Request(url, headers=headers, hidden={"key": "s3cret"})

    with pytest.raises(error) as caught:
        await transport(request, Usage())

    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}"


async def test_a_private_address_is_refused_before_it_is_connected(site: ScriptedSite) -> None:
    addresses = AddressPolicy()
    transport = ImpersonatingTransport(OPTIONS, SystemClock(), addresses)

    with pytest.raises(PrivateAddress):
        await transport(Request(f"http://localhost:{site.port}/"), Usage())
    await transport.close()

    assert not site.hits


async def test_certificates_are_verified(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    async with ScriptedSite(tls=authority.server(tmp_path)) as site:
        site.says("/", "hello")
        trusting = HttpOptions(ca_file=authority.file)
        known = ImpersonatingTransport(trusting, SystemClock())
        unknown = ImpersonatingTransport(HttpOptions(), SystemClock())

        page = await known(Request(f"{site.url}/"), Usage())
        with pytest.raises(BadCertificate):
            await unknown(Request(f"{site.url}/"), Usage())
        await known.close()
        await unknown.close()

    assert page.text == "hello"


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx speaks HTTP/2 here")
async def test_it_speaks_http_2(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    authority.server(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        *("nginx", "-p", str(tmp_path), "-e", "errors", "-g"),
        f"daemon off; pid {tmp_path}/pid;",
        *("-c", str(_nginx(tmp_path, port))),
        stderr=subprocess.DEVNULL,
    )
    transport = ImpersonatingTransport(HttpOptions(ca_file=authority.file), SystemClock())
    try:
        async with asyncio.timeout(10):
            while True:
                try:
                    page = await transport(Request(f"https://127.0.0.1:{port}/"), Usage())
                    break
                except ConnectFailed:
                    await asyncio.sleep(0.02)  # until the server listens
    finally:
        await transport.close()
        server.terminate()
        await server.wait()

    assert page.text == "HTTP/2.0"


def _nginx(folder: Path, port: int) -> Path:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    path = folder / "nginx.conf"
    path.write_text(
        f"events {{}} http {{ access_log off; {places} server {{ listen 127.0.0.1:{port} ssl http2;"
        f"ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.pem;"
        'location / { return 200 "$server_protocol"; } } }'
    )
    return path


async def test_a_source_chooses_it(site: ScriptedSite, tmp_path: Path, clock: VirtualClock) -> None:
    agents: list[Any] = []

    async def page(request: web.Request) -> web.StreamResponse:
        agents.append(request.headers["User-Agent"])
        return web.Response(text="<h1>One</h1>", content_type="text/html")

    site.answers["/p/1"] = page
    path = tmp_path / "shop.yaml"
    path.write_text(
        "manifest: html\nname: shop\nrate: unlimited\ntransport: impersonate\n"
        f"start: {site.url}/p/1\nfields: {{title: h1}}\n"
    )

    async with Orchestrator(str(path), home=tmp_path, clock=clock) as orchestrator:
        report = await orchestrator.execute()

    assert report.state is JobState.COMPLETE
    assert "Chrome/" in agents[0]
