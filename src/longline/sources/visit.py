"""Visit: the context of a layer or of discovery."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import orjson

from longline.core.clock import Clock
from longline.core.model import CUT, WARNING, Item, Note, Usage
from longline.http.messages import Clicks, Page, Request, with_query
from longline.http.middleware.base import Middleware

T = TypeVar("T")


class Visit:
    """One attempt at an item or at discovery: its requests, notes and earlier results."""

    def __init__(
        self,
        send: Middleware,
        clock: Clock,
        *,
        item: Item | None = None,
        cursor: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._send = send
        self._item = item
        self._results_by_name: dict[str, Any] = {}
        self.clock = clock
        self.cursor = cursor
        self.params: Mapping[str, Any] = params or {}
        """Values of `--param`."""
        self.results: dict[str, Mapping[str, Any]] = {}
        """Results of the earlier layers by name."""
        self.origins: dict[str, str] = {}
        """Origins of single fields, in place of the layer and its URL."""
        self.notes: list[Note] = []
        self.cuts: list[str] = []
        """Why discovery did not find everything, in the order in which `cut` reported it."""
        self.warnings: list[str] = []
        self.found: list[Item] = []
        self.usage = Usage()
        self.address: str | None = None
        """URL of the last response: the origin of the fields of the running layer."""

    @property
    def item(self) -> Item:
        """The item of this visit; discovery has none."""
        if self._item is None:
            message = "discovery has no item"
            raise LookupError(message)
        return self._item

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        json: Any = None,
        accept: frozenset[int] = frozenset(),
        timeout: float | None = None,  # noqa: ASYNC109  # the chain's deadline, not a cancel scope
        priority: int | None = None,
        shared: bool = False,
        rendered: bool = False,
        clicks: Clicks | None = None,
        renew: bool = False,
    ) -> Page:
        """Send one request through the chain, with rate limit and retries, and return the response.

        Args:
            url: the URL.
            method: the HTTP method.
            params: query parameters to add to the URL.
            headers: headers of this request.
            body: the body.
            json: a body to send as JSON.
            accept: statuses to return instead of raising (400 and above) or following (redirects).
            timeout: response timeout in seconds; default: that of the job.
            priority: order among waiting requests, higher first; default: that of the item.
            shared: send the request once per run, however many items need it.
            rendered: open the page in a browser, if the source has one.
            clicks: return several pages of a list with a next button.
            renew: authenticate again first, for sites that report an expired token in the body.

        Raises:
            FetchError: the request failed; its kind decides the outcome of the item.
        """
        headers = dict(headers or {})
        if json is not None:
            body = orjson.dumps(json)
            headers.setdefault("content-type", "application/json")
        if priority is None:
            priority = self._item.priority if self._item else 0
        request = Request(
            with_query(url, params),
            method,
            headers,
            body,
            frozenset(accept),
            timeout,
            priority,
            is_shared=shared,
            is_rendered=rendered,
            is_renewing=renew,
            clicks=clicks,
        )
        page = await self._send(request, self.usage)
        self.address = page.url
        return page

    def note(self, field: str, text: str) -> None:
        """Note why a field is empty, or what is unusual about it."""
        self.notes.append(Note(field, text))

    def cut(self, reason: str) -> None:
        """Report that items are missing because discovery ended early: the job becomes partial.

        Call it before the cursor that leads past the missing items is yielded: both are committed
        together, so the reason survives a crash. The same reason counts once per job.
        """
        if reason not in self.cuts:
            self.cuts.append(reason)
            self.usage.add_event(CUT, reason=reason)

    def warn(self, text: str) -> None:
        """Add a warning to the job's summary; the state of the job stays the same."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.usage.add_event(WARNING, reason=text)

    def add(self, item: Item) -> None:
        """Queue another item; it is committed together with this item's outcome."""
        self.found.append(item)

    async def once(self, name: str, make: Callable[[Visit], Awaitable[T]]) -> T:
        """Return the result of `make(visit)`, which is called once per name in this visit."""
        if name not in self._results_by_name:
            self._results_by_name[name] = await make(self)
        result: T = self._results_by_name[name]
        return result

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run blocking code in a thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)
