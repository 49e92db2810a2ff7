"""Answers that no server should give: each is the site's fault, and costs its own item."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.orchestrator import Orchestrator
from longline.storage.queue.failures import FailureQuery
from tests.virtual import VirtualClock

Outcomes = dict[str, ItemState]

_HTML = b"<title>t</title><h1>hello</h1>"
_HTTP = b"HTTP/1.1 "


def answer(status: bytes = b"200 OK", *headers: bytes, body: bytes = _HTML) -> bytes:
    lines = [_HTTP + status, *headers, b"Content-Length: %d" % len(body), b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def redirect(location: bytes) -> bytes:
    return answer(b"302 Found", b"Location: " + location)


def plain(text: bytes) -> bytes:
    return _HTTP + text.replace(b"\n", b"\r\n")


INVALID = {
    "an address that does not end": redirect(b"http://[::1"),
    "no address": redirect(b""),
    "an address of spaces": redirect(b"   "),
    "no Location": answer(b"302 Found"),
    "a port beyond all": redirect(b"http://a.test:99999/"),
    "a port of letters": redirect(b"http://a.test:b/"),
    "an empty label": redirect(b"http://a..b.test/"),
    "a label too long": redirect(b"http://" + b"a" * 70 + b".test/"),
    "a zero byte in an address": redirect(b"/a\x00b"),
    "an address that is no page": redirect(b"javascript:alert(1)"),
    "half a character in circles": redirect(b"/c/bad?\xed\xa0\x80"),
    "packed twice": answer(b"200 OK", b"Content-Encoding: gzip, gzip"),
    "packed by what nobody has": answer(b"200 OK", b"Content-Encoding: compress"),
    "not what is packed": answer(b"200 OK", b"Content-Encoding: br", body=b"hello"),
    "a header without a colon": answer(b"200 OK", b"nonsense"),
    "a header with a zero byte": answer(b"200 OK", b"X-A: a\x00b"),
    "a header without a name": answer(b"200 OK", b": b"),
    "a header too long": answer(b"200 OK", b"X-A: " + b"a" * 100_000),
    "too many headers": answer(b"200 OK", *(b"X-%d: a" % n for n in range(20_000))),
    "a chunk of letters": plain(b"200 OK\nTransfer-Encoding: chunked\n\nzz\nhello\n0\n\n"),
    "a chunk too long": plain(b"200 OK\nTransfer-Encoding: chunked\n\nfffffffffffffffff\nhello\n"),
    "a negative length": plain(b"200 OK\nContent-Length: -3\n\nhello"),
    "a length of letters": plain(b"200 OK\nContent-Length: abc\n\nhello"),
    "two lengths": plain(b"200 OK\nContent-Length: 3\nContent-Length: 5\n\nhello"),
    "length and chunks": plain(
        b"200 OK\nContent-Length: 3\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n"
    ),
    "a status of two digits": answer(b"99 Odd"),
    "a status of letters": answer(b"abc Odd"),
    "a status of zeros": answer(b"000 Odd"),
    "a status to switch": answer(b"101 Switching Protocols", b"Upgrade: websocket"),
    "a status that was not asked for": plain(b"304 Not Modified\nETag: x\n\n"),
    "an unknown redirect": answer(b"305 Use Proxy", b"Location: http://x.test/"),
    "a version of the future": b"HTTP/9.9 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "another protocol": b"SSH-2.0-OpenSSH_9\r\n",
    "all bytes": bytes(range(256)) * 20,
}
FAILING = {
    "nothing": b"",
    "chunks that end early": plain(b"200 OK\nTransfer-Encoding: chunked\n\n5\nhel"),
    "a length of more": plain(b"200 OK\nContent-Length: 300\nConnection: close\n\nhello"),
    "broken gzip": answer(b"200 OK", b"Content-Encoding: gzip"),
    "broken deflate": answer(b"200 OK", b"Content-Encoding: deflate"),
    "a status beyond all": answer(b"999 Odd"),
    "a refusal in bytes": answer(b"401 U", b"WWW-Authenticate: \xff"),
    "a negative pause": answer(b"429 x", b"Retry-After: -5"),
    "an endless pause": answer(b"429 x", b"Retry-After: 1e999"),
    "no number of a pause": answer(b"429 x", b"Retry-After: nan"),
    "a pause of years": answer(b"503 x", b"Retry-After: 99999999999999999999"),
    "a pause until the end": answer(b"503 x", b"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"),
    "a pause until never": answer(b"503 x", b"Retry-After: Fri, 99 Foo 9999 23:59:59 GMT"),
    "a pause of bytes": answer(b"503 x", b"Retry-After: \xb2\xb3"),
    "a pause of digits": answer(b"503 x", b"Retry-After: " + b"9" * 5_000),
}
USABLE = {
    "an unknown character set": answer(b"200 OK", b"Content-Type: text/html; charset=undefined"),
    "a character set of bytes": answer(b"200 OK", b"Content-Type: text/html; charset=base64"),
    "a character set of names": answer(b"200 OK", b"Content-Type: text/html; charset=idna"),
    "a character set of escapes": answer(
        b"200 OK",
        b"Content-Type: text/html; charset=unicode_escape",
        body=_HTML + b"\\ud800",
    ),
    "a forbidden character set": answer(
        b"200 OK", b"Content-Type: text/html; charset=utf-7", body=_HTML + b"+2AA-"
    ),
    "a character set that does not fit": answer(
        b"200 OK", b"Content-Type: text/html; charset=utf-16", body=_HTML + b"!"
    ),
    "a content type of bytes": answer(b"200 OK", b"Content-Type: \xff/\xfe; charset=\xff"),
    "a packing that is none": answer(b"200 OK", b"Content-Encoding: utf-8"),
    "a header of bytes": answer(b"200 OK", b"X-A: \xff\xfe\x80"),
    "a reason of bytes": answer(b"200 \xff\xfe"),
    "no reason": answer(b"200"),
    "hints before": plain(b"103 Early Hints\nLink: </a>\n\n") + answer(),
    "many words before": (_HTTP + b"100 Continue\r\n\r\n") * 2_000 + answer(),
    "a cookie of nonsense": answer(b"200 OK", b"Set-Cookie: =;;=\xff; max-age=x; domain=..; path"),
    "a cookie for ever": answer(b"200 OK", b"Set-Cookie: a=\x01b; Max-Age=9999999999999999999999"),
    "a cookie of no day": answer(b"200 OK", b"Set-Cookie: a=b; expires=Thu, 99 Foo 99999 9:9:9"),
    "limits of nonsense": answer(
        b"200 OK",
        b"X-RateLimit-Limit: nan",
        b"X-RateLimit-Remaining: -1e999",
        b"X-RateLimit-Reset: 99999999999999999999999999",
        b"RateLimit: \xff;;",
    ),
    "validators of nonsense": answer(
        b"200 OK",
        b"ETag: \xff\x80",
        b"Last-Modified: never",
        b"Cache-Control: max-age=1e999, s-maxage=-5, max-age=99999999999999999999999",
        b"Expires: 0",
        b"Age: -7",
        b"Date: yesterday",
        b"Vary: \xff",
    ),
    "dates far away": answer(
        b"200 OK",
        b"Date: Fri, 31 Dec 9999 23:59:59 GMT",
        b"Expires: Fri, 31 Dec 9999 23:59:59 GMT",
        b"Last-Modified: Mon, 01 Jan 0001 00:00:00 GMT",
        b"Cache-Control: max-age=31536000",
    ),
    "links of nonsense": answer(b"200 OK", b'Link: <http://[>; rel=next, <<>>;;rel="next'),
    "a base of nonsense": answer(body=b'<base href="http://["><h1>hello</h1><a href=x>x</a>'),
    "links in the page": answer(
        body=b"<h1>hello</h1><a href='http://['>1</a><a href='http://a:99999'>2</a>"
        b"<a href='&#xD800;'>3</a><a href='a&#0;b'>4</a><a href='//'>5</a><a href='\xff'>6</a>"
    ),
    "zero bytes in the text": answer(body=b"<h1>hello\x00</h1>\x00"),
}

MANIFEST = """
manifest: html
name: raw
rate: unlimited
cache: true
start: {url}/
items: {{links: "h3 a"}}
key: {{url: "/c/([^/]+)"}}
fields:
  title: {{css: h1}}
  links: {{css: "a@href", many: true, type: url}}
"""


class RawSite:
    """Answers /c with the bytes given, / with a link to it and to one good page."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._server: asyncio.Server | None = None
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._answer(request.split()[1]))
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    def _answer(self, path: bytes) -> bytes:
        if path.startswith(b"/c/bad"):
            return self._raw
        if path == b"/c/good":
            return answer()
        if path == b"/":
            return answer(body=b"<h3><a href=/c/bad>x</a></h3><h3><a href=/c/good>x</a></h3>")
        return answer(b"404 Not Found")


@pytest.fixture
async def raw_site(request: pytest.FixtureRequest) -> AsyncIterator[RawSite]:
    site = RawSite(request.param)
    await site.open()
    yield site
    await site.close()


def table(cases: dict[str, bytes]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "raw_site", [pytest.param(raw, id=name) for name, raw in cases.items()], indirect=True
    )


async def run(site: RawSite, home: Path, clock: VirtualClock) -> tuple[Outcomes, set[str | None]]:
    """Return the states of the items by key, and the kinds of all failures."""
    path = home / "raw.yaml"
    path.write_text(MANIFEST.format(url=site.url))
    async with Orchestrator(
        str(path), home=home, clock=clock, budget={"seconds": 600}
    ) as orchestrator:
        report = await orchestrator.execute()
        rows = await orchestrator.store.queue.finished(report.job)
        unlucky = await orchestrator.store.failures.failed_items(FailureQuery(report.job))
    kinds = {one.kind for one in unlucky}
    kinds |= {attempt["kind"] for one in unlucky for attempt in one.attempts}
    return {row["key"]: row["state"] for row in rows}, kinds


@table(INVALID)
async def test_an_invalid_answer_is_quarantined(
    raw_site: RawSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states, kinds = await run(raw_site, tmp_path, clock)

    assert states == {"bad": ItemState.QUARANTINED, "good": ItemState.STORED}
    assert kinds == {FailureKind.INVALID}


@table(FAILING)
async def test_a_failing_answer_is_a_failure_of_the_site(
    raw_site: RawSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states, kinds = await run(raw_site, tmp_path, clock)

    assert states.get("bad") is not ItemState.STORED
    assert kinds
    assert FailureKind.BUG not in kinds


@table(USABLE)
async def test_odd_headers_do_not_spoil_a_page(
    raw_site: RawSite, tmp_path: Path, clock: VirtualClock
) -> None:
    states, kinds = await run(raw_site, tmp_path, clock)

    assert states == {"bad": ItemState.STORED, "good": ItemState.STORED}
    assert kinds == set()
