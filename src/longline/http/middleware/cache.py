"""Cache middleware: reuse stored responses as RFC 9111 allows.

It is outside breaker and rate limit: a stored response costs no slot and no request. Only GET is
cached, and a request with a range or a condition of its own is passed on. A stale response is
validated first, and a lifetime that a site does not declare is not estimated.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from typing import TypeVar
from urllib.parse import urldefrag, urljoin

from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.clock import Clock
from longline.core.errors import BudgetSpent, FetchError, StoreError
from longline.core.http_headers import parse_http_date
from longline.core.model import Usage
from longline.http.cache import CacheEntry, HttpCache, Variant, digest
from longline.http.messages import (
    FIRST_ERROR,
    Middleware,
    Page,
    Request,
    joined_header,
    origin_of,
    with_header,
)

_LOG = logging.getLogger(__name__)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_FIRST_SERVER_ERROR = 500
_NOT_MODIFIED = 304
_VALIDATORS = {"If-None-Match": "etag", "If-Modified-Since": "last-modified"}
_SITE_FAILURES = frozenset({500, 502, 503, 504})

T = TypeVar("T")


class CacheMiddleware(Middleware):
    """Reuses responses of a private cache.

    A cache that fails never fails a request: an event is recorded once, and the job goes on
    without the cache. `mark` is our identity at the site: responses are not shared between
    identities.
    """

    def __init__(
        self, inner: Middleware, cache: HttpCache, clock: Clock, *, mark: str = ""
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._clock = clock
        self._mark = mark
        self._is_usable = True

    async def __call__(self, request: Request, usage: Usage) -> Page:
        # A rendered page, or the beginning of a body, is not the response of the site; files are
        # stored elsewhere.
        is_whole = request.enough is None and request.sink is None
        if not self._is_usable or request.is_rendered or not is_whole:
            return await self._inner(request, usage)
        if request.method != "GET" or request.body is not None:
            return await self._send_uncached(request, usage)
        asked = read_request(request, self._mark)
        if asked.is_uncacheable:
            return await self._inner(request, usage)
        if "#" in request.url:
            request = replace(request, url=urldefrag(request.url).url)
        found = self._try_cache(lambda: self._cache.find(request.url), usage)
        entry = select_entry(found, asked.owner, asked.headers) if found else None
        if entry is None:
            _LOG.debug("cache miss: %s", request.url)
            return await self._fetch(request, asked, usage)
        if may_reuse(entry, asked.control, self._clock.now()):
            page = self._reuse(entry, usage)
            if page is not None:
                _LOG.debug("cache hit: %s", request.url)
                return page
        _LOG.debug("cache stale: %s", request.url)
        return await self._validate_entry(request, asked, entry, usage)

    async def _fetch(self, request: Request, asked: CacheRequest, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        self._store(request, asked, page, usage)
        return page

    async def _validate_entry(
        self, request: Request, asked: CacheRequest, entry: CacheEntry, usage: Usage
    ) -> Page:
        """Validate the stored response; reuse it when the site fails, if allowed."""
        conditional = request
        for name, validator in _VALIDATORS.items():
            if value := entry.headers.get(validator):
                conditional = with_header(conditional, name, value)
        try:
            page = await self._inner(conditional, usage)
        except BudgetSpent:  # not a failure of the site
            raise
        except FetchError as error:
            fallback = self._fall_back(entry, asked, str(error), usage)
            if fallback is None:
                raise
            return fallback
        if page.status in _SITE_FAILURES:
            return self._fall_back(entry, asked, f"status {page.status}", usage) or page
        if page.status == _NOT_MODIFIED and conditional is not request:
            renewed = refreshed(entry, page, self._clock.now())
            stored = self._read_stored(renewed, usage)
            if stored is None:  # evicted during validation
                return await self._fetch(request, asked, usage)
            self._try_cache(lambda: self._cache.put(renewed, None), usage)
            usage.revalidated += 1
            usage.status = stored.status
            return replace(stored, seconds=page.seconds)
        if page.status < _FIRST_SERVER_ERROR:
            self._try_cache(lambda: self._cache.drop(entry), usage)
            self._store(request, asked, page, usage)
        return page

    def _store(self, request: Request, asked: CacheRequest, page: Page, usage: Usage) -> None:
        """Store a response if that is allowed and useful."""
        entry = entry_of(request, asked, page, self._clock.now())
        if entry is not None:
            self._try_cache(lambda: self._cache.put(entry, page.body), usage)

    def _fall_back(
        self, entry: CacheEntry, asked: CacheRequest, reason: str, usage: Usage
    ) -> Page | None:
        if not is_usable_on_error(entry, asked.control, self._clock.now()):
            return None
        page = self._reuse(entry, usage)
        if page is not None:
            usage.add_event("cache.stale_if_error", url=entry.url, reason=reason)
        return page

    def _reuse(self, entry: CacheEntry, usage: Usage) -> Page | None:
        """Return the stored response; None when its body was just evicted."""
        page = self._read_stored(entry, usage)
        if page is not None:
            usage.cached += 1
            usage.status = page.status
        return page

    def _read_stored(self, entry: CacheEntry, usage: Usage) -> Page | None:
        now = self._clock.now()
        body = self._try_cache(lambda: self._cache.read(entry, now), usage)
        if body is None:
            return None
        headers = CIMultiDict(entry.headers)
        headers["Age"] = str(int(age_of(entry, now)))
        return Page(entry.url, entry.status, CIMultiDictProxy(headers), body, is_cached=True)

    async def _send_uncached(self, request: Request, usage: Usage) -> Page:
        """Send a request that is never stored, and remove the responses that it invalidates."""
        page = await self._inner(request, usage)
        if request.method not in _SAFE and page.status < FIRST_ERROR:
            locations = (page.headers.get(name) for name in ("location", "content-location"))
            others = {urljoin(request.url, target) for target in locations if target}
            same_site = {url for url in others if origin_of(url) == origin_of(request.url)}
            for url in {urldefrag(one).url for one in (request.url, *same_site)}:
                for entry in self._try_cache(partial(self._cache.find, url), usage) or ():
                    self._try_cache(partial(self._cache.drop, entry), usage)
        return page

    def _try_cache(self, work: Callable[[], T], usage: Usage) -> T | None:
        """Call the cache; return None, also for all later calls, when it fails."""
        if not self._is_usable:
            return None
        try:
            return work()
        except StoreError as error:
            self._is_usable = False
            usage.add_event("cache.unavailable", reason=str(error))
            return None


# ---------------- Cache-Control

_DIRECTIVE = re.compile(
    r"""\s*(?P<name>[^\s,="]+)
        (?:=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,"]*)))?
        (?P<rest>[^,]*)(?:,|$)""",
    re.VERBOSE,
)


class Directives(dict[str, str | None]):
    """The directives of a Cache-Control header by lower-case name; None has no argument.

    A `no-cache` that lists header names counts as one without: every use is validated.
    """

    def seconds(self, name: str) -> float | None:
        """Return the seconds of a directive; None when it is not present.

        An invalid number is 0, the safe reading, and of several the lowest counts.
        """
        if name not in self:
            return None
        return parse_delta_seconds(self[name] or "") or 0.0


@lru_cache(maxsize=1024)  # the responses of a site repeat it
def parse_directives(header: str) -> Directives:
    """Parse a Cache-Control header; several lines must be joined by commas."""
    directives = Directives()
    for match in _DIRECTIVE.finditer(header):
        name, value = match["name"].lower(), match["plain"]
        if match["quoted"] is not None:
            value = match["quoted"]
        elif value is not None:
            value = value.rstrip() + match["rest"].strip()
        elif match["rest"].strip().startswith("="):
            value = match["rest"].strip()  # "max-age =3600" has an argument, which is invalid
        if name in directives:
            repeated = (parse_delta_seconds(one or "") or 0.0 for one in (value, directives[name]))
            value = f"{min(repeated):.0f}"
        directives[name] = value
    return directives


def parse_delta_seconds(text: str) -> float | None:
    """Return a number of seconds as HTTP writes it: digits only."""
    if not (text.isascii() and text.isdigit()):
        return None
    return float(text) if len(text) < 20 else inf  # noqa: PLR2004  # beyond any duration


# ---------------- Vary

_PREFERENCES = frozenset({"accept", "accept-charset", "accept-encoding", "accept-language"})


def variant_of(vary: str, headers: Mapping[str, str]) -> Variant | None:
    """Return what a response depends on; None when it depends on more than headers (`*`).

    `vary` is the Vary header, with all its lines; `headers` are those of the request.
    """
    names = sorted({name.strip().lower() for name in vary.split(",")} - {""})
    if "*" in names:
        return None
    return tuple((name, _digest_header(name, headers.get(name))) for name in names)


def select_entry(
    entries: Iterable[CacheEntry], owner: str, headers: Mapping[str, str]
) -> CacheEntry | None:
    """Return the newest stored response that matches; None without one."""
    matching = [
        one
        for one in entries
        if one.owner == owner
        and all(value == _digest_header(name, headers.get(name)) for name, value in one.vary)
    ]
    return max(matching, key=lambda one: one.responded_at, default=None)


def _digest_header(name: str, value: str | None) -> str | None:
    """Return a digest that ignores white space and the order of preferences."""
    if value is None:
        return None
    members = [" ".join(part.split()) for part in value.split(",")]
    if name in _PREFERENCES:  # weights count, not the order
        members = sorted(member.lower().replace(" ", "") for member in members)
    return digest(name, ",".join(members))


# ---------------- Requests

# Responses to requests with one of these are not shared.
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "x-api-key", "x-auth-token"})
_UNCACHEABLE = frozenset(
    {
        *("range", "if-range", "if-match", "if-unmodified-since"),
        *("if-none-match", "if-modified-since"),  # the caller has a response of its own
    }
)


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """A request as the cache sees it; headers by lower-case name."""

    headers: Mapping[str, str]
    owner: str
    control: Directives

    @property
    def is_uncacheable(self) -> bool:
        """Whether only the site can answer it, or it must not be stored."""
        return "no-store" in self.control or not _UNCACHEABLE.isdisjoint(self.headers)


def read_request(request: Request, mark: str = "") -> CacheRequest:
    """Return a request as the cache sees it; `mark` is added to its secrets."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    owner = ""
    if mark or request.hidden or not _CREDENTIALS.isdisjoint(headers):
        secrets = [f"{name}={headers[name]}" for name in sorted(_CREDENTIALS & headers.keys())]
        secrets += [f"?{name}={value}" for name, value in sorted(request.hidden.items())]
        owner = digest(mark, *secrets)
    control = headers.get("cache-control", headers.get("pragma", "").strip().lower())
    return CacheRequest(headers, owner, parse_directives(control))


# ---------------- Freshness


def directives_of(entry: CacheEntry) -> Directives:
    """Return the Cache-Control directives of a stored response."""
    return parse_directives(joined_header(entry.headers, "cache-control"))


def age_of(entry: CacheEntry, now: float) -> float:
    """Return the age of a stored response in seconds (RFC 9111 §4.2.3)."""
    date = parse_http_date(entry.headers.get("date", ""))
    apparent = 0.0 if date is None else max(0.0, entry.responded_at - date)
    declared = parse_delta_seconds(joined_header(entry.headers, "age")) or 0.0
    corrected = declared + entry.responded_at - entry.requested_at
    return max(apparent, corrected) + max(0.0, now - entry.responded_at)


def lifetime_of(entry: CacheEntry) -> float:
    """Return the seconds for which a response is fresh; 0 when it does not say."""
    age = joined_header(entry.headers, "age")
    if age and parse_delta_seconds(age) is None:
        return 0.0  # a proxy counts wrongly: validate
    max_age = directives_of(entry).seconds("max-age")
    if max_age is not None:
        return max_age
    expires = parse_http_date(entry.headers.get("expires", ""))
    if expires is None:
        return 0.0
    made = parse_http_date(entry.headers.get("date", ""))
    return max(0.0, expires - (entry.responded_at if made is None else made))


def may_reuse(entry: CacheEntry, asked: Directives, now: float) -> bool:
    """Return whether a stored response that matches a request is used without validation."""
    declared = directives_of(entry)
    if "no-cache" in asked or "no-cache" in declared:
        return False
    age, max_age = age_of(entry, now), asked.seconds("max-age")
    return age < lifetime_of(entry) and (max_age is None or age <= max_age)


def is_usable_on_error(entry: CacheEntry, asked: Directives, now: float) -> bool:
    """Return whether a stored response may replace that of a failing site (stale-if-error)."""
    declared = directives_of(entry)
    if "no-cache" in asked or not declared.keys().isdisjoint({"no-cache", "must-revalidate"}):
        return False
    allowed = [one.seconds("stale-if-error") for one in (declared, asked)]
    longest = max((one for one in allowed if one is not None), default=-inf)
    return age_of(entry, now) - lifetime_of(entry) <= longest


# ---------------- Storing

# A private cache may store these statuses without explicit freshness (RFC 9110 §15.1).
_CACHEABLE = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})
# Parts of a response, and temporary failures: a retry has to reach the site.
_NEVER_STORED = frozenset({206, 304, 408, 425, 429})
_CONNECTION_HEADERS = frozenset(
    {
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-authenticate", "proxy-authentication-info", "proxy-authorization"),
        "proxy-connection",
    }
)
# They describe the body, which a 304 does not have; so does the tag, which is that of our body.
_BODY_HEADERS = frozenset(
    {"content-encoding", "content-length", "content-md5", "content-range", "etag"}
)


def entry_of(request: Request, asked: CacheRequest, page: Page, now: float) -> CacheEntry | None:
    """Return the entry of a response that has just arrived; None when storing it has no use."""
    headers = page.headers
    has_expires = "expires" in headers
    has_validator = "etag" in headers or "last-modified" in headers
    if not (has_expires or has_validator or "cache-control" in headers):
        return None
    declared = parse_directives(joined_header(headers, "cache-control"))
    # A private cache may store a response to GET (RFC 9111 §3).
    is_explicit = has_expires or not declared.keys().isdisjoint({"public", "private", "max-age"})
    if (
        not 200 <= page.status < _FIRST_SERVER_ERROR  # noqa: PLR2004
        or page.status in _NEVER_STORED
        or "no-store" in declared
        or not (is_explicit or page.status in _CACHEABLE)
    ):
        return None
    variant = variant_of(joined_header(headers, "vary"), asked.headers) if "vary" in headers else ()
    if variant is None:
        return None
    asked_at = now - page.seconds  # waiting for the rate limit is not part of the age
    kept = _storable_headers(headers)
    entry = CacheEntry(
        request.url, asked.owner, variant, page.status, kept, asked_at, now, now, now
    )
    if has_validator:
        return entry
    is_useful = lifetime_of(entry) > 0 or declared.seconds("stale-if-error")
    return entry if is_useful and "no-cache" not in declared else None


def refreshed(entry: CacheEntry, page: Page, now: float) -> CacheEntry:
    """Return the entry with the headers of a 304 (RFC 9111 §3.2)."""
    new = CIMultiDict(_storable_headers(page.headers))
    for name in _BODY_HEADERS:
        new.popall(name, None)
    headers = CIMultiDict(entry.headers)
    for name in {"age", *new}:
        headers.popall(name, None)
    headers.extend(new)
    return replace(
        entry,
        headers=CIMultiDictProxy(headers),
        requested_at=now - page.seconds,
        responded_at=now,
        used_at=now,
    )


def _storable_headers(headers: Mapping[str, str]) -> CIMultiDictProxy[str]:
    """Return the headers that are not specific to a connection."""
    listed = joined_header(headers, "connection").lower().split(",")
    kept = CIMultiDict(headers)
    for name in {*_CONNECTION_HEADERS, *(one.strip() for one in listed)}:
        kept.popall(name, None)
    return CIMultiDictProxy(kept)
