"""Visit: what a layer is given to do its work with."""

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
    """One try at an item (or at discovery): its requests, its notes and its earlier results."""

    def __init__(
        self,
        link: Middleware,
        clock: Clock,
        *,
        item: Item | None = None,
        cursor: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._link = link
        self._item = item
        self._memory: dict[str, Any] = {}
        self.clock = clock
        self.cursor = cursor
        self.params: Mapping[str, Any] = params or {}
        """What the user gave with `--param`."""
        self.results: dict[str, Mapping[str, Any]] = {}
        """What the layers before this one returned, by layer name."""
        self.origins: dict[str, str] = {}
        """Where single fields come from, in place of the layer and its address."""
        self.notes: list[Note] = []
        self.cuts: list[str] = []
        """Why discovery did not find everything, in the order in which `cut` reported it."""
        self.warnings: list[str] = []
        self.found: list[Item] = []
        self.usage = Usage()
        self.address: str | None = None
        """The address of the last answer: where the fields of the running layer come from."""

    @property
    def item(self) -> Item:
        """The item this visit is about; discovery has none."""
        if self._item is None:
            message = "discovery visits no item"
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
        """Return the answer to one request, politely and with retries.

        `accept` names statuses of 400 and more to return instead of raising, and redirects to
        return instead of following; `json` is a body to send as JSON; `timeout` is seconds for the
        whole answer, in place of the job's. A higher `priority` than the item's own goes first
        where requests wait for their turn. What is `shared` is asked for once in a run, however
        many items need it. What is to be `rendered` is opened in a browser, where the source has
        one; with `clicks`, several pages of a list that a button leads to come together. To `renew`
        is to prove anew who we are, for sites that say in the body of an answer that a token has
        ended.

        Raises:
            FetchError: the request failed for good; its kind decides what becomes of the item.
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
        page = await self._link(request, self.usage)
        self.address = page.url
        return page

    def note(self, field: str, text: str) -> None:
        """Say why a field is empty, or what was odd about it."""
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
        """Report something doubtful that belongs in the job's summary; its state stays the same."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.usage.add_event(WARNING, reason=text)

    def add(self, item: Item) -> None:
        """Queue another item; it is committed together with this item's outcome."""
        self.found.append(item)

    async def once(self, name: str, make: Callable[[Visit], Awaitable[T]]) -> T:
        """Return what `make(visit)` returned the first time it was asked for in this visit."""
        if name not in self._memory:
            self._memory[name] = await make(self)
        result: T = self._memory[name]
        return result

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run blocking code beside the event loop and return its result."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)
