"""An existing function as a source: one that returns all records, or one that handles an item."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, create_model

from longline.core.errors import BadSource, MissingExtra, NothingToStore, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.core.threads import Threads
from longline.http.messages import Page
from longline.limits.retry import RetryHandler, translate_error
from longline.sources.base import Options, RecordItems, RecordSource, Source, Visit, layer

_MAX_BUFFERED = 100  # records in memory before the thread pauses
_END = object()


async def _stream_from_thread(
    call: Callable[[], Any], *, may_be_none: bool
) -> AsyncGenerator[Any, None]:
    """Call a function in its own thread, and yield what it returns or yields.

    Raises:
        UnexpectedShape: it returned something that is not records.
        Exception: whatever the function raised, after everything that it yielded before.
    """
    loop = asyncio.get_running_loop()
    buffered: asyncio.Queue[Any] = asyncio.Queue()
    free = threading.Semaphore(_MAX_BUFFERED)
    is_stopped = threading.Event()

    def run() -> Any:
        try:
            result = call()
            if isinstance(result, AsyncIterable | Awaitable):
                return result
            records = iter(_as_records(result, may_be_none=may_be_none))
            for one in records:
                loop.call_soon_threadsafe(buffered.put_nowait, one)
                free.acquire()
                if is_stopped.is_set():
                    break
            if (close := getattr(records, "close", None)) is not None:
                close()  # here, since a generator may hold thread-bound objects such as SQLite's
        except SystemExit as error:
            raise RuntimeError(f"it called sys.exit({error.code!r})") from error
        return None

    thread = Threads(1, "longline-function")
    try:
        running = loop.run_in_executor(thread, run)
        running.add_done_callback(lambda _: buffered.put_nowait(_END))
        while (one := await buffered.get()) is not _END:
            yield one
            free.release()
        if (result := await running) is not None:
            async for one in _stream(result, may_be_none=may_be_none):
                yield one
    finally:
        is_stopped.set()
        free.release()
        thread.shutdown()  # a thread cannot be stopped; it ends after its present step


async def _stream(result: Any, *, may_be_none: bool) -> AsyncIterator[Any]:
    """Yield what an async function returned or yields; raise UnexpectedShape for other values."""
    if isinstance(result, Awaitable):
        result = await result
    if isinstance(result, AsyncIterable):
        async for one in result:
            yield one
        return
    for one in _as_records(result, may_be_none=may_be_none):
        yield one


def _as_records(result: Any, *, may_be_none: bool) -> Iterable[Any]:
    if result is None and may_be_none:
        return []
    if isinstance(result, Mapping):
        return [result]
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        problem = f"it returned {type(result).__name__} instead of records (names and values)"
        raise UnexpectedShape("the function", problem)
    return result


class ThreadFetch:
    """`fetch(url, …)` for blocking code: every request goes through the request chain."""

    def __init__(self, visit: Visit, loop: asyncio.AbstractEventLoop) -> None:
        self._visit = visit
        self._loop = loop
        self._is_stopped = threading.Event()

    def __call__(self, url: str, **options: Any) -> Page:
        """Return the response; the options are those of `Visit.fetch`."""
        if self._is_stopped.is_set():
            # A thread cannot be cancelled, only kept from the network.
            raise ConnectionError("the run has ended; no more requests are sent")
        fetching = self._visit.fetch(url, **options)
        return asyncio.run_coroutine_threadsafe(fetching, self._loop).result()

    def stop(self) -> None:
        """Send no further requests."""
        self._is_stopped.set()


_INJECTED = ("fetch", "session")
_ITEM_PARAMETERS = ("item", "url")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_ATTEMPTS = 3  # of a function that sends its own requests


def function_source(function: Callable[..., Any]) -> type[Source]:
    """Return the source of a function, async or not; a blocking one runs in a thread.

    A function whose first parameter is `item` or `url` is called for each item of `--set items`,
    and returns its record, several, or None. Any other is called once, and returns or yields
    records. A parameter `fetch` receives `Visit.fetch`; `session`, in blocking code, a session of
    `requests`: both send their requests through the request chain. All other parameters are options
    of the source.

    Raises:
        BadSource: its parameters are not supported.
    """
    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    signature = _Signature(name, function)
    base: type[_FunctionSource] = _ItemFunction if signature.item_parameter else _RecordFunction
    values = {
        "name": name,
        "kind": "function",
        "__doc__": inspect.getdoc(function) or f"The function {name}.",
        "__module__": getattr(function, "__module__", __name__),
        "Options": signature.options_model(),
        "_signature": signature,
    }
    return type(name, (base,), values)


class _Signature:
    """The parameters of a function."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.function = function
        try:
            parameters = [
                one
                for one in inspect.signature(function, eval_str=True).parameters.values()
                if one.kind not in _VARIADIC
            ]
        except (TypeError, ValueError, NameError) as error:
            raise BadSource(name, f"its parameters cannot be read: {error}") from error
        names = [one.name for one in parameters]
        self.item_parameter = names[0] if names and names[0] in _ITEM_PARAMETERS else None
        self.injected = [one for one in names if one in _INJECTED]
        self.settings = [
            one for one in parameters if one.name not in (*_INJECTED, self.item_parameter)
        ]
        # An object with an async `__call__` counts, too.
        self.is_async = any(
            inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
            for one in (function, type(function).__call__)
        )
        if any(one.kind is one.POSITIONAL_ONLY for one in parameters):
            raise BadSource(name, "positional-only parameters (before `/`) are not supported")
        if self.is_async and "session" in self.injected:
            raise BadSource(name, "an async function takes `fetch`; `session` is for blocking code")

    def options_model(self) -> type[Options]:
        """Return the model of the options that the function has as parameters."""
        fields: dict[str, Any] = {one.name: _model_field(one) for one in self.settings}
        if self.item_parameter is not None:
            fields["items"] = (_Words, Field(description="URLs or keys, or @file with them."))
        return create_model("FunctionOptions", __base__=_FunctionOptions, **fields)


class _FunctionOptions(Options):
    # A parameter may be of any type; pydantic passes what it does not know.
    model_config = ConfigDict(arbitrary_types_allowed=True)


class _FunctionSource(RecordSource):
    _signature: ClassVar[_Signature]

    @property
    def place(self) -> str:
        """The URL of records that have none."""
        return f"function://{self.name}"

    async def _results(self, visit: Visit, **more: Any) -> AsyncGenerator[Any, None]:
        """Call the function and yield what it returns or yields."""
        signature = self._signature
        may_be_none = signature.item_parameter is not None
        values = {one.name: getattr(self.options, one.name) for one in signature.settings}
        values |= more
        if signature.is_async:
            if "fetch" in signature.injected:
                values["fetch"] = visit.fetch
            async for one in _stream(signature.function(**values), may_be_none=may_be_none):
                yield one
            return
        fetch = ThreadFetch(visit, asyncio.get_running_loop())
        if "fetch" in signature.injected:
            values["fetch"] = fetch
        if "session" in signature.injected:
            try:
                from longline.sources.requests_session import chained_session  # noqa: PLC0415
            except ImportError as error:
                raise MissingExtra("requests", f"the function {self.name}") from error
            values["session"] = chained_session(fetch)
        try:
            call = partial(signature.function, **values)
            async with aclosing(_stream_from_thread(call, may_be_none=may_be_none)) as results:
                async for one in results:
                    yield one
        finally:
            fetch.stop()


class _RecordFunction(_FunctionSource):
    """Called once; after a crash it is called again, and known records are not queued again."""

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield an item for each record."""
        items = RecordItems(self.place, None, visit)
        async with aclosing(self._results(visit)) as records:
            async for one in records:
                yield items.make(one)


class _ItemFunction(_FunctionSource):
    """Called for each item."""

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items that the function is called for."""
        del visit
        for text in self.options.items:
            yield Item(text, text if "://" in text else f"{self.place}/{text}")

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return the record of the item; raise NothingToStore if there is none, or several."""
        if "record" in visit.item.data or "problem" in visit.item.data:
            return await super().record(visit)
        # The chain retries its requests; a function that sends its own is retried as a whole.
        attempts = 1 if self._signature.injected else _ATTEMPTS
        handler = RetryHandler(attempts, circuit_breaker_threshold=None, clock=visit.clock)
        records = await handler.execute(lambda: self._call_once(visit), domain=visit.item.url)
        if len(records) == 1 and isinstance(records[0], Mapping):
            only: Mapping[str, Any] = records[0]
            return only
        items = RecordItems(visit.item.url, None, visit)
        for one in records:
            visit.add(items.make(one))
        count = len(records)
        raise NothingToStore(f"{count} records" if records else "the function returned nothing")

    async def _call_once(self, visit: Visit) -> list[Any]:
        item = visit.item
        url = item.key if item.url.startswith(self.place) else item.url
        name = self._signature.item_parameter
        argument = {str(name): item if name == "item" else url}
        try:
            async with aclosing(self._results(visit, **argument)) as results:
                return [one async for one in results]
        except Exception as error:
            ours = translate_error(error, item.url, visit.clock.now())
            if ours is error:
                raise
            raise ours from error


def _model_field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    has_default = parameter.default is not parameter.empty
    kind = parameter.annotation
    if kind is parameter.empty:
        kind = type(parameter.default) if has_default and parameter.default is not None else Any
    return kind, parameter.default if has_default else ...


def _split_words(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text("utf-8")
        except OSError as error:
            raise ValueError(f"{value[1:]} cannot be read ({error.strerror})") from error
    return value.replace(",", " ").split()


_Words = Annotated[tuple[str, ...], BeforeValidator(_split_words)]
