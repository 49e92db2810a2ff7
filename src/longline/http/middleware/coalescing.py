"""The link that makes identical requests once: those in flight, and shared ones in a whole run."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from longline.core.errors import FetchError
from longline.core.model import Usage
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.middleware.responses import FIRST_BAD

_JOINABLE = frozenset({"GET", "HEAD"})
_KEPT_BYTES = 64_000_000
_PAGE_BYTES = 2_000  # about what a page takes beside its body

_Outcome = Page | Exception | None
"""What became of a request; None when it was given up before its end."""


class CoalescingMiddleware(Middleware):
    """Of identical requests in flight one goes, and the others are given its answer or its error.

    When the one that went is cancelled, one of those who wait goes instead. A shared request is
    given the answer that a run already has: good ones are kept, the latest `kept_bytes` of them.
    """

    def __init__(self, inner: Middleware, *, kept_bytes: int = _KEPT_BYTES) -> None:
        self._inner = inner
        self._flights: dict[Hashable, list[asyncio.Future[_Outcome]]] = {}
        self._kept = _Kept(kept_bytes)

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if request.body is not None or request.method not in _JOINABLE:
            return await self._inner(request, usage)
        key = _key(request)
        if request.is_shared:
            return await self._once(key, request, usage)
        if key in self._flights:
            return await self._join(key, request, usage)
        return await self._go(key, request, usage)

    async def _once(self, key: Hashable, request: Request, usage: Usage) -> Page:
        if page := self._kept.get(key):
            return _given(page, usage)
        page = await self._join(key, request, usage)
        if page.status < FIRST_BAD:
            self._kept.add(key, page)
        return page

    async def _go(self, key: Hashable, request: Request, usage: Usage) -> Page:
        waiting = self._flights[key] = []
        outcome: _Outcome = None
        try:
            outcome = page = await self._inner(request, usage)
        except Exception as error:
            outcome = error
            raise
        finally:
            del self._flights[key]
            for one in waiting:
                if not one.done():  # else it was cancelled
                    one.set_result(outcome)
        return page

    async def _join(self, key: Hashable, request: Request, usage: Usage) -> Page:
        while (waiting := self._flights.get(key)) is not None:
            landing: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
            waiting.append(landing)
            with usage.waiting:
                outcome = await landing
            if isinstance(outcome, Page):
                return _given(outcome, usage)
            if outcome is not None:
                usage.joined += 1
                raise _again(outcome)
        return await self._go(key, request, usage)


class _Kept:
    """Answers by request, as many as fit; those asked for longest ago go first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._pages: OrderedDict[Hashable, Page] = OrderedDict()

    def get(self, key: Hashable) -> Page | None:
        if (page := self._pages.get(key)) is not None:
            self._pages.move_to_end(key)
        return page

    def add(self, key: Hashable, page: Page) -> None:
        if key in self._pages or _weight(page) > self._most_bytes:
            return
        # Without what a caller may have made of it: a tree is many times its text.
        self._pages[key] = replace(page)
        self._bytes += _weight(page)
        while self._bytes > self._most_bytes:
            _key, oldest = self._pages.popitem(last=False)
            self._bytes -= _weight(oldest)


def _weight(page: Page) -> int:
    return len(page.body) + _PAGE_BYTES


def _key(request: Request) -> Hashable:
    return (
        request.method,
        request.url,
        request.timeout,
        request.is_rendered,
        request.enough,
        request.clicks,
        tuple(request.headers.items()),
        tuple(request.hidden.items()),
    )


def _given(page: Page, usage: Usage) -> Page:
    usage.joined += 1
    usage.status = page.status
    # A page of one's own: what one caller does to its tree is not seen by another.
    return replace(page)


def _again(error: Exception) -> Exception:
    """Return an error for one more task to raise: two that raise the same one mix their traces."""
    if not isinstance(error, FetchError):
        return error  # not every stranger can be copied
    another = copy.copy(error)
    another.__cause__ = error
    return another
