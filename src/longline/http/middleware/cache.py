"""The link that answers from the cache what the site allows to be answered from it (RFC 9111).

It stands outside the breaker and the pace: a cached answer costs no token and no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import urldefrag, urljoin

from multidict import CIMultiDict, CIMultiDictProxy

from longline.core.clock import Clock
from longline.core.errors import FetchError, LonglineError, StoreError
from longline.core.model import Usage
from longline.http.cache.base import Entry, HttpCache
from longline.http.cache.policy import (
    Asked,
    Use,
    age_of,
    holds,
    holds_in_need,
    judge,
    read_request,
    select,
)
from longline.http.cache.storing import (
    FIRST_SERVER_ERROR,
    conditions,
    describes,
    entry_of,
    freshened,
)
from longline.http.headers import Redacted, with_header
from longline.http.messages import Page, Request, origin_of
from longline.http.middleware.base import Middleware
from longline.limits.errors import BudgetSpent

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OK = 200
_NOT_MODIFIED = 304
_NOT_CACHED = 504
_FIRST_ERROR = 400
_SITE_FAILS = frozenset({500, 502, 503, 504})

T = TypeVar("T")


class _Question(NamedTuple):
    """A request, what it says about caching, and who pays for it."""

    request: Request
    asked: Asked
    usage: Usage


class CacheMiddleware(Middleware):
    """Answers from a private cache; close it before the links it stands on.

    A cache that cannot be used never fails a request: the job is told once, and goes on without.
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
        """Stand before `inner`.

        Args:
            inner: the next link.
            cache: where answers are kept.
            clock: what ages are counted by.
            heuristic: whether to guess a lifetime for answers that do not tell one.
            mark: whom we say we are; answers given to one are kept from the others.
        """
        self._inner = inner
        self._cache = cache
        self._clock = clock
        self._heuristic = heuristic
        self._mark = mark
        self._is_usable = True
        self._refreshing: dict[tuple[str, object], asyncio.Task[None]] = {}
        self._owed = Usage()  # what was done in the background, until somebody comes to pay

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if not self._is_usable:
            return await self._inner(request, usage)
        if self._owed.requests or self._owed.events:
            _pay(self._owed.take(), usage)
        # What a browser made of a page, or the beginning of a body, is not what the site sent.
        if request.is_rendered or request.enough is not None:
            return await self._inner(request, usage)
        if request.method not in ("GET", "HEAD") or request.body is not None:
            return await self._pass_on(request, usage)
        asked = read_request(request, self._mark)
        if asked.wishes.is_no_store or asked.is_beyond:
            return await self._inner(request, usage)
        return await self._look_up(_Question(_without_fragment(request), asked, usage))

    async def close(self) -> None:
        """End what is still being refreshed in the background."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_up(self, question: _Question) -> Page:
        request, asked = question.request, question.asked
        found = self._attempt(lambda: self._cache.find(request.url), question.usage)
        entry = select(found, asked.owner, asked.headers) if found else None
        page = None if entry is None else self._from_cache(question, entry)
        if page is not None:
            return page
        if asked.wishes.is_only_if_cached:
            return Page(request.url, _NOT_CACHED, {}, b"")
        if entry is None:
            return await self._ask_plainly(question)
        return await self._validate(question, entry)

    def _from_cache(self, question: _Question, entry: Entry) -> Page | None:
        """Return the stored answer if it may be used without asking."""
        use = judge(entry, question.asked.wishes, self._clock.now(), heuristic=self._heuristic)
        page = None if use is Use.VALIDATE else self._answer(question, entry)
        if page is not None and use is Use.ANSWER_AND_REFRESH:
            self._refresh(question, entry)
        return page

    async def _ask_plainly(self, question: _Question) -> Page:
        page = await self._inner(question.request, question.usage)
        self._keep(question, page)
        return page

    async def _validate(self, question: _Question, entry: Entry) -> Page:
        """Ask the site whether the stored answer still holds; stand in for it when it fails."""
        request, asked = question.request, question.asked
        # The caller's own condition goes first: its answer is about what the caller keeps.
        added = {} if asked.is_conditional or request.method == "HEAD" else conditions(entry)
        for name, value in added.items():
            request = with_header(request, name, value)
        try:
            page = await self._inner(request, question.usage)
        except BudgetSpent:  # not a failure of the site
            raise
        except FetchError as error:
            standing_in = self._stand_in(question, entry, str(error))
            if standing_in is None:
                raise
            return standing_in
        if page.status in _SITE_FAILS:
            return self._stand_in(question, entry, f"answered {page.status}") or page
        if page.status == _NOT_MODIFIED and added:
            return await self._still_holds(question, entry, page)
        self._learn(question, entry, page)
        return page

    async def _still_holds(self, question: _Question, entry: Entry, page: Page) -> Page:
        usage = question.usage
        renewed = freshened(entry, page, self._clock.now())
        answer = self._page(question, renewed)
        if answer is None:  # given up while the site was asked
            return await self._ask_plainly(question)
        self._attempt(lambda: self._cache.put(renewed, None), usage)
        usage.revalidated += 1
        usage.status = answer.status
        return replace(answer, seconds=page.seconds)

    def _learn(self, question: _Question, entry: Entry, page: Page) -> None:
        """Take up what an answer that is not a 304 to us says of the stored one."""
        if page.status >= FIRST_SERVER_ERROR:
            return
        if page.status == _NOT_MODIFIED:
            is_about_it = holds(entry, question.asked)
        else:
            is_head = question.request.method == "HEAD"
            is_about_it = is_head and page.status == _OK and describes(page, entry)
        if is_about_it:
            renewed = freshened(entry, page, self._clock.now())
            self._attempt(lambda: self._cache.put(renewed, None), question.usage)
        elif page.status != _NOT_MODIFIED and not self._keep(question, page, at=entry):
            self._attempt(lambda: self._cache.drop(entry.url, entry), question.usage)

    def _keep(self, question: _Question, page: Page, at: Entry | None = None) -> bool:
        """Store an answer if that is allowed and of use; say whether it took the place of `at`."""
        request, asked = question.request, question.asked
        if request.method != "GET":
            return False
        entry = entry_of(request, asked, page, self._clock.now(), heuristic=self._heuristic)
        if entry is None:
            return False
        self._attempt(lambda: self._cache.put(entry, page.body), question.usage)
        return at is not None and at.place == entry.place

    def _stand_in(self, question: _Question, entry: Entry, reason: str) -> Page | None:
        now = self._clock.now()
        if not holds_in_need(entry, question.asked.wishes, now, heuristic=self._heuristic):
            return None
        page = self._answer(question, entry)
        if page is not None:
            url = question.request.url
            question.usage.add_event("cache.stale_if_error", url=url, reason=reason)
        return page

    def _answer(self, question: _Question, entry: Entry) -> Page | None:
        """Return the stored answer, which costs nothing; None when its body has just gone."""
        page = self._page(question, entry)
        if page is None:
            return None
        if question.asked.is_conditional and holds(entry, question.asked):
            page = replace(page, status=_NOT_MODIFIED, body=b"")
        question.usage.cached += 1
        question.usage.status = page.status
        return page

    def _page(self, question: _Question, entry: Entry) -> Page | None:
        now = self._clock.now()
        body = self._attempt(lambda: self._cache.read(entry, now), question.usage)
        if body is None:
            return None
        headers = CIMultiDict(entry.headers)
        headers["Age"] = str(int(age_of(entry, now)))
        body = b"" if question.request.method == "HEAD" else body
        url, status = question.request.url, entry.status
        return Page(url, status, CIMultiDictProxy(headers), body, is_cached=True)

    async def _pass_on(self, request: Request, usage: Usage) -> Page:
        """Send what is never stored; what it changes at the site is forgotten here."""
        page = await self._inner(request, usage)
        if request.method not in _SAFE and page.status < _FIRST_ERROR:
            for url in _changed_by(request, page):
                self._attempt(partial(self._cache.drop, url), usage)
        return page

    def _refresh(self, question: _Question, entry: Entry) -> None:
        """Validate in the background, once at a time."""
        name = (entry.url, entry.place)
        if name not in self._refreshing:
            request = _unconditional(question.request)
            plain = _Question(request, read_request(request, self._mark), self._owed)
            task = asyncio.create_task(self._refreshed(plain, entry))
            self._refreshing[name] = task
            task.add_done_callback(lambda _: self._refreshing.pop(name, None))

    async def _refreshed(self, question: _Question, entry: Entry) -> None:
        try:
            await self._validate(question, entry)
        except LonglineError as error:
            url = question.request.url
            question.usage.add_event("cache.refresh_failed", url=url, reason=str(error))

    def _attempt(self, work: Callable[[], T], usage: Usage) -> T | None:
        """Do something with the cache, or without it once it has failed."""
        if not self._is_usable:
            return None
        try:
            return work()
        except StoreError as error:
            self._is_usable = False
            usage.add_event("cache.unavailable", reason=str(error))
            return None


def _unconditional(request: Request) -> Request:
    """Return the plain question behind a caller's own condition, or behind a HEAD."""
    gone = ("if-none-match", "if-modified-since")
    kept = {name: value for name, value in request.headers.items() if name.lower() not in gone}
    return replace(request, headers=Redacted(kept), method="GET")


def _without_fragment(request: Request) -> Request:
    if "#" not in request.url:
        return request
    return replace(request, url=urldefrag(request.url).url)


def _changed_by(request: Request, page: Page) -> set[str]:
    """Return the addresses of the same site that an unsafe request has made outdated."""
    told = (page.headers.get(name) for name in ("location", "content-location"))
    others = {urldefrag(urljoin(request.url, target)).url for target in told if target}
    same = {url for url in others if origin_of(url) == origin_of(request.url)}
    return {urldefrag(request.url).url, *same}


def _pay(owed: Usage, usage: Usage) -> None:
    for name, value in owed.as_counts().items():
        setattr(usage, name, getattr(usage, name) + value)
    usage.failures += owed.failures
    usage.events += owed.events
