"""Request, Page and Middleware: what passes the chain, and its headers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol
from urllib.parse import urlencode

import orjson
from multidict import CIMultiDict, CIMultiDictProxy
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import UnexpectedShape
from longline.core.http_headers import parse_retry_after
from longline.core.json import read_json, takes_too_much_memory
from longline.core.model import Usage
from longline.http.charset import Decoded, decode
from longline.http.css import Selectors
from longline.http.proxies.proxy import Proxy

_USERINFO = re.compile(r"^([\x00-\x20]*(?:[a-z][a-z0-9+.-]*:)?//)[^/?#]*@", re.IGNORECASE)
_DROPPED = str.maketrans("", "", "\t\r\n")  # as browsers and urllib do, anywhere in a URL
FIRST_ERROR = 400
"""The first status that is an error."""
_SMALL = 50_000  # bytes that every parser reads quickly
_NOT_HTML = re.compile(
    r"\s*(?:application/(?:[\w.-]+\+)?(?:json|zip|gzip|pdf|octet-stream)|(?:image|audio|video|font)/)",
    re.IGNORECASE,
).match


Permit = Callable[[str], Awaitable[None]]
"""Called with a URL; raises when robots.txt disallows it."""
BeforeWrite = Callable[[], Awaitable[None]]
"""Waits until a request may be written; raises when it may not."""


@dataclass(frozen=True, slots=True)
class Clicks:
    """Pages of a list that a browser opens by clicking a button.

    The first `skip` pages are skipped, the next `most` are kept. `watch` is the selector of what
    changes from page to page; None is the whole page.
    """

    button: str
    skip: int = 0
    most: int = 1
    watch: str | None = None


class BodySink(Protocol):
    """Receives the body of a successful response, piece by piece, instead of the memory."""

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Check the head of the response; raise FetchError if its body is not wanted."""

    async def write(self, piece: bytes) -> None:
        """Add a piece of the body; raise FetchError if it is too large."""


@dataclass(frozen=True, slots=True)
class FileWish:
    """A response that is wanted as a file: at most `largest` bytes; None is the setting."""

    largest: int | None = None
    is_image: bool = False


Capture = Literal["screenshot", "pdf"]
"""What a browser can make of a page besides its HTML."""
FILE_TYPE = "application/vnd.longline.file+json"
"""The content type of a page whose body describes a stored file."""
CAPTURE_HEADERS: Mapping[Capture, str] = {
    "screenshot": "longline-screenshot",
    "pdf": "longline-pdf",
}
"""The headers that describe the captures of a page."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    `accept` has statuses of 300 and more that the caller handles itself. A higher `priority` goes
    first among waiting requests of a domain. A shared request (`is_shared`) is sent once in a run;
    later ones receive the same page. `hidden` are query parameters with secrets: only the transport
    adds them, so no error, log or archive contains them. A rendered request is opened in a browser;
    with `is_renewing`, a new login or token is obtained first. At most `enough` bytes of a body are
    downloaded; None is all. With `clicks`, a rendered page is the first of several. `before_write`
    is awaited on the open connection just before the request is written; that wait does not count
    against the timeout. `permit` is awaited before a rendered page navigates to another document.
    With a `file`, the body is stored, and the page describes it; on its way to the site the request
    then has a `sink`. `captures` are taken of a rendered page. `proxy` is set inside the chain;
    `session` is the name of a session, and `scope` the item that the request belongs to.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    accept: frozenset[int] = frozenset()
    timeout: float | None = None
    priority: int = 0
    is_shared: bool = False
    hidden: Mapping[str, str] = field(default_factory=dict)
    before_write: BeforeWrite | None = field(default=None, compare=False, repr=False)
    is_rendered: bool = False
    is_renewing: bool = False
    enough: int | None = None
    clicks: Clicks | None = None
    permit: Permit | None = field(default=None, compare=False, repr=False)
    file: FileWish | None = None
    sink: BodySink | None = field(default=None, compare=False, repr=False)
    captures: tuple[Capture, ...] = ()
    proxy: Proxy | None = None
    session: str | None = None
    scope: str | None = field(default=None, compare=False)

    @property
    def domain(self) -> str:
        """The host and port whose limits apply to this request."""
        return origin_of(self.url)[1]


@dataclass(frozen=True)
class Page:
    """A complete response.

    `url` is the URL after redirects. Look `headers` up in lower case. `is_cached` is True when the
    body came from the cache, validated or not. `streamed` bytes went to a file.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float = 0.0
    is_cached: bool = False
    streamed: int = 0

    @property
    def size(self) -> int:
        """Bytes that were received."""
        return len(self.body) + self.streamed

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """The captures of a rendered page by name, as records refer to them."""
        described = self._captures
        return {name: one for name, one in described.items() if "problem" not in one}

    @property
    def missing_files(self) -> dict[str, str]:
        """Why captures that were asked for do not exist, by name."""
        described = self._captures
        return {name: one["problem"] for name, one in described.items() if "problem" in one}

    @property
    def _captures(self) -> dict[str, dict[str, Any]]:
        found: dict[str, Any] = {}
        for name, header in CAPTURE_HEADERS.items():
            if header in self.headers:
                with suppress(orjson.JSONDecodeError):  # a header of the site
                    found[name] = orjson.loads(self.headers[header])
        return {name: one for name, one in found.items() if isinstance(one, dict)}

    def retry_after(self, now: float) -> float | None:
        """Return the seconds that its Retry-After header asks for; None without a valid one."""
        text = self.headers.get("retry-after")
        return None if text is None else parse_retry_after(text, now)

    @cached_property
    def decoded(self) -> Decoded:
        """The body as text, its encoding, and doubts about it."""
        return decode(self.body, self.headers.get("content-type", ""))

    @property
    def text(self) -> str:
        """The body as text: by the declared encoding if it fits, else by a detected one."""
        return self.decoded.text

    @property
    def text_problem(self) -> str | None:
        """What is doubtful about the decoded text; None if nothing is, or it was not read."""
        decoded: Decoded | None = self.__dict__.get("decoded")
        return decoded.problem if decoded is not None else None

    @cached_property
    def json(self) -> Any:
        """The body as JSON; an integer beyond 64 bits is its digits, as text.

        Raises:
            UnexpectedShape: the body is not JSON, or has too many values.
        """
        if takes_too_much_memory(self.body):
            raise UnexpectedShape(self.url, "its JSON has too many values for one response")
        try:
            return read_json(self.body)
        except orjson.JSONDecodeError:
            pass  # JSON must be UTF-8, but some hosts send it in the encoding of their pages
        try:
            return read_json(self.text)
        except orjson.JSONDecodeError as error:
            start = self.text[:60].replace("\n", " ")
            raise UnexpectedShape(self.url, f"not JSON ({error}): {start!r}") from error

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The body as an HTML tree.

        Raises:
            UnexpectedShape: its content type is not HTML; only pages that may be HTML are checked
                by html_guard.py.
        """
        if len(self.body) > _SMALL and not may_be_html(self.headers):
            kind = self.headers.get("content-type", "")
            raise UnexpectedShape(self.url, f"not HTML, but {kind[:60]!r}")
        return LexborHTMLParser(self.text)

    @cached_property
    def selectors(self) -> Selectors:
        """CSS selectors on the tree."""
        return Selectors(self.tree)

    def css(self, selector: str) -> list[LexborNode]:
        """Return the elements that match a CSS selector, in document order."""
        return self.selectors.all(self.tree, selector)

    def first(self, selector: str) -> LexborNode | None:
        """Return the first element that matches, or None."""
        return self.selectors.first(self.tree, selector)

    def first_text(self, selector: str) -> str | None:
        """Return the stripped text of the first match; None without one, or if it is empty."""
        node = self.first(selector)
        return (node.text(strip=True) or None) if node else None

    def first_attribute(self, selector: str, name: str) -> str | None:
        """Return an attribute of the first match; None without one, or if it is empty."""
        node = self.first(selector)
        return (node.attributes.get(name) or None) if node else None


def may_be_html(headers: Mapping[str, str]) -> bool:
    """Return whether a body may be HTML by its content type; many sites declare none."""
    return not _NOT_HTML(headers.get("content-type", ""))


@lru_cache(maxsize=256)
def origin_of(url: str) -> tuple[str, str]:
    """Return scheme and host with port, without the userinfo, in lower case.

    Called several times for each request, so it splits instead of parsing, and is cached.
    """
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    return scheme.lower(), host.rpartition("@")[2].lower()


def without_userinfo(url: str) -> str:
    """Return a URL from a site without user name and password.

    They would be sent as our own credentials, and shown with the URL.
    """
    return _USERINFO.sub(r"\1", url.translate(_DROPPED)) if "@" in url else url


def without_userinfo_in(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """Return the headers of a response; its Location has no user name and password."""
    if "@" not in headers.get("location", ""):
        return headers
    cleaned = CIMultiDict(headers)
    cleaned["Location"] = without_userinfo(headers["location"])
    return CIMultiDictProxy(cleaned)


def with_query(url: str, params: Mapping[str, str | int] | None) -> str:
    """Return the URL with these parameters added to its query."""
    if not params:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(params)}"


# ---------------- Headers


def joined_header(headers: Mapping[str, str], name: str) -> str:
    """Return all lines of a header, joined as one list; empty without the header."""
    getall = getattr(headers, "getall", None)
    return headers.get(name, "") if getall is None else ", ".join(getall(name, ()))


def has_header(headers: Mapping[str, str], name: str) -> bool:
    """Return whether there is a header of this name, in any case."""
    wanted = name.lower()
    return any(one.lower() == wanted for one in headers)


def with_header(request: Request, name: str, value: str) -> Request:
    """Return the request with this header, unless it already has one of that name."""
    if has_header(request.headers, name):
        return request
    return replace(request, headers=Redacted({**request.headers, name: value}))


class Redacted(dict[str, str]):
    """A dict whose repr shows its names and hides its values."""

    def __repr__(self) -> str:
        return f"Redacted({', '.join(self)})"


class RedactedBody(bytes):
    """Bytes whose repr shows only their number."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"RedactedBody({len(self)} bytes)"


# ---------------- Middlewares


class Middleware(Protocol):
    """Takes a request and returns a page; its cost is added to `usage`."""

    async def __call__(self, request: Request, usage: Usage) -> Page:
        """Return the response.

        Raises:
            FetchError: there is none; the error's kind decides what follows.
        """


MiddlewareFactory = Callable[[Middleware], Middleware]
"""Wraps the next middleware of the chain."""
