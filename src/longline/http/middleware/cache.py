"""Cache middleware: reuse stored responses as RFC 9111 allows.

It is outside breaker and rate limit: a stored response costs no slot and no request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import urldefrag, urljoin

from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.clock import Clock
from longline.core.errors import BudgetSpent, FetchError, LonglineError, StoreError
from longline.core.model import Usage
from longline.http.cache.policy import (
    FIRST_SERVER_ERROR,
    CacheEntry,
    CacheRequest,
    Reuse,
    age_of,
    conditions,
    decide_reuse,
    describes,
    entry_of,
    is_not_modified,
    is_usable_on_error,
    read_request,
    refreshed,
    select_entry,
)
from longline.http.cache.storage import HttpCache
from longline.http.headers import Redacted, with_header
from longline.http.messages import FIRST_ERROR, Page, Request, origin_of
from longline.http.middleware.base import Middleware

_LOG = logging.getLogger(__name__)

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OK = 200
_NOT_MODIFIED = 304
_NOT_CACHED = 504
_SITE_FAILURES = frozenset({500, 502, 503, 504})

T = TypeVar("T")


class _Lookup(NamedTuple):
    """A request, as the cache sees it, and its usage."""

    request: Request
    asked: CacheRequest
    usage: Usage


class CacheMiddleware(Middleware):
    """Reuses responses of a private cache; close it before the middlewares inside it.

    A cache that fails never fails a request: an event is recorded once, and the job goes on
    without the cache.
    """

    def __init__(
        self,
        inner: Middleware,
        cache: HttpCache,
        clock: Clock,
        *,
        heuristic: bool = False,
        mark: str = "",
    ) -> None:
        """Wrap `inner`.

        Args:
            inner: the next middleware.
            cache: where responses are stored.
            clock: the clock.
            heuristic: whether to estimate a lifetime for responses that declare none.
            mark: our identity at the site; responses are not shared between identities.
        """
        self._inner = inner
        self._cache = cache
        self._clock = clock
        self._heuristic = heuristic
        self._mark = mark
        self._is_usable = True
        self._refreshing: dict[tuple[str, object], asyncio.Task[None]] = {}
        self._background_usage = Usage()  # of refreshes; charged to the next request

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if not self._is_usable:
            return await self._inner(request, usage)
        if self._background_usage.requests or self._background_usage.events:
            _charge(self._background_usage.take(), usage)
        # A rendered page, or the beginning of a body, is not the response of the site.
        if request.is_rendered or request.enough is not None:
            return await self._inner(request, usage)
        if request.method not in ("GET", "HEAD") or request.body is not None:
            return await self._send_uncached(request, usage)
        asked = read_request(request, self._mark)
        if asked.directives.is_no_store or asked.is_uncacheable:
            return await self._inner(request, usage)
        return await self._look_up(_Lookup(_without_fragment(request), asked, usage))

    async def close(self) -> None:
        """Cancel refreshes in the background."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, lookup: _Lookup) -> Page:
        request, asked = lookup.request, lookup.asked
        found = self._try_cache(lambda: self._cache.find(request.url), lookup.usage)
        entry = select_entry(found, asked.owner, asked.headers) if found else None
        page = None if entry is None else self._from_cache(lookup, entry)
        state = "hit" if page is not None else "stale" if entry is not None else "miss"
        _LOG.debug("cache %s: %s", state, request.url)
        if page is not None:
            return page
        if asked.directives.is_only_if_cached:
            return Page(request.url, _NOT_CACHED, {}, b"")
        if entry is None:
            return await self._fetch(lookup)
        return await self._validate(lookup, entry)

    def _from_cache(self, lookup: _Lookup, entry: CacheEntry) -> Page | None:
        """Return the stored response if it may be reused without validation."""
        reuse = decide_reuse(
            entry, lookup.asked.directives, self._clock.now(), heuristic=self._heuristic
        )
        page = None if reuse is Reuse.VALIDATE else self._reuse(lookup, entry)
        if page is not None and reuse is Reuse.REUSE_AND_REFRESH:
            self._refresh(lookup, entry)
        return page

    async def _fetch(self, lookup: _Lookup) -> Page:
        page = await self._inner(lookup.request, lookup.usage)
        self._keep(lookup, page)
        return page

    async def _validate(self, lookup: _Lookup, entry: CacheEntry) -> Page:
        """Validate the stored response; reuse it when the site fails, if allowed."""
        request, asked = lookup.request, lookup.asked
        # The caller's own condition takes precedence: the response is about what the caller has.
        added = {} if asked.is_conditional or request.method == "HEAD" else conditions(entry)
        for name, value in added.items():
            request = with_header(request, name, value)
        try:
            page = await self._inner(request, lookup.usage)
        except BudgetSpent:  # not a failure of the site
            raise
        except FetchError as error:
            fallback = self._fall_back(lookup, entry, str(error))
            if fallback is None:
                raise
            return fallback
        if page.status in _SITE_FAILURES:
            return self._fall_back(lookup, entry, f"answered {page.status}") or page
        if page.status == _NOT_MODIFIED and added:
            return await self._confirm(lookup, entry, page)
        self._update(lookup, entry, page)
        return page

    async def _confirm(self, lookup: _Lookup, entry: CacheEntry, page: Page) -> Page:
        usage = lookup.usage
        renewed = refreshed(entry, page, self._clock.now())
        answer = self._page(lookup, renewed)
        if answer is None:  # evicted during validation
            return await self._fetch(lookup)
        self._try_cache(lambda: self._cache.put(renewed, None), usage)
        usage.revalidated += 1
        usage.status = answer.status
        return replace(answer, seconds=page.seconds)

    def _update(self, lookup: _Lookup, entry: CacheEntry, page: Page) -> None:
        """Update the stored response from one that is not a 304 to our condition."""
        if page.status >= FIRST_SERVER_ERROR:
            return
        if page.status == _NOT_MODIFIED:
            is_about_it = is_not_modified(entry, lookup.asked)
        else:
            is_head = lookup.request.method == "HEAD"
            is_about_it = is_head and page.status == _OK and describes(page, entry)
        if is_about_it:
            renewed = refreshed(entry, page, self._clock.now())
            self._try_cache(lambda: self._cache.put(renewed, None), lookup.usage)
        elif page.status != _NOT_MODIFIED and not self._keep(lookup, page, at=entry):
            self._try_cache(lambda: self._cache.drop(entry.url, entry), lookup.usage)

    def _keep(self, lookup: _Lookup, page: Page, at: CacheEntry | None = None) -> bool:
        """Store a response if that is allowed and useful; return whether it replaced `at`."""
        request, asked = lookup.request, lookup.asked
        if request.method != "GET":
            return False
        entry = entry_of(request, asked, page, self._clock.now(), heuristic=self._heuristic)
        if entry is None:
            return False
        self._try_cache(lambda: self._cache.put(entry, page.body), lookup.usage)
        return at is not None and at.variant == entry.variant

    def _fall_back(self, lookup: _Lookup, entry: CacheEntry, reason: str) -> Page | None:
        now = self._clock.now()
        if not is_usable_on_error(entry, lookup.asked.directives, now, heuristic=self._heuristic):
            return None
        page = self._reuse(lookup, entry)
        if page is not None:
            url = lookup.request.url
            lookup.usage.add_event("cache.stale_if_error", url=url, reason=reason)
        return page

    def _reuse(self, lookup: _Lookup, entry: CacheEntry) -> Page | None:
        """Return the stored response; None when its body was just evicted."""
        page = self._page(lookup, entry)
        if page is None:
            return None
        if lookup.asked.is_conditional and is_not_modified(entry, lookup.asked):
            page = replace(page, status=_NOT_MODIFIED, body=b"")
        lookup.usage.cached += 1
        lookup.usage.status = page.status
        return page

    def _page(self, lookup: _Lookup, entry: CacheEntry) -> Page | None:
        now = self._clock.now()
        body = self._try_cache(lambda: self._cache.read(entry, now), lookup.usage)
        if body is None:
            return None
        headers = CIMultiDict(entry.headers)
        headers["Age"] = str(int(age_of(entry, now)))
        body = b"" if lookup.request.method == "HEAD" else body
        url, status = lookup.request.url, entry.status
        return Page(url, status, CIMultiDictProxy(headers), body, is_cached=True)

    async def _send_uncached(self, request: Request, usage: Usage) -> Page:
        """Send a request that is never stored, and remove the responses that it invalidates."""
        page = await self._inner(request, usage)
        if request.method not in _SAFE and page.status < FIRST_ERROR:
            for url in _invalidated_urls(request, page):
                self._try_cache(partial(self._cache.drop, url), usage)
        return page

    def _refresh(self, lookup: _Lookup, entry: CacheEntry) -> None:
        """Validate in the background, one task for each entry."""
        name = (entry.url, entry.variant)
        if name not in self._refreshing:
            request = _unconditional(lookup.request)
            plain = _Lookup(request, read_request(request, self._mark), self._background_usage)
            task = asyncio.create_task(self._refresh_entry(plain, entry))
            self._refreshing[name] = task
            task.add_done_callback(lambda _: self._refreshing.pop(name, None))

    async def _refresh_entry(self, lookup: _Lookup, entry: CacheEntry) -> None:
        try:
            await self._validate(lookup, entry)
        except LonglineError as error:
            url = lookup.request.url
            lookup.usage.add_event("cache.refresh_failed", url=url, reason=str(error))

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


def _unconditional(request: Request) -> Request:
    """Return the request as a GET without the caller's own condition."""
    gone = ("if-none-match", "if-modified-since")
    kept = {name: value for name, value in request.headers.items() if name.lower() not in gone}
    return replace(request, headers=Redacted(kept), method="GET")


def _without_fragment(request: Request) -> Request:
    if "#" not in request.url:
        return request
    return replace(request, url=urldefrag(request.url).url)


def _invalidated_urls(request: Request, page: Page) -> set[str]:
    """Return the URLs of the same site that an unsafe request invalidates."""
    locations = (page.headers.get(name) for name in ("location", "content-location"))
    others = {urldefrag(urljoin(request.url, target)).url for target in locations if target}
    same = {url for url in others if origin_of(url) == origin_of(request.url)}
    return {urldefrag(request.url).url, *same}


def _charge(background: Usage, usage: Usage) -> None:
    for name, value in background.as_counts().items():
        setattr(usage, name, getattr(usage, name) + value)
    usage.failures += background.failures
    usage.events += background.events
