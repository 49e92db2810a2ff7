"""A web of hostile sites, one behaviour and one port each; prints its addresses as JSON.

With the argument `healthy` it serves only a healthy site, which so has a process of its own.

Raw sockets and no HTTP library, since most behaviours are responses that a library would not send.
A site in the shape `item` is hostile at /item/1 and honest at /item/2 to /item/5, so that it shows
whether a bad response affects other items.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import itertools
import json
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import brotli

MB = 1_000_000
ITEMS = 5
_DRIP = 0.5  # seconds between two bytes
_CLIENT_PATIENCE = 120.0  # seconds until the server drops a connection that it never answers
_BLOCK = 65_536

Reply = bytes | Iterator[bytes] | AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One way to be hostile.

    `shape` names the manifest that visits it, and `manifest` adds to it or replaces parts. `reply`
    is given the path and the site's own address.
    """

    name: str
    shape: str
    reply: Callable[[str, str], Reply]
    manifest: Mapping[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------ answers


def http(
    body: bytes = b"",
    *,
    status: str = "200 OK",
    content_type: str | None = "text/html; charset=utf-8",
    headers: tuple[str, ...] = (),
    length: int | None = None,
) -> bytes:
    """Return a complete response; `headers` may be invalid (latin-1)."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def page(body: str | bytes, **how: Any) -> bytes:
    """Return an HTML page with this body after its heading."""
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return http(b"<!doctype html><title>T</title><h1>Thing</h1>" + raw, **how)


def honest(path: str) -> bytes:
    """Return the response of an honest site at `path`."""
    if path == "/robots.txt":
        return http(b"", status="404 Not Found")
    name = path.strip("/").replace("/", " ")
    return http(f"<!doctype html><title>{name}</title><h1>{name}</h1>".encode())


def at(hostile_path: str, answer: Callable[[], Reply]) -> Callable[[str, str], Reply]:
    """Return `answer` at one path, and honest responses elsewhere."""

    def reply(path: str, _base: str) -> Reply:
        return answer() if path.partition("?")[0] == hostile_path else honest(path)

    return reply


def item(name: str, answer: Callable[[], Reply], **manifest: Any) -> Behaviour:
    """Return a site whose first item is hostile."""
    return Behaviour(name, "item", at("/item/1", answer), manifest)


def repeated(part: str, count: int, end: str = "") -> Callable[[], bytes]:
    """Return a response whose page repeats a part; it is built on first use."""
    return functools.cache(lambda: page(part * count + end * count))


async def drip(start: bytes, part: bytes = b".", count: int = 10_000) -> AsyncIterator[bytes]:
    """Yield a few bytes at a time, slowly."""
    yield start
    for _ in range(count):
        await asyncio.sleep(_DRIP)
        yield part


async def hang() -> AsyncIterator[bytes]:
    """Yield nothing for a long time."""
    await asyncio.sleep(_CLIENT_PATIENCE)
    yield b""


def endless(start: bytes, part: bytes) -> Iterator[bytes]:
    """Yield a part endlessly, as fast as it is read."""
    yield start
    yield from itertools.repeat(part * (1 + _BLOCK // len(part)))


@functools.cache
def zeros_gzip(size: int) -> bytes:
    """Return this many zeros as gzip, a thousandth of their size."""
    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(bytes(MB)) for _ in range(size // MB)]
    return b"".join([*parts, packer.flush()])


@functools.cache
def zeros_brotli(size: int) -> bytes:
    """Return this many zeros as brotli, a few hundred bytes."""
    packer = brotli.Compressor(quality=5)
    parts = [packer.process(bytes(MB)) for _ in range(size // MB)]
    return b"".join([*parts, packer.finish()])


def chunked(*chunks: bytes) -> bytes:
    """Return a page in chunks, each exactly as given."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(chunks)


# ------------------------------------------------------------ behaviours


def html_nesting() -> Iterator[Behaviour]:
    """Yield pages whose elements are nested, misnested or many."""
    for tag in ("div", "span", "b", "a", "font", "nobr", "table", "select", "svg", "math"):
        yield item(f"html-nested-{tag}", repeated(f"<{tag}>", 300_000))
    for tag in ("template", "form", "ul", "li", "button", "noscript", "object", "p", "blockquote"):
        yield item(f"html-nested-{tag}", repeated(f"<{tag}>", 300_000))
    yield item("html-nested-div-million", repeated("<div>", 1_000_000))
    yield item("html-nested-and-closed", repeated("<i>", 300_000, "</i>"))
    yield item("html-nested-table-cells", repeated("<table><tr><td>", 200_000))
    yield item("html-nested-headings", repeated("<div><h1>x</h1>", 100_000))
    yield item("html-misnested", repeated("<b><i><p></b></i>", 100_000))
    yield item("html-adoption-agency", repeated("<a><div></a>", 100_000))
    yield item("html-foster-parenting", repeated("<table>x<tr>", 100_000))
    yield item("html-siblings", repeated("<p>x", 1_000_000))
    yield item("html-end-tags", repeated("</p>", 1_000_000))
    yield item("html-end-tags-br", repeated("</br>", 500_000))


def html_tokens() -> Iterator[Behaviour]:
    """Yield pages with tags, attributes, comments and entities that are huge or never closed."""
    attributes = " ".join(f"a{number}=1" for number in range(100_000))
    yield item("html-attributes", lambda: page(f"<p {attributes}>x"))
    yield item("html-attributes-equal", lambda: page("<p" + " a=1" * 100_000 + ">x"))
    yield item("html-attributes-bare", lambda: page("<p " + "a " * 1_000_000 + ">x"))
    yield item("html-attribute-huge", lambda: page(f"<p a='{'x' * 10 * MB}'>x"))
    yield item("html-attribute-open", lambda: page("<p a='" + "<b>" * 2 * MB))
    yield item("html-tag-name-huge", lambda: page("<" + "x" * 10 * MB))
    yield item("html-body-attributes", repeated("<body a=1 b=2>", 200_000))
    yield item("html-classes", lambda: page(f"<p class='{'c ' * 2 * MB}'>x"))
    yield item("html-comments", repeated("<!-- x -->", 1_000_000))
    yield item("html-comment-open", lambda: page("<!--" + "-" * 10 * MB))
    yield item("html-comment-dashes", repeated("<!--->", 1_000_000))
    yield item("html-script-open", lambda: page("<script>" + "<!-- <script> " * MB))
    yield item("html-cdata-open", lambda: page("<svg><![CDATA[" + "]]" * 5 * MB))
    yield item("html-textarea-open", lambda: page("<textarea>" + "<b>" * 2 * MB))
    yield item("html-plaintext", lambda: page("<plaintext>" + "<b>" * 2 * MB))
    yield item("html-entities", repeated("&amp;", 1_000_000))
    yield item("html-entities-unknown", repeated("&abcdefghij", 500_000))
    yield item("html-entities-numeric", repeated("&#99999999999;&#0;&#xD800;", 200_000))
    yield item("html-nul", lambda: page(b"\x00" * 5 * MB))
    yield item("html-less-than", lambda: page("<" * 10 * MB))
    yield item("html-text-huge", lambda: page("word " * 4 * MB))
    yield item("html-doctype-huge", lambda: page("<!doctype " + "x" * 10 * MB + ">"))
    yield item("html-frameset", repeated("<frameset>", 200_000))
    yield item("html-isindex", repeated("<isindex prompt=x><image>", 200_000))
    yield item("html-heading-huge", lambda: page("<h1>" + "x" * 20 * MB))
    yield item("html-headings", repeated("<h1>x</h1>", 300_000))
    yield item("html-base-invalid", lambda: page("<base href='http://['><a href=x>y</a>"))


def field_values() -> Iterator[Behaviour]:
    """Yield pages whose values are hard for selectors, patterns and types."""
    deep = "[" * 200_000
    json_ld = f"<script type='application/ld+json'>{deep}</script>"
    yield item(
        "html-json-ld-deep", lambda: page(json_ld), fields={"a": {"json_ld": "Product.name"}}
    )
    script = f"<script id=s type='application/json'>{deep}</script>"
    yield item(
        "html-script-deep", lambda: page(script), fields={"a": {"script": "#s", "path": "a.b"}}
    )
    selector = " ".join(["div"] * 12) + " p.none"
    yield item(
        "html-selector-deep", repeated("<div>", 400, "</div>"), fields={"a": selector, "t": "h1"}
    )
    pattern = {"css": "p", "match": "(a+)+$"}
    yield item("regex-backtracking", lambda: page(f"<p>{'a' * 60}b"), fields={"a": pattern})
    pattern = {"css": "p", "match": "(x+x+)+y"}
    yield item(
        "regex-backtracking-long", lambda: page(f"<p>{'x' * 100_000}"), fields={"a": pattern}
    )
    pattern = {"css": "p", "match": r"^(\w+\s?)*$"}
    yield item("regex-words", lambda: page(f"<p>{'word ' * 2000}!"), fields={"a": pattern})
    number = {"css": "p", "type": "number"}
    yield item("value-digits", lambda: page(f"<p>{'9' * MB}"), fields={"a": number})
    money = {"css": "p", "type": "money"}
    yield item("value-money", lambda: page(f"<p>{'1.' * 500_000} EUR"), fields={"a": money})
    date = {"css": "p", "type": "date"}
    yield item("value-date", lambda: page(f"<p>{'1 May ' * 200_000}"), fields={"a": date})


def transfer_faults() -> Iterator[Behaviour]:
    """Yield connections that stall, break, lie or never end."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    yield item("transfer-hang", hang)
    yield item("transfer-drip-headers", lambda: drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"))
    yield item("transfer-drip-body", lambda: drip(head + b"Content-Length: 9999\r\n\r\n"))
    yield item("transfer-drip-chunks", lambda: drip(chunked(), b"1\r\nx\r\n"))
    yield item("transfer-close", lambda: b"")
    yield item("transfer-half", lambda: page("<p>x", length=100_000))
    yield item("transfer-short-length", lambda: page("<p>" + "x" * 10_000, length=100))
    yield item("transfer-length-negative", lambda: page("x", length=-5))
    yield item("transfer-length-huge", lambda: page("x", length=10**30))
    yield item("transfer-lengths-two", lambda: page("x", headers=("Content-Length: 9",)))
    yield item("transfer-endless-body", lambda: endless(head + b"\r\n", b"<p>x"))
    yield item("transfer-endless-chunks", lambda: endless(chunked(), b"4\r\n<p>x\r\n"))
    yield item("transfer-endless-headers", lambda: endless(head, b"X: y\r\n"))
    yield item("transfer-endless-1xx", lambda: endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"))
    yield item("transfer-header-huge", lambda: page("x", headers=(f"X: {'y' * MB}",)))
    many = tuple(f"X-{number}: y" for number in range(100_000))
    yield item("transfer-headers-many", lambda: page("x", headers=many))
    yield item("transfer-chunk-invalid", lambda: chunked(b"zz\r\nx\r\n0\r\n\r\n"))
    yield item("transfer-chunk-huge", lambda: chunked(b"f" * 40 + b"\r\nx"))
    yield item("transfer-chunk-negative", lambda: chunked(b"-5\r\nx\r\n0\r\n\r\n"))
    yield item("transfer-chunk-extension", lambda: chunked(b"1;" + b"x" * MB + b"\r\nx\r\n"))
    yield item("transfer-chunk-cut", lambda: chunked(b"ff\r\nx"))
    yield item("transfer-status-garbage", lambda: b"HELLO\r\n\r\n")
    yield item("transfer-status-text", lambda: b"HTTP/1.1 abc OK\r\n\r\n")
    yield item("transfer-version", lambda: b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n")
    yield item("transfer-binary", lambda: bytes(range(256)) * 1000)
    yield item("transfer-tls", lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    yield item("transfer-header-nul", lambda: page("x", headers=("X: a\x00b",)))
    yield item("transfer-header-folded", lambda: page("x", headers=("X: a\r\n b",)))
    yield item("transfer-header-latin", lambda: page("x", headers=("X-\xe9: \xff",)))
    for name, status in (("999", "999 Odd"), ("000", "000 Zero"), ("1000", "1000 Many")):
        yield item(f"status-{name}", functools.partial(page, "x", status=status))
    for code in (204, 205, 206, 304, 401, 402, 403, 404, 408, 410, 418, 425, 451, 500, 503, 511):
        yield item(f"status-{code}", functools.partial(page, "x", status=f"{code} Status"))
    challenge = ("WWW-Authenticate: " + "Basic realm=," * 10_000,)
    yield item("status-401-long", lambda: page("x", status="401 No", headers=challenge))


def contents() -> Iterator[Behaviour]:
    """Yield bodies that are packed or written in a way that cannot be read."""
    packed = ("Content-Encoding: gzip",)
    yield item("content-gzip-bomb", lambda: http(zeros_gzip(1000 * MB), headers=packed))
    brotli_header = ("Content-Encoding: br",)
    yield item("content-brotli-bomb", lambda: http(zeros_brotli(1000 * MB), headers=brotli_header))
    deflate = ("Content-Encoding: deflate",)
    deflated = functools.cache(lambda: zlib.compress(bytes(500 * MB)))
    yield item("content-deflate-bomb", lambda: http(deflated(), headers=deflate))
    twice = ("Content-Encoding: gzip, gzip",)
    yield item(
        "content-gzip-twice", lambda: http(gzip.compress(gzip.compress(b"x")), headers=twice)
    )
    bomb_twice = functools.cache(lambda: gzip.compress(zeros_gzip(1000 * MB)))
    yield item("content-gzip-bomb-twice", lambda: http(bomb_twice(), headers=twice))
    yield item("content-gzip-garbage", lambda: page("x", headers=packed))
    half = gzip.compress(b"<h1>x</h1>" * 1000)[:60]
    yield item("content-gzip-half", lambda: http(half, headers=packed))
    many = gzip.compress(b"") * 50_000
    yield item("content-gzip-members", lambda: http(many, headers=packed))
    unknown = ("Content-Encoding: rot13",)
    yield item("content-encoding-unknown", lambda: page("x", headers=unknown))
    listed = ("Content-Encoding: " + "gzip, " * 1000,)
    yield item("content-encodings-many", lambda: page("x", headers=listed))
    for charset in ("undefined", "punycode", "utf-7", "unicode_escape", "utf-16", "idna", "zip"):
        kind = f"text/html; charset={charset}"
        yield item(f"charset-{charset}", functools.partial(page, "<p>x +AGE-", content_type=kind))
    long = "text/html; charset=" + "x" * 5000
    yield item("charset-long", lambda: page("x", content_type=long))
    yield item("charset-bytes", lambda: page(bytes(range(128, 256)) * 10_000))
    yield item("charset-bom-utf-32", lambda: http(b"\xff\xfe\x00\x00" + b"<h1>x" * 100))
    yield item("content-type-none", lambda: page("x", content_type=None))
    yield item("content-type-garbage", lambda: page("x", content_type=";;;=/\"'"))
    yield item("content-type-image", lambda: http(b"\x89PNG\r\n" * 1000, content_type="image/png"))
    yield item("content-empty", lambda: http(b""))


def header_values() -> Iterator[Behaviour]:
    """Yield headers with invalid values."""
    places = {
        "blank": "",
        "bracket": "http://[::1",
        "bytes": "/\xff\xfe\xed\xa0\x80",
        "javascript": "javascript:alert(1)",
        "file": "file:///etc/passwd",
        "port": "http://127.0.0.1:99999/",
        "port-zero": "http://127.0.0.1:0/",
        "userinfo": "http://user:secret@127.0.0.1:1/",
        "huge": "/" + "x" * 7000,
        "self": "/item/1",
        "scheme": "gopher://127.0.0.1/",
        "space": "http://exa mple/",
        "unknown-host": "http://no-such-host.invalid/",
    }
    for name, place in places.items():
        yield item(
            f"location-{name}",
            functools.partial(page, "x", status="302 Found", headers=(f"Location: {place}",)),
        )
    yield item("location-none", lambda: page("x", status="302 Found"))
    counter = itertools.count()
    yield Behaviour("location-ladder", "item", lambda path, _base: _ladder(path, counter))
    waits = ("1", "-5", "1e999", "nan", "soon", "Fri, 31 Dec 9999 23:59:59 GMT", "9" * 400, "")
    for number, wait in enumerate(waits):
        for status in (429, 503):
            yield item(
                f"retry-after-{status}-{number}",
                functools.partial(
                    page, "x", status=f"{status} Later", headers=(f"Retry-After: {wait}",)
                ),
            )
    odd = {
        "cookies": tuple(f"Set-Cookie: c{number}=1" for number in range(90)),
        "cookie-huge": (f"Set-Cookie: c={'x' * 7000}",),
        "cookie-invalid": ("Set-Cookie: =;;;\x01=\x02; Expires=never; Max-Age=1e99",),
        "etag": ('ETag: "unclosed', "Last-Modified: yesterday", "Date: 0"),
        "cache": ("Cache-Control: max-age=99999999999999999999999, s-maxage=-1",),
        "expires": ("Expires: -1", "Age: -99999999999999999999"),
        "vary": ("Vary: " + "x, " * 2000,),
        "link": ("Link: " + "<a>;rel=next, " * 500,),
        "link-open": ("Link: <" + "x" * 7000,),
        "limits": ("X-RateLimit-Limit: 0", "X-RateLimit-Remaining: -1", "X-RateLimit-Reset: 1e99"),
        "limits-policy": ("RateLimit-Policy: " + "q;" * 3000, "RateLimit: limit=0, reset=nan"),
        "refresh": ("Refresh: 0; url=http://[",),
        "connection": ("Connection: close, upgrade", "Upgrade: h2c"),
    }
    for name, headers in odd.items():
        yield item(f"header-{name}", functools.partial(page, "x", headers=headers))


def _ladder(path: str, counter: Iterator[int]) -> Reply:
    if path == "/item/1" or path.startswith("/step"):
        step = f"Location: /step/{next(counter)}"
        return page("x", status="301 Moved", headers=(step,))
    return honest(path)


def robots_files() -> Iterator[Behaviour]:
    """Yield robots.txt files that are hard to read or never end."""
    text = "text/plain"
    agents = "".join(f"User-agent: bot{number}\n" for number in range(7000))
    delays = "Crawl-delay: 1\n" * 7000
    wild = "User-agent: *\nDisallow: /" + "*a" * 500 + "$\n"
    bodies = {
        "agents-delays": agents + delays,
        "agents": agents * 4,
        "rules": "User-agent: *\n" + "Disallow: /no\n" * 40_000,
        "groups": "User-agent: *\nDisallow: /no\n\n" * 20_000,
        "wildcards": wild * 100,
        "wildcard-long": "User-agent: *\nDisallow: /" + "*" * 400_000 + "x$\n",
        "line-long": "User-agent: *\nDisallow: /" + "a" * 450_000 + "\n",
        "delay-nan": "User-agent: *\nCrawl-delay: nan\n",
        "delay-negative": "User-agent: *\nCrawl-delay: -1e9\n",
        "binary": "\x00\x01\x02" * 100_000,
        "percent": "User-agent: *\nDisallow: /" + "%zz%" * 50_000,
        "sitemaps": "Sitemap: http://127.0.0.1:1/x\n" * 20_000,
        "html": "<html><body><div>" * 20_000,
    }
    for name, body in bodies.items():
        answer = functools.partial(http, body.encode("latin-1"), content_type=text)
        yield Behaviour(f"robots-{name}", "item", at("/robots.txt", answer))
    line = b"Disallow: /no\n"
    start = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nUser-agent: *\n"
    packed = http(zeros_gzip(100 * MB), content_type=text, headers=("Content-Encoding: gzip",))
    yield Behaviour("robots-endless", "item", at("/robots.txt", lambda: endless(start, line)))
    yield Behaviour("robots-drip", "item", at("/robots.txt", lambda: drip(start)))
    yield Behaviour("robots-hang", "item", at("/robots.txt", hang))
    yield Behaviour("robots-bomb", "item", at("/robots.txt", lambda: packed))
    circle = ("Location: /robots.txt",)
    moved = functools.partial(http, status="302 Found", headers=circle)
    yield Behaviour("robots-circle", "item", at("/robots.txt", moved))
    broken = functools.partial(http, status="500 Broken")
    yield Behaviour("robots-500", "item", at("/robots.txt", broken))


def lists() -> Iterator[Behaviour]:
    """Yield list pages that never end or hold odd links."""
    more = "<a class=item href=/item/{0}>{0}</a><a class=next href=/list?page={0}>next</a>"
    yield Behaviour("list-endless", "list", lambda path, _base: _list(path, more))
    yield Behaviour(
        "list-no-items", "list", lambda path, _base: _list(path, more.partition("</a>")[2])
    )
    own = "<a class=item href=/item/2>x</a><a class=next href=/list>next</a>"
    yield Behaviour("list-circle", "list", at("/list", lambda: page(own)))
    yield Behaviour(
        "list-long-next", "list", lambda path, _base: _list(path, more + "&amp;x=" + "y" * 50)
    )
    one = "<a class=item href=/item/2>x</a>"
    odd = {
        "links-many": "".join(f"<a class=item href=/item/{n}>x</a>" for n in range(200_000)),
        "links-equal": one * 300_000,
        "links-invalid": one + "<a class=item href='http://[::1'>x</a>",
        "links-nul": one + "<a class=item href='/item/\x003'>x</a>",
        "links-surrogate": one + "<a class=item href='/item/&#xD800;\ud800'>x</a>",
        "links-userinfo": one + "<a class=item href='http://u:p@127.0.0.1:1/'>x</a>",
        "links-port": one + "<a class=item href='http://127.0.0.1:99999/'>x</a>",
        "links-schemes": one + "<a class=item href='data:text/html,x'>x</a>" * 1000,
        "links-huge": one + f"<a class=item href='/{'x' * MB}'>x</a>",
        "links-dots": one + f"<a class=item href='{'../' * 100_000}item/3'>x</a>",
        "links-foreign": one + "<a class=item href='http://no-such-host.invalid/'>x</a>",
        "links-bidi": one + "<a class=item href='/item/\u202e3\u2066'>x</a>",
        "links-escape": one + "<a class=item href='/item/\x1b[31m3'>x</a>",
    }
    for name, body in odd.items():
        yield Behaviour(f"list-{name}", "list", at("/list", functools.partial(page, body)))
    elements = "<div class=el><h2>same</h2></div>" * 100_000
    yield Behaviour("elements-equal", "elements", at("/list", lambda: page(elements)))
    numbered = "".join(f"<div class=el><h2>{n}</h2></div>" for n in range(50_000))
    yield Behaviour("elements-many", "elements", at("/list", lambda: page(numbered)))
    inside = repeated("<div class=el><h2>x</h2>", 20_000)
    yield Behaviour("elements-nested", "elements", at("/list", inside))


def _list(path: str, body: str) -> Reply:
    if not path.startswith("/list"):
        return honest(path)
    number = int(path.partition("page=")[2].partition("&")[0] or 0) + 1
    return page(body.format(number))


def sitemaps() -> Iterator[Behaviour]:
    """Yield sitemaps that expand, nest or cannot be read."""
    space = "xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'"
    url = "<url><loc>{base}/item/2</loc></url>"
    lol = "".join(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 10))
    bodies = {
        "entities": f"<!DOCTYPE x [<!ENTITY l0 'lol'>{lol}]><urlset {space}>&l9;</urlset>",
        "external": f"<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><urlset>&e;{url}",
        "index-self": f"<sitemapindex {space}><sitemap><loc>{{base}}/sitemap.xml</loc></sitemap>"
        "</sitemapindex>",
        "index-many": f"<sitemapindex {space}>"
        + "".join(f"<sitemap><loc>{{base}}/s{n}.xml</loc></sitemap>" for n in range(20_000))
        + "</sitemapindex>",
        "nested": f"<urlset {space}>" + "<a>" * 200_000,
        "attributes": f"<urlset {space} " + " ".join(f"a{n}='1'" for n in range(100_000)) + ">",
        "unclosed": f"<urlset {space}>{url}<url><loc>{{base}}/item/3",
        "not-xml": "this is not a sitemap",
        "empty": "",
        "bad-urls": f"<urlset {space}>{url}<url><loc>http://[::1</loc></url><url><loc></loc></url>"
        "<url><loc>relative</loc></url><url><loc>http://u:p@127.0.0.1:1/</loc></url></urlset>",
        "many": f"<urlset {space}>"
        + "".join(f"<url><loc>{{base}}/item/{n}</loc></url>" for n in range(50_000))
        + "</urlset>",
        "comments": f"<urlset {space}>" + "<!-- x -->" * 500_000 + f"{url}</urlset>",
        "text-huge": f"<urlset {space}><url><loc>" + "x" * 20 * MB + "</loc></url></urlset>",
    }
    for name, body in bodies.items():
        yield Behaviour(f"sitemap-{name}", "sitemap", functools.partial(_sitemap, body))
    utf7 = b"<?xml version='1.0' encoding='utf-7'?>+ADw-urlset+AD4-"
    xml = "application/xml"
    yield Behaviour(
        "sitemap-utf-7", "sitemap", at("/sitemap.xml", lambda: http(utf7, content_type=xml))
    )
    bomb = functools.partial(http, content_type="application/gzip")
    yield Behaviour(
        "sitemap-bomb", "sitemap", at("/sitemap.xml", lambda: bomb(zeros_gzip(1000 * MB)))
    )
    yield Behaviour("sitemap-hang", "sitemap", at("/sitemap.xml", hang))


def _sitemap(body: str, path: str, base: str) -> Reply:
    if path != "/sitemap.xml":
        return honest(path)
    return http(body.replace("{base}", base).encode(), content_type="application/xml")


def api_answers() -> Iterator[Behaviour]:
    """Yield JSON lists that are deep, huge, endless or wrong."""
    good = '{"id": 1, "name": "x"}'
    bodies: dict[str, str | bytes] = {
        "deep-900": f'{{"items": [{good}, {{"id": 2, "name": {"[" * 900}{"]" * 900}}}]}}',
        "deep-million": '{"items": ' + "[" * 1_000_000,
        "deep-objects": '{"a":' * 500_000,
        "digits": f'{{"items": [{good}, {{"id": 2, "name": {"9" * 309}}}]}}',
        "digits-million": f'{{"items": [{good}, {{"id": {"9" * MB}}}]}}',
        "exponent": f'{{"items": [{good}, {{"id": 2, "name": 1e999}}]}}',
        "nan": f'{{"items": [{good}, {{"id": 2, "name": NaN}}, {{"id": 3, "name": -Infinity}}]}}',
        "surrogate": f'{{"items": [{good}, {{"id": 2, "name": "\\ud800"}}]}}',
        "surrogate-key": f'{{"items": [{good}, {{"id": "\\udfff", "name": "x"}}]}}',
        "keys-equal": f'{{"items": [{good}, {{"id": 2, "id": 3, "id": 4}}]}}',
        "keys-many": '{"items": [{"id": 1, '
        + ", ".join(f'"k{n}": 1' for n in range(200_000))
        + "}]}",
        "records": '{"items": ['
        + ", ".join(f'{{"id": {n}, "name": "x"}}' for n in range(300_000))
        + "]}",
        "records-millions": '{"items": ['
        + ", ".join(f'{{"id": {n}, "name": ""}}' for n in range(1_500_000))
        + "]}",
        "records-equal": '{"items": [' + ", ".join([good] * 200_000) + "]}",
        "text": '{"items": "none"}',
        "null": '{"items": null}',
        "number": "42",
        "list": "[" + good + "]",
        "empty": "",
        "html": "<html><h1>Sorry</h1></html>",
        "bom": b"\xef\xbb\xbf" + f'{{"items": [{good}]}}'.encode(),
        "utf-8-invalid": b'{"items": [{"id": 1, "name": "\xff\xfe"}]}',
        "utf-16": f'{{"items": [{good}]}}'.encode("utf-16"),
        "two": f'{{"items": [{good}]}}' * 2,
        "cut": f'{{"items": [{good}, ',
        "nul": b'{"items": [{"id": "a\x00b", "name": "\x00"}]}',
        "escape": f'{{"items": [{good}, {{"id": "\\u001b[31m\\u202e", "name": "x"}}]}}',
        "text-huge": f'{{"items": [{{"id": 1, "name": "{"x" * 20 * MB}"}}]}}',
        "key-huge": f'{{"items": [{good}, {{"id": "{"k" * MB}", "name": "x"}}]}}',
        "key-null": f'{{"items": [{good}, {{"id": null}}, {{"id": {{}}}}, {{"id": []}}, 7, null]}}',
        "whitespace": " " * 20 * MB,
        "strings": '{"items": [' + ", ".join(['"x"'] * 500_000) + "]}",
    }
    for name, body in bodies.items():
        raw = body if isinstance(body, bytes) else body.encode()
        answer = functools.partial(http, raw, content_type="application/json")
        yield Behaviour(f"api-{name}", "api", at("/things", answer))
    yield Behaviour("api-hang", "api", at("/things", hang))
    cursor = {"kind": "cursor", "path": "next", "parameter": "after"}
    yield Behaviour(
        "api-cursor-same", "api", lambda path, _base: _cursor(path, "a"), {"pages": cursor}
    )
    yield Behaviour(
        "api-cursor-endless", "api", lambda path, _base: _cursor(path, None), {"pages": cursor}
    )
    numbered = {"kind": "page", "parameter": "page"}
    same = functools.partial(
        http, f'{{"items": [{good}]}}'.encode(), content_type="application/json"
    )
    yield Behaviour("api-page-same", "api", at("/things", same), {"pages": numbered})


def _cursor(path: str, cursor: str | None) -> Reply:
    number = int(path.partition("after=")[2] or 0) if cursor is None else 1
    answer = {"items": [{"id": number, "name": "x"}], "next": cursor or str(number + 1)}
    return http(json.dumps(answer).encode(), content_type="application/json")


def sites() -> Iterator[Behaviour]:
    """Yield sites that are hostile at every path."""
    yield Behaviour("site-hang", "item", lambda _path, _base: hang())
    yield Behaviour("site-close", "item", lambda _path, _base: b"")
    yield Behaviour("site-drip", "item", lambda _path, _base: drip(b"HTTP/1.1 200 OK\r\n\r\n"))
    for status in (403, 429, 500, 503):
        answer = page("x", status=f"{status} No", headers=("Retry-After: 3600",))
        yield Behaviour(f"site-{status}", "item", lambda _path, _base, answer=answer: answer)


def all_behaviours() -> list[Behaviour]:
    """Return every behaviour."""
    groups = (
        html_nesting,
        html_tokens,
        field_values,
        transfer_faults,
        contents,
        header_values,
        robots_files,
        lists,
        sitemaps,
        api_answers,
        sites,
    )
    return [behaviour for group in groups for behaviour in group()]


# ------------------------------------------------------------ the server


async def _serve(behaviour: Behaviour | None, base: Callable[[], str], streams: Any) -> None:
    reader, writer = streams
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode("latin-1")
            reply = behaviour.reply(path, base()) if behaviour else honest(path)
            if await _send(writer, reply):
                break
    writer.close()


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Send a response; return True if the connection must be closed."""
    if isinstance(reply, bytes):
        writer.write(reply)
        await writer.drain()
        return not (reply.startswith(b"HTTP/1.1 ") and b"\r\nContent-Length: " in reply[:_BLOCK])
    if isinstance(reply, Iterator):
        for part in reply:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        return True
    async for part in reply:
        writer.write(part)
        await writer.drain()
    return True


async def main() -> None:
    """Serve every behaviour, or the healthy site, until stdin is closed."""
    places: dict[str, str] = {}
    for behaviour in [None] if "healthy" in sys.argv else all_behaviours():
        name = behaviour.name if behaviour else "healthy"

        def serve(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            behaviour: Behaviour | None = behaviour,
            name: str = name,
        ) -> Awaitable[None]:
            return _serve(behaviour, lambda: places[name], (reader, writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        places[name] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    print(json.dumps(places), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
