"""What goes out and what comes back: Request and Page."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import urlencode

import orjson
from multidict import CIMultiDict, CIMultiDictProxy
from selectolax.lexbor import LexborHTMLParser, LexborNode

from longline.core.errors import UnexpectedShape
from longline.core.http_headers import parse_retry_after
from longline.core.json_text import read_json, takes_too_much_memory
from longline.http.charset import Decoded, decode
from longline.http.css import Selectors

_USERINFO = re.compile(r"^([\x00-\x20]*(?:[a-z][a-z0-9+.-]*:)?//)[^/?#]*@", re.IGNORECASE)
_DROPPED = str.maketrans("", "", "\t\r\n")  # as browsers and urllib do, anywhere in an address
FIRST_ERROR = 400
"""The first status that is an error."""
_SMALL = 50_000  # bytes that no parser takes long for
_NOT_HTML = re.compile(
    r"\s*(?:application/(?:[\w.-]+\+)?(?:json|zip|gzip|pdf|octet-stream)|(?:image|audio|video|font)/)",
    re.IGNORECASE,
).match


Permit = Callable[[str], Awaitable[None]]
"""Given an address; raises when robots.txt does not allow to ask for it."""
BeforeWrite = Callable[[], Awaitable[None]]
"""Waits as long as a request may not leave; raises when it may not at all."""


@dataclass(frozen=True, slots=True)
class Clicks:
    """Pages of a list that a browser reaches by clicking on a button.

    The first `skip` pages are passed over, the next `most` kept. `watch` is the selector of what
    changes from page to page; None is everything.
    """

    button: str
    skip: int = 0
    most: int = 1
    watch: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `accept` names statuses of 300 and more that the caller wants to see.

    A higher `priority` is served first where requests of a domain stand in line. A `shared` one is
    made once in a run: whoever asks the same again is given the same answer. `hidden` are query
    parameters with secrets: only the transport adds them, so no error, log or archive shows them.
    What is to be rendered is opened in a browser; one that is renewing obtains a new proof first.
    Of a body, the first `enough` bytes are read and the rest is not downloaded; None reads it all.
    With `clicks`, a rendered page is the first of several that are shown one after the other.
    `before_write` is awaited once the connection stands, at the last moment before the request is
    written; the wait does not count against its deadline. `permit` is asked before a rendered page
    leads to another document, and raises if it may not.
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

    @property
    def domain(self) -> str:
        """The host and port whose pace and breaker this request obeys."""
        return origin_of(self.url)[1]

    def having(self, headers: Mapping[str, str]) -> Request:
        """Return the request with these headers in place of its own."""
        # Once a request and link; `replace` of dataclasses takes several times as long.
        return Request(
            self.url,
            self.method,
            headers,
            self.body,
            self.accept,
            self.timeout,
            self.priority,
            self.is_shared,
            self.hidden,
            self.before_write,
            self.is_rendered,
            self.is_renewing,
            self.enough,
            self.clicks,
            self.permit,
        )


@dataclass(frozen=True)
class Page:
    """An answer, read to its end.

    `url` is the address that answered, after redirects. `headers` are asked for in lower case.
    `is_cached` says that the body was in the cache, whether or not the site was asked about it.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float = 0.0
    is_cached: bool = False

    def retry_after(self, now: float) -> float | None:
        """Return the seconds that its Retry-After header asks for; None without a valid one."""
        text = self.headers.get("retry-after")
        return None if text is None else parse_retry_after(text, now)

    @cached_property
    def decoded(self) -> Decoded:
        """The body as text, its encoding, and what is doubtful about it."""
        return decode(self.body, self.headers.get("content-type", ""))

    @property
    def text(self) -> str:
        """The body as text: by the declared encoding if it fits, else by what it holds."""
        return self.decoded.text

    @property
    def text_problem(self) -> str | None:
        """What is doubtful about the characters of the text; None if nothing is or it is unread."""
        decoded: Decoded | None = self.__dict__.get("decoded")
        return decoded.problem if decoded is not None else None

    @cached_property
    def json(self) -> Any:
        """The body as JSON; a whole number that 64 bits cannot hold is its digits, as text.

        Raises:
            UnexpectedShape: the body is not JSON, or holds too many values.
        """
        if takes_too_much_memory(self.body):
            raise UnexpectedShape(self.url, "its JSON holds too many values for one answer")
        try:
            return read_json(self.body)
        except orjson.JSONDecodeError:
            return self._json_from_text()

    def _json_from_text(self) -> Any:
        # JSON must be UTF-8, yet some hosts send it in the character set of their pages.
        try:
            return read_json(self.text)
        except orjson.JSONDecodeError as error:
            start = self.text[:60].replace("\n", " ")
            raise UnexpectedShape(self.url, f"not JSON ({error}): {start!r}") from error

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The body as an HTML tree.

        Raises:
            UnexpectedShape: its content type says that it is something else; only pages that may
                be HTML are checked for what a parser cannot stand (see html_guard.py).
        """
        if len(self.body) > _SMALL and not may_be_html(self.headers):
            kind = self.headers.get("content-type", "")
            raise UnexpectedShape(self.url, f"not HTML, but {kind[:60]!r}")
        return LexborHTMLParser(self.text)

    @cached_property
    def selectors(self) -> Selectors:
        """What matches CSS selectors on the tree."""
        return Selectors(self.tree)

    def css(self, selector: str) -> list[LexborNode]:
        """Return the elements that match a CSS selector, in document order."""
        return self.selectors.all(self.tree, selector)

    def first(self, selector: str) -> LexborNode | None:
        """Return the first element that matches, or None."""
        return self.selectors.first(self.tree, selector)

    def first_text(self, selector: str) -> str | None:
        """Return the stripped text of the first match; None when there is none or it is empty."""
        node = self.first(selector)
        return (node.text(strip=True) or None) if node else None

    def first_attribute(self, selector: str, name: str) -> str | None:
        """Return an attribute of the first match; None when there is none or it is empty."""
        node = self.first(selector)
        return (node.attributes.get(name) or None) if node else None


def may_be_html(headers: Mapping[str, str]) -> bool:
    """Whether the content type leaves open that a body is HTML; many sites declare none."""
    return not _NOT_HTML(headers.get("content-type", ""))


@lru_cache(maxsize=256)
def origin_of(url: str) -> tuple[str, str]:
    """Return scheme and host with port, without the userinfo, in lower case.

    Asked for by several links of each request, so it cuts instead of parsing, and remembers.
    """
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    return scheme.lower(), host.rpartition("@")[2].lower()


def without_userinfo(url: str) -> str:
    """Return an address that a site wrote without the user and password in it.

    They would be sent as a secret of ours, and be shown wherever the address is.
    """
    return _USERINFO.sub(r"\1", url.translate(_DROPPED)) if "@" in url else url


def without_userinfo_in(headers: CIMultiDictProxy[str]) -> CIMultiDictProxy[str]:
    """Return the headers of an answer, a redirect's target without user and password."""
    if "@" not in headers.get("location", ""):
        return headers
    cleaned = CIMultiDict(headers)
    cleaned["Location"] = without_userinfo(headers["location"])
    return CIMultiDictProxy(cleaned)


def with_query(url: str, params: Mapping[str, str | int] | None) -> str:
    """Return the address with these parameters added to its query."""
    if not params:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(params)}"
