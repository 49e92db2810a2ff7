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
        # A rendered page, or the beginning of a body, is not the response of the site.
        if not self._is_usable or request.is_rendered or request.enough is not None:
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
        page = None
        if entry is not None and may_reuse(entry, asked.control, self._clock.now()):
            page = self._reuse(entry, usage)
        state = "hit" if page is not None else "stale" if entry is not None else "miss"
        _LOG.debug("cache %s: %s", state, request.url)
        if page is not None:
            return page
        if entry is None:
            return await self._fetch(request, asked, usage)
        return await self._validate(request, asked, entry, usage)

    async def _fetch(self, request: Request, asked: CacheRequest, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        self._store(request, asked, page, usage)
        return page

    async def _validate(
        self, request: Request, asked: CacheRequest, entry: CacheEntry, usage: Usage
    ) -> Page:
        """Validate the stored response; reuse it when the site fails, if allowed."""
        conditional = request
        for name, value in conditions(entry).items():
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
            stored = self._read(renewed, usage)
            if stored is None:  # evicted during validation
                return await self._fetch(request, asked, usage)
            self._try_cache(lambda: self._cache.put(renewed, None), usage)
            usage.revalidated += 1
            usage.status = stored.status
            return replace(stored, seconds=page.seconds)
        if page.status < _FIRST_SERVER_ERROR:
            variant = self._store(request, asked, page, usage)
            if variant != entry.variant:
                self._try_cache(lambda: self._cache.drop(entry.url, entry), usage)
        return page

    def _store(
        self, request: Request, asked: CacheRequest, page: Page, usage: Usage
    ) -> tuple[str, Variant] | None:
        """Store a response if that is allowed and useful; return the variant that it is."""
        entry = entry_of(request, asked, page, self._clock.now())
        if entry is None:
            return None
        self._try_cache(lambda: self._cache.put(entry, page.body), usage)
        return entry.variant

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
        page = self._read(entry, usage)
        if page is not None:
            usage.cached += 1
            usage.status = page.status
        return page

    def _read(self, entry: CacheEntry, usage: Usage) -> Page | None:
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
                self._try_cache(partial(self._cache.drop, url), usage)
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
        (?P<argument>=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,"]*)))?
        (?P<rest>[^,]*)(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives of a Cache-Control header by lower-case name; None has no argument."""

    arguments: Mapping[str, tuple[str | None, ...]]

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    def is_bare(self, name: str) -> bool:
        """Return whether the directive is present without a list of fields."""
        return None in self.arguments.get(name, ())

    def seconds(self, name: str) -> float | None:
        """Return the seconds of a directive; None when it is not present.

        An invalid number is 0, the safe reading, and of several the lowest counts.
        """
        found = self.arguments.get(name)
        if found is None:
            return None
        return min(parse_delta_seconds(text or "") or 0.0 for text in found)

    def fields(self, name: str) -> set[str]:
        """Return the header names that a directive lists, in lower case."""
        lists = (text for text in self.arguments.get(name, ()) if text is not None)
        return {field.strip().lower() for text in lists for field in text.split(",")}


@lru_cache(maxsize=1024)  # the responses of a site repeat it
def parse_directives(header: str) -> Directives:
    """Parse a Cache-Control header; several lines must be joined by commas."""
    arguments: dict[str, tuple[str | None, ...]] = {}
    for match in _DIRECTIVE.finditer(header):
        name = match["name"].lower()
        arguments[name] = (*arguments.get(name, ()), _argument(match))
    return Directives(arguments)


def parse_delta_seconds(text: str) -> float | None:
    """Return a number of seconds as HTTP writes it: digits only."""
    if not (text.isascii() and text.isdigit()):
        return None
    return float(text) if len(text) < 20 else inf  # noqa: PLR2004  # beyond any duration


def _argument(match: re.Match[str]) -> str | None:
    if match["argument"] is None:
        rest = match["rest"].strip()
        # "max-age =3600" is not the directive max-age without an argument.
        return rest if rest.startswith("=") else None
    if match["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", match["quoted"])
    return match["plain"].rstrip() + match["rest"].strip()


# ---------------- Vary

_PREFERENCES = frozenset({"accept", "accept-charset", "accept-encoding", "accept-language"})


def variant_of(vary: str, headers: Mapping[str, str]) -> Variant | None:
    """Return what a response depends on; None when it depends on more than headers (`*`).

    Args:
        vary: the Vary header, with all its lines.
        headers: those of the request, by lower-case name.
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
_NO_DIRECTIVES = Directives({})


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """A request as the cache sees it; headers by lower-case name."""

    headers: Mapping[str, str]
    owner: str = ""
    control: Directives = _NO_DIRECTIVES

    @property
    def is_uncacheable(self) -> bool:
        """Whether only the site can answer it, or it must not be stored."""
        return "no-store" in self.control or not _UNCACHEABLE.isdisjoint(self.headers)


_PLAIN_REQUEST = CacheRequest({})


def read_request(request: Request, mark: str = "") -> CacheRequest:
    """Return a request as the cache sees it; `mark` is added to its secrets."""
    if not (request.headers or request.hidden or mark):
        return _PLAIN_REQUEST
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
    if "no-cache" in asked or declared.is_bare("no-cache"):
        return False
    age, lifetime = age_of(entry, now), lifetime_of(entry)
    if age >= lifetime:
        return False
    max_age = asked.seconds("max-age")
    # RFC 8246: an immutable response is not validated while it is fresh, even on a reload.
    return max_age is None or age <= max_age or "immutable" in declared


def is_usable_on_error(entry: CacheEntry, asked: Directives, now: float) -> bool:
    """Return whether a stored response may replace that of a failing site (stale-if-error)."""
    declared = directives_of(entry)
    if "no-cache" in asked or declared.is_bare("no-cache") or "must-revalidate" in declared:
        return False
    allowed = [one.seconds("stale-if-error") for one in (declared, asked)]
    longest = max((one for one in allowed if one is not None), default=-inf)
    return age_of(entry, now) - lifetime_of(entry) <= longest


# ---------------- Storing

# A private cache may store these statuses without explicit freshness (RFC 9110 §15.1).
_CACHEABLE = frozenset({200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501})
# Parts of a response, and temporary failures: a retry has to reach the site.
_NEVER_STORED = frozenset({206, 304, 408, 425, 429})
_UNDERSTOOD = frozenset(
    {200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414}
)
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
    has_control, has_expires = "cache-control" in headers, "expires" in headers
    has_validator = "etag" in headers or "last-modified" in headers
    if not (has_control or has_expires or has_validator):
        return None
    control = joined_header(headers, "cache-control") if has_control else ""
    if not _may_be_stored(page.status, control, has_expires=has_expires):
        return None
    variant = variant_of(joined_header(headers, "vary"), asked.headers) if "vary" in headers else ()
    if variant is None:
        return None
    kept = _storable_headers(headers, control)
    asked_at = now - page.seconds  # waiting for the rate limit is not part of the age
    entry = CacheEntry(
        request.url, asked.owner, variant, page.status, kept, asked_at, now, now, now
    )
    if has_validator:
        return entry
    declared = parse_directives(control)
    is_useful = lifetime_of(entry) > 0 or declared.seconds("stale-if-error")
    return entry if is_useful and not declared.is_bare("no-cache") else None


def conditions(entry: CacheEntry) -> dict[str, str]:
    """Return the headers that validate an entry; none when it has no validator."""
    found = {
        "If-None-Match": entry.headers.get("etag"),
        "If-Modified-Since": entry.headers.get("last-modified"),
    }
    return {name: value for name, value in found.items() if value}


def refreshed(entry: CacheEntry, page: Page, now: float) -> CacheEntry:
    """Return the entry with the headers of a 304 (RFC 9111 §3.2)."""
    control = joined_header(page.headers, "cache-control")
    new = CIMultiDict(_storable_headers(page.headers, control))
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


@lru_cache(maxsize=1024)
def _may_be_stored(status: int, control: str, *, has_expires: bool) -> bool:
    """Return whether a private cache may store a response to GET (RFC 9111 §3)."""
    if not 200 <= status < _FIRST_SERVER_ERROR or status in _NEVER_STORED:  # noqa: PLR2004
        return False
    declared = parse_directives(control)
    if "no-store" in declared or ("must-understand" in declared and status not in _UNDERSTOOD):
        return False
    is_explicit = has_expires or any(name in declared for name in ("public", "private", "max-age"))
    return is_explicit or status in _CACHEABLE


def _storable_headers(headers: Mapping[str, str], control: str) -> CIMultiDictProxy[str]:
    """Return the headers that are not specific to a connection."""
    connection = joined_header(headers, "connection") if "connection" in headers else ""
    kept = CIMultiDict(headers)
    for name in _unstorable_names(tuple(headers), connection, control):
        kept.popall(name, None)
    return CIMultiDictProxy(kept)


@lru_cache(maxsize=1024)  # the responses of a site have the same headers
def _unstorable_names(names: tuple[str, ...], connection: str, control: str) -> tuple[str, ...]:
    gone = _CONNECTION_HEADERS | {name.strip() for name in connection.lower().split(",")}
    gone |= parse_directives(control).fields("no-cache")
    return tuple(name for name in names if name.lower() in gone)
