"""Blocking code beside the event loop: its results as a stream, its requests through our chain."""

from __future__ import annotations

import asyncio
import contextlib
import io
import queue
import threading
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import orjson
import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from longline.core.errors import UnexpectedShape
from longline.http.messages import Page, Request, with_query
from longline.limits.retry import RETRIED_STATUSES
from longline.sources.visit import Visit

_LONGEST = 0.1  # seconds that a thread goes on by itself before it waits to be asked again
_MOST = 100  # records that it makes in that time at most
_CHAINS_OWN = frozenset({"user-agent", "accept-encoding", "connection", "content-length", "host"})
_SEEN_BY_CALLER = frozenset(range(400, 600)) - RETRIED_STATUSES


async def stream_from_thread(
    call: Callable[[], Any], *, may_be_none: bool = False
) -> AsyncGenerator[Any, None]:
    """Call a function in a thread of its own, and yield what it returns or yields as it comes.

    The thread takes the next step only when the last one was taken over, so a quick generator
    does not fill the memory.

    Raises:
        UnexpectedShape: it returned nothing that holds records.
        Exception: whatever it raised, after all that came before.
    """
    loop = asyncio.get_running_loop()
    # One thread for all steps: a generator may hold what belongs to its thread, such as SQLite.
    own = _OwnThread()
    steps: Iterator[Any] = iter(())
    try:
        result = await loop.run_in_executor(own, _calling(call))
        if isinstance(result, AsyncIterable | Awaitable):
            async for one in stream(result, may_be_none=may_be_none):
                yield one
            return
        steps = iter(_listed(result, may_be_none=may_be_none))
        is_last = False
        while not is_last:
            batch = _Batch(loop)
            filling = loop.run_in_executor(own, batch.fill, steps)
            filling.add_done_callback(batch.end)
            async for one in batch.records():
                yield one
            is_last = await filling
            if batch.error is not None:
                raise batch.error
    finally:
        own.submit(_close, steps)
        own.shutdown(wait=False)  # a thread cannot be stopped; it ends after its present step


class _OwnThread(Executor):
    """One thread, which a process that ends does not wait for: code that hangs must not keep it."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._works = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="longline-function", daemon=True).start()

    def submit(self, fn: Any, /, *args: Any, **_kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._works.put((future, partial(fn, *args)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # Executor's own signature
        """Let the thread end after what it was given."""
        del wait, cancel_futures
        self._works.put(None)

    def _serve(self) -> None:
        while (work := self._works.get()) is not None:
            future, call = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  # all of it belongs to who waits
                future.set_exception(error)


async def stream(result: Any, *, may_be_none: bool = False) -> AsyncIterator[Any]:
    """Yield what an async function returned or yields.

    Raises:
        UnexpectedShape: that holds no records.
    """
    if isinstance(result, AsyncIterable):
        async for one in result:
            yield one
    elif isinstance(result, Awaitable):
        async for one in stream(await result, may_be_none=may_be_none):
            yield one
    else:
        for one in _listed(result, may_be_none=may_be_none):
            yield one


def _listed(result: Any, *, may_be_none: bool) -> Iterable[Any]:
    if result is None and may_be_none:
        return []
    if isinstance(result, Mapping):
        return [result]
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        problem = f"it returned {type(result).__name__}, and not records (names and values each)"
        raise UnexpectedShape("the function", problem)
    return result


class _Batch:
    """Some records that a thread makes, each of which the loop can take at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Any] = deque()
        self._is_news = asyncio.Event()
        self._is_over = False
        self.error: Exception | None = None

    def fill(self, steps: Iterator[Any]) -> bool:
        """Take some steps, in the thread; return whether there are no more of them."""
        until = time.monotonic() + _LONGEST
        try:
            for count, one in enumerate(steps, 1):
                self._waiting.append(one)
                self._tell()
                if count >= _MOST or time.monotonic() >= until:
                    return False
        except SystemExit as error:
            self.error = _left(error)
        except Exception as error:  # noqa: BLE001  # raised again where the records are handed over
            self.error = error
        return True

    def end(self, _filling: Any) -> None:
        """Say that no more records come."""
        self._is_over = True
        self._is_news.set()

    async def records(self) -> AsyncIterator[Any]:
        """Yield the records as they come, until the end."""
        while self._waiting or not self._is_over:
            if not self._waiting:
                self._is_news.clear()
                await self._is_news.wait()
            while self._waiting:
                yield self._waiting.popleft()

    def _tell(self) -> None:
        # A loop that was closed meanwhile wants no news.
        if len(self._waiting) == 1:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._is_news.set)


def _calling(call: Callable[[], Any]) -> Callable[[], Any]:
    def guarded() -> Any:
        try:
            return call()
        except SystemExit as error:
            raise _left(error) from error

    return guarded


def _left(error: SystemExit) -> RuntimeError:
    # As itself it would end the whole run, and not as a run ends.
    return RuntimeError(f"it called sys.exit({error.code!r})")


def _close(steps: Iterator[Any]) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        close()


class ThreadFetch:
    """`fetch(url, …)` for code that blocks: every request goes through the chain in the loop."""

    def __init__(self, visit: Visit, loop: asyncio.AbstractEventLoop) -> None:
        self._visit = visit
        self._loop = loop
        self._is_stopped = threading.Event()

    def __call__(
        self,
        url: str,
        *,
        method: str = "GET",
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        json: Any = None,
        accept: frozenset[int] = frozenset(),
        timeout: float | None = None,
    ) -> Page:
        """Return the answer, as `Visit.fetch` does; see there."""
        sent = dict(headers or {})
        if json is not None:
            body = orjson.dumps(json)
            sent.setdefault("content-type", "application/json")
        whole = with_query(url, params)
        return self.send(Request(whole, method, sent, body, frozenset(accept), timeout))

    def send(self, request: Request) -> Page:
        """Return the answer to a request; nothing is sent any more once nobody waits for it."""
        if self._is_stopped.is_set():
            raise ConnectionError("the run is over; nothing more is sent")
        return self._visit.fetch_from_thread(self._loop, request)

    def stop(self) -> None:
        """Send nothing further."""
        self._is_stopped.set()


def chained_session(fetch: ThreadFetch) -> requests.Session:
    """Return a `requests` session that has no other way out than our chain."""
    session = requests.Session()
    session.trust_env = False  # proxies and passwords of the environment are the chain's matter
    adapter = _ChainAdapter(fetch)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


class _ChainAdapter(BaseAdapter):
    def __init__(self, fetch: ThreadFetch) -> None:
        super().__init__()
        self._fetch = fetch

    def send(
        self, request: requests.PreparedRequest, *_args: object, **options: Any
    ) -> requests.Response:
        body = request.body.encode() if isinstance(request.body, str) else request.body
        timeout = options.get("timeout")
        page = self._fetch.send(
            Request(
                request.url or "",
                request.method or "GET",
                {n: str(v) for n, v in request.headers.items() if n.lower() not in _CHAINS_OWN},
                body if isinstance(body, bytes) else None,
                # What a site says no with is for the caller to see; what may pass is retried.
                _SEEN_BY_CALLER,
                timeout if isinstance(timeout, int | float) else None,
            )
        )
        return _response(page, request)

    def close(self) -> None:
        """Do nothing: the connections are the chain's."""


def _response(page: Page, request: requests.PreparedRequest) -> requests.Response:
    response = requests.Response()
    response.status_code = page.status
    response.headers = CaseInsensitiveDict(page.headers)
    response.headers.pop("content-encoding", None)  # the body is unpacked already
    response.raw = io.BytesIO(page.body)
    response.encoding = requests.utils.get_encoding_from_headers(response.headers)
    response.url = page.url
    response.request = request
    return response
