"""Coalescing middleware: send identical requests once, in flight and, if shared, in a whole run."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from longline.core.errors import FetchError
from longline.core.model import Usage
from longline.http.messages import FIRST_ERROR, Middleware, Page, Request

_METHODS = frozenset({"GET", "HEAD"})
_KEPT_BYTES = 64_000_000
_PAGE_BYTES = 2_000  # approximate size of a page without its body

_Result = Page | Exception | None
"""The result of a request; None when it was cancelled."""


class CoalescingMiddleware(Middleware):
    """Of identical requests in flight one is sent; the others receive its page or its error.

    When the one that was sent is cancelled, one of the others is sent instead. A shared request
    receives the page that the run already has: successful ones are kept, up to `kept_bytes`.
    """

    def __init__(self, inner: Middleware, *, kept_bytes: int = _KEPT_BYTES) -> None:
        self._inner = inner
        self._in_flight: dict[Hashable, list[asyncio.Future[_Result]]] = {}
        self._kept = _KeptPages(kept_bytes)

    async def __call__(self, request: Request, usage: Usage) -> Page:
        is_plain = request.body is None and request.sink is None
        if not is_plain or request.method not in _METHODS:
            return await self._inner(request, usage)
        key = (
            request.method,
            request.url,
            request.timeout,
            request.is_rendered,
            request.enough,
            request.clicks,
            request.captures,
            tuple(request.headers.items()),
            tuple(request.hidden.items()),
            # Each session receives its own cookies; a shared request belongs to none.
            None if request.is_shared else request.session,
        )
        if request.is_shared and (kept := self._kept.get(key)):
            return _copy_page(kept, usage)
        page = await self._join(key, request, usage)
        if request.is_shared and page.status < FIRST_ERROR:
            self._kept.add(key, page)
        return page

    async def _send_first(self, key: Hashable, request: Request, usage: Usage) -> Page:
        waiters = self._in_flight[key] = []
        result: _Result = None
        try:
            result = page = await self._inner(request, usage)
        except Exception as error:
            result = error
            raise
        finally:
            del self._in_flight[key]
            for waiter in waiters:
                if not waiter.done():  # else it was cancelled
                    waiter.set_result(result)
        return page

    async def _join(self, key: Hashable, request: Request, usage: Usage) -> Page:
        while (waiters := self._in_flight.get(key)) is not None:
            waiter: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
            waiters.append(waiter)
            with usage.waiting:
                result = await waiter
            if isinstance(result, Page):
                return _copy_page(result, usage)
            if result is not None:
                usage.joined += 1
                if not isinstance(result, FetchError):
                    raise result  # not every error can be copied
                # Two tasks that raise the same error would mix their traces.
                raise copy.copy(result) from result
        return await self._send_first(key, request, usage)


class _KeptPages:
    """Pages by request, up to a size; the least recently used are dropped first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._pages: OrderedDict[Hashable, Page] = OrderedDict()

    def get(self, key: Hashable) -> Page | None:
        if (page := self._pages.get(key)) is not None:
            self._pages.move_to_end(key)
        return page

    def add(self, key: Hashable, page: Page) -> None:
        if key in self._pages or _size_of_page(page) > self._most_bytes:
            return
        # A copy without the parsed tree, which is many times as large as the text.
        self._pages[key] = replace(page)
        self._bytes += _size_of_page(page)
        while self._bytes > self._most_bytes:
            _key, oldest = self._pages.popitem(last=False)
            self._bytes -= _size_of_page(oldest)


def _size_of_page(page: Page) -> int:
    return len(page.body) + _PAGE_BYTES


def _copy_page(page: Page, usage: Usage) -> Page:
    usage.joined += 1
    usage.status = page.status
    # Each caller has its own page: changes of its tree are not seen by others.
    return replace(page)
