"""Requests to httpbin and the expected result of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from longline.core.errors import Gone, Refused, ServerFailed, Throttled
from longline.http.errors import BadAnswer, RobotsDisallowed, TimedOut
from longline.http.messages import Page
from tests.httpbin.client import basic

LONG_AGO = "Thu, 01 Jan 2015 00:00:00 GMT"
JSON = {"Content-Type": "application/json"}
UNPACKED = {"gzip", "deflate", "br"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and what must be true of the page."""

    name: str
    path: str
    is_right: Callable[[Page], bool]
    values: dict[str, Any] = field(default_factory=dict)


def case(name: str, path: str, is_right: Callable[[Page], bool], **values: Any) -> Case:
    return Case(name, path, is_right, values)


def status(expected: int) -> Callable[[Page], bool]:
    return lambda page: page.status == expected


def ends_at(path: str) -> Callable[[Page], bool]:
    """Say whether the page after all redirects is this one, and its own address says so."""
    return lambda page: page.status == 200 and page.url.partition("?")[0].endswith(path)


STATUSES = [
    case("200", "/status/200", status(200)),
    case("201", "/status/201", status(201)),
    case("204 without a body", "/status/204", lambda page: (page.status, page.body) == (204, b"")),
    case("a redirect to nowhere", "/status/300", status(300)),
    case("an accepted 404", "/status/404", status(404), accept=frozenset({404})),
    case("an accepted 418", "/status/418", lambda page: "teapot" in page.text, accept={418}),
]

REDIRECTS = [
    case("one hop", "/redirect/1", ends_at("/get")),
    case("five hops", "/redirect/5", ends_at("/get")),
    case("ten hops", "/redirect/10", ends_at("/get")),
    case("relative", "/relative-redirect/3", ends_at("/get")),
    case("absolute", "/absolute-redirect/3", ends_at("/get")),
    *(
        case(
            f"POST after {code} becomes GET",
            f"/redirect-to?url=/anything&status_code={code}",
            lambda page: (page.json["method"], page.json["data"]) == ("GET", ""),
            method="POST",
            body=b"hello",
        )
        for code in (301, 302, 303)
    ),
    *(
        case(
            f"POST after {code} stays POST",
            f"/redirect-to?url=/anything&status_code={code}",
            lambda page: (page.json["method"], page.json["data"]) == ("POST", "hello"),
            method="POST",
            body=b"hello",
        )
        for code in (307, 308)
    ),
    case(
        "PUT after 303 becomes GET",
        "/redirect-to?url=/anything&status_code=303",
        lambda page: page.json["method"] == "GET",
        method="PUT",
        body=b"hello",
    ),
    case(
        "PUT after 302 stays PUT",
        "/redirect-to?url=/anything&status_code=302",
        lambda page: (page.json["method"], page.json["data"]) == ("PUT", "hello"),
        method="PUT",
        body=b"hello",
    ),
    case(
        "what described the body does not stay without it",
        "/redirect-to?url=/anything&status_code=303",
        lambda page: not {"Content-Type", "Content-Length"} & set(page.json["headers"]),
        method="POST",
        body=b"{}",
        headers=JSON,
    ),
    case(
        "HEAD stays HEAD",
        "/redirect-to?url=/get&status_code=302",
        lambda page: (page.status, page.body) == (200, b""),
        method="HEAD",
    ),
    case(
        "headers travel",
        "/redirect-to?url=/headers",
        lambda page: page.json["headers"]["X-Thing"] == "1",
        headers={"X-Thing": "1"},
    ),
    case(
        "secrets stay at their host",
        "/redirect-to?url=/headers",
        lambda page: page.json["headers"]["Authorization"] == "Bearer s",
        headers={"Authorization": "Bearer s", "Cookie": "a=1"},
    ),
    case(
        "secrets do not travel to another host",
        "/redirect-to?url={other}/headers",
        lambda page: not {"Authorization", "Cookie"} & set(page.json["headers"]),
        headers={"Authorization": "Bearer s", "Cookie": "a=1"},
    ),
    case(
        "hidden parameters do not travel to another host",
        "/redirect-to?url={other}/get",
        lambda page: page.json["args"] == {},
        hidden={"key": "secret"},
    ),
    case(
        "other headers travel to another host",
        "/redirect-to?url={other}/headers",
        lambda page: page.json["headers"]["X-Thing"] == "1",
        headers={"Authorization": "Bearer s", "X-Thing": "1"},
    ),
    case(
        "letters beyond ASCII in the target",
        "/redirect-to?url=/anything/%D0%BC%D0%B8%D1%80",
        lambda page: page.json["url"].endswith(("/anything/мир", "/anything/%D0%BC%D0%B8%D1%80")),
    ),
]

ENCODINGS = [
    case("gzip", "/gzip", lambda page: page.json["gzipped"] is True),
    case("deflate", "/deflate", lambda page: page.json["deflated"] is True),
    case("brotli", "/brotli", lambda page: page.json["brotli"] is True),
    case("UTF-8", "/encoding/utf8", lambda page: "∮ E⋅da = Q" in page.text),
    case("base64", "/base64/bG9uZ2xpbmU=", lambda page: page.text == "longline"),
    case(
        "what we can unpack is what we ask for",
        "/headers",
        lambda page: set(page.json["headers"]["Accept-Encoding"].split(", ")) >= UNPACKED,
    ),
]

BODIES = [
    case("HTML", "/html", lambda page: page.first_text("h1") == "Herman Melville - Moby-Dick"),
    case("XML", "/xml", lambda page: page.headers["content-type"] == "application/xml"),
    case("JSON", "/json", lambda page: page.json["slideshow"]["author"] == "Yours Truly"),
    case("a form", "/forms/post", lambda page: len(page.css("form input")) > 5),
    case("links", "/links/10/0", lambda page: len(page.css("a")) == 9),
    case("a picture", "/image/png", lambda page: page.body.startswith(b"\x89PNG")),
    case(
        "a picture by what is accepted",
        "/image",
        lambda page: page.headers["content-type"] == "image/webp",
        headers={"Accept": "image/webp"},
    ),
    case("bytes of exact size", "/bytes/4096?seed=1", lambda page: len(page.body) == 4096),
    case("no bytes", "/bytes/0", lambda page: page.body == b""),
    case(
        "bytes in chunks",
        "/stream-bytes/5000?seed=1&chunk_size=100",
        lambda page: len(page.body) == 5000,
    ),
    case(
        "lines in a stream",
        "/stream/5",
        lambda page: [orjson.loads(one)["id"] for one in page.body.splitlines()] == [0, 1, 2, 3, 4],
    ),
    case(
        "a drip within the deadline",
        "/drip?duration=0.3&numbytes=5&code=200&delay=0",
        lambda page: page.body == b"*****",
    ),
    case("a delay within the deadline", "/delay/0.3", status(200), timeout=15.0),
]

ECHOES = [
    case("our name", "/user-agent", lambda page: page.json["user-agent"].startswith("longline/")),
    case(
        "a name of one's own",
        "/user-agent",
        lambda page: page.json["user-agent"] == "another",
        headers={"User-Agent": "another"},
    ),
    case(
        "headers",
        "/headers",
        lambda page: page.json["headers"]["X-Thing"] == "a, b",
        headers={"X-Thing": "a, b"},
    ),
    case(
        "headers of the answer",
        "/response-headers?X-Thing=1&x-other=2",
        lambda page: (page.headers["x-thing"], page.headers["X-Other"]) == ("1", "2"),
    ),
    case(
        "a query", "/get?a=1&b=2&a=3", lambda page: page.json["args"] == {"a": ["1", "3"], "b": "2"}
    ),
    case(
        "a query beyond ASCII",
        "/get?name=Жанна%20Д’Арк",
        lambda page: page.json["args"] == {"name": "Жанна Д’Арк"},
    ),
    case(
        "a query with escapes",
        "/get?url=http%3A%2F%2Fx.test%2F%3Fa%3D1%26b&plus=a%2Bb",
        lambda page: page.json["args"] == {"url": "http://x.test/?a=1&b", "plus": "a+b"},
    ),
    case(
        "hidden parameters are sent and not shown",
        "/get?a=1",
        lambda page: page.json["args"] == {"a": "1", "key": "s&t"} and "key" not in page.url,
        hidden={"key": "s&t"},
    ),
    case(
        "JSON in a body",
        "/anything",
        lambda page: (page.json["method"], page.json["json"]) == ("POST", {"имя": "Ян"}),
        method="POST",
        body=orjson.dumps({"имя": "Ян"}),
        headers=JSON,
    ),
    case(
        "a form in a body",
        "/post",
        lambda page: page.json["form"] == {"a": "1", "b": "ü"},
        method="POST",
        body=b"a=1&b=%C3%BC",
        headers=FORM,
    ),
    *(
        case(
            method,
            f"/{method.lower()}",
            lambda page: page.json["data"] == "hello",
            method=method,
            body=b"hello",
        )
        for method in ("PUT", "PATCH", "DELETE")
    ),
    case("HEAD", "/get", lambda page: (page.status, page.body) == (200, b""), method="HEAD"),
]

AUTH = [
    case(
        "a user with the right password",
        "/basic-auth/me/secret",
        lambda page: page.json == {"authenticated": True, "user": "me"},
        headers=basic("me", "secret"),
    ),
    case(
        "a user where even the door is hidden",
        "/hidden-basic-auth/me/secret",
        lambda page: page.json["authenticated"] is True,
        headers=basic("me", "secret"),
    ),
    case(
        "a token",
        "/bearer",
        lambda page: page.json == {"authenticated": True, "token": "t0k"},
        headers={"Authorization": "Bearer t0k"},
    ),
    case(
        "cookies that are sent",
        "/cookies",
        lambda page: page.json["cookies"] == {"a": "1", "b": "2"},
        headers={"Cookie": "a=1; b=2"},
    ),
    case(
        "cookies that are set",
        "/response-headers?Set-Cookie=a%3D1",
        lambda page: page.headers["set-cookie"] == "a=1",
    ),
]

CONDITIONS = [
    case("a tag", "/etag/abc", lambda page: page.headers["etag"] == "abc"),
    case("the same tag", "/etag/abc", status(304), headers={"If-None-Match": '"abc"'}),
    case("another tag", "/etag/abc", status(200), headers={"If-None-Match": '"xyz"'}),
    case("any tag", "/etag/abc", status(304), headers={"If-None-Match": "*"}),
    case("not modified", "/cache", status(304), headers={"If-Modified-Since": LONG_AGO}),
    case("modified", "/cache", lambda page: "last-modified" in page.headers),
    case("freshness", "/cache/60", lambda page: "max-age=60" in page.headers["cache-control"]),
    case(
        "a part",
        "/range/26",
        lambda page: (page.status, page.body) == (206, b"cdef"),
        headers={"Range": "bytes=2-5"},
    ),
    case(
        "the rest",
        "/range/26",
        lambda page: (page.status, page.body) == (206, b"xyz"),
        headers={"Range": "bytes=23-"},
    ),
]

RIGHT = [
    *(STATUSES + REDIRECTS + ENCODINGS + BODIES),
    *(ECHOES + AUTH + CONDITIONS),
]


@dataclass(frozen=True, slots=True)
class Failing:
    """A request, the error that it ends with, and how many requests that takes."""

    path: str
    error: type[Exception]
    requests: int
    values: dict[str, Any] = field(default_factory=dict)


def failing(path: str, error: type[Exception], requests: int = 1, **values: Any) -> Failing:
    return Failing(path, error, requests, values)


WRONG = [
    failing("/status/304", BadAnswer),
    failing("/status/400", Refused),
    failing("/status/401", Refused),
    failing("/status/402", Refused),
    failing("/status/403", Refused),
    failing("/status/404", Gone),
    failing("/status/405", Refused),
    failing("/status/410", Gone),
    failing("/status/418", Refused),
    failing("/status/451", Refused),
    failing("/status/429", Throttled, 3),
    failing("/status/500", ServerFailed, 3),
    failing("/status/502", ServerFailed, 3),
    failing("/status/503", Throttled, 3),
    failing("/status/504", ServerFailed, 3),
    failing("/status/505", ServerFailed),
    failing("/redirect/11", BadAnswer, 11),
    failing("/redirect/20", BadAnswer, 11),
    failing("/redirect-to?url=ftp://x.test/", BadAnswer),
    failing("/redirect-to?url=/status/404", Gone, 2),
    failing("/redirect-to?url=/deny", RobotsDisallowed),
    failing("/deny", RobotsDisallowed, 0),
    failing("/basic-auth/me/secret", Refused, headers=basic("me", "wrong")),
    failing("/basic-auth/me/secret", Refused),
    failing("/hidden-basic-auth/me/secret", Gone, headers=basic("me", "wrong")),
    failing("/bearer", Refused),
    failing("/digest-auth/auth/me/secret", Refused),
    failing("/etag/abc", Refused, headers={"If-Match": '"xyz"'}),
    failing("/range/26", Refused, headers={"Range": "bytes=100-200"}),
    failing("/image", Refused, headers={"Accept": "image/tiff"}),
    failing("/post", Refused),
    failing("/delay/1", TimedOut, 3, timeout=0.2),
    failing("/drip?duration=2&numbytes=20&delay=0", TimedOut, 3, timeout=0.3),
]
