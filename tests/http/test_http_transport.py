from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import ConnectFailed, Deferred, FailureKind, FetchError
from longline.core.model import Usage
from longline.http.errors import BadAnswer, BodyCut, TimedOut, UnknownHost
from longline.http.messages import Page, Request
from longline.http.transport import HttpOptions, HttpTransport
from tests.scripted_site import ScriptedSite, drop
from tests.virtual import VirtualClock


@pytest.fixture
async def transport(clock: VirtualClock) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(HttpOptions(timeout=10, largest_body=1000), clock)
    yield transport
    await transport.close()


async def test_an_answer_has_status_headers_and_body(
    site: ScriptedSite, transport: HttpTransport
) -> None:
    site.says("/a", "hello", headers={"X-Thing": "1"})
    usage = Usage()

    page = await transport(Request(f"{site.url}/a"), usage)

    assert (page.status, page.text, page.headers["x-thing"]) == (200, "hello", "1")
    assert (usage.requests, usage.received_bytes) == (1, 5)


async def test_a_drip_that_never_pauses_long_still_meets_the_deadline(
    site: ScriptedSite, transport: HttpTransport, clock: VirtualClock
) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(60):
            await response.write(b".")
            await clock.sleep(1)
        return response

    site.answers["/drip"] = drip
    started = clock.now()

    with pytest.raises(TimedOut) as late:
        await transport(Request(f"{site.url}/drip"), Usage())

    assert late.value.seconds == 10
    assert clock.now() - started == pytest.approx(10, abs=0.1)


async def test_a_request_may_have_a_deadline_of_its_own(
    site: ScriptedSite, transport: HttpTransport, clock: VirtualClock
) -> None:
    async def slow(_request: web.Request) -> web.StreamResponse:
        await clock.sleep(5)
        return web.Response()

    site.answers["/slow"] = slow

    with pytest.raises(TimedOut) as late:
        await transport(Request(f"{site.url}/slow", timeout=2), Usage())

    assert late.value.seconds == 2


async def test_a_wait_before_writing_does_not_count_against_the_deadline(
    site: ScriptedSite, transport: HttpTransport, clock: VirtualClock
) -> None:
    asked_at = []

    async def slow(_request: web.Request) -> web.StreamResponse:
        asked_at.append(clock.now())
        await clock.sleep(5)
        return web.Response()

    async def wait() -> None:
        await clock.sleep(20)

    site.answers["/slow"] = slow
    request, started = Request(f"{site.url}/slow", before_write=wait), clock.now()

    page = await transport(request, Usage())
    assert page.status == 200
    assert asked_at[0] - started == pytest.approx(20, abs=0.1)

    with pytest.raises(TimedOut):
        await transport(replace(request, timeout=4), Usage())


async def test_a_request_that_may_not_leave_is_not_written(
    site: ScriptedSite, transport: HttpTransport
) -> None:
    async def refuse() -> None:
        raise Deferred(site.url, 0.0, "rests", FailureKind.OVERLOAD)

    site.says("/a", "hello")

    with pytest.raises(Deferred):
        await transport(Request(f"{site.url}/a", before_write=refuse), Usage())

    assert site.hits["/a"] == 0


async def test_a_body_is_capped_after_it_is_unpacked(
    site: ScriptedSite, transport: HttpTransport
) -> None:
    async def bomb(_request: web.Request) -> web.StreamResponse:
        body = gzip.compress(b"0" * 100_000)
        assert len(body) < 1000
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    site.answers["/bomb"] = bomb

    with pytest.raises(BadAnswer, match=r"\b1000\b"):
        await transport(Request(f"{site.url}/bomb"), Usage())


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\n<p>x\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["chunks", "100 Continue"],
)
async def test_a_flood_of_tiny_parts_is_refused_long_before_its_end(
    clock: VirtualClock, start: bytes, part: bytes
) -> None:
    flood = itertools.repeat(part * 10_000, 4_000)
    sent = 0

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(start)
        with suppress(ConnectionError):
            for block in flood:
                writer.write(block)
                await writer.drain()
                sent += 1
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport(HttpOptions(largest_body=10**9), clock)

    with pytest.raises(BadAnswer):
        await transport(Request(f"http://127.0.0.1:{port}/"), Usage())

    assert 0 < sent < 2_000
    await transport.close()
    server.close()
    await server.wait_closed()


async def test_a_body_that_ends_early_is_cut(site: ScriptedSite, transport: HttpTransport) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "500"})
        await response.prepare(request)
        await response.write(b"x" * 100)
        assert request.transport is not None
        request.transport.close()
        return response

    site.answers["/cut"] = cut

    with pytest.raises(BodyCut):
        await transport(Request(f"{site.url}/cut"), Usage())


async def test_a_closed_port_cannot_be_reached(transport: HttpTransport) -> None:
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:9"):
        await transport(Request("http://127.0.0.1:9/"), Usage())


async def test_a_dropped_connection_is_one_request_and_no_more(
    site: ScriptedSite, transport: HttpTransport
) -> None:
    site.says("/warm", "so that the connection is a kept one")
    await transport(Request(f"{site.url}/warm"), Usage())
    site.answers["/drop"] = drop

    with pytest.raises(ConnectFailed):
        await transport(Request(f"{site.url}/drop"), Usage())

    assert site.hits["/drop"] == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [(socket.EAI_NONAME, UnknownHost), (socket.EAI_AGAIN, ConnectFailed)],
)
async def test_an_unknown_host_differs_from_a_failing_name_server(
    transport: HttpTransport,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    kind: type[FetchError],
) -> None:
    def fail(*_args: Any, **_options: Any) -> Any:
        raise socket.gaierror(code, "not resolved")

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    with pytest.raises(kind, match=r"nowhere\.test") as raised:
        await transport(Request("http://nowhere.test/"), Usage())

    assert type(raised.value) is kind


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://", "nonsense"])
async def test_a_url_that_is_not_http_is_refused(transport: HttpTransport, url: str) -> None:
    with pytest.raises(BadAnswer, match="not a valid URL"):
        await transport(Request(url), Usage())


async def test_an_address_that_cannot_be_asked_is_said_once_without_its_secrets(
    transport: HttpTransport,
) -> None:
    request = Request("ftp://shop.test/x", hidden={"key": "s3cret"})

    with pytest.raises(BadAnswer) as refused:
        await transport(request, Usage())

    assert str(refused.value).count("shop.test") == 1
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("Етаж: 3/6".encode("windows-1251"), "text/html; charset=windows-1251", "Етаж: 3/6"),
        (
            '<meta charset="windows-1251"><p>партер'.encode("windows-1251"),
            "text/html",
            '<meta charset="windows-1251"><p>партер',
        ),
        (
            '<meta charset="windows-1251"><p>партер'.encode("windows-1251"),
            "text/html; charset=utf-8",
            '<meta charset="windows-1251"><p>партер',
        ),
        ("für".encode(), "text/html; charset=no-such-thing", "für"),
        ("\N{ZERO WIDTH NO-BREAK SPACE}für".encode(), "text/html", "für"),
        ("für".encode("utf-16"), "text/plain", "für"),
        (b"", "text/html", ""),
    ],
)
def test_text_is_what_the_bytes_say(body: bytes, content_type: str, text: str) -> None:
    page = Page("http://x/", 200, {"content-type": content_type}, body)

    assert page.text == text


def test_cyrillic_that_declares_nothing_is_recognised() -> None:
    body = ("Продава се двустаен апартамент в центъра на града, етаж трети. " * 5).encode("cp1251")

    page = Page("http://x/", 200, {}, body)

    assert page.text.startswith("Продава се двустаен")
