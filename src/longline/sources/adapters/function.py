"""A function that is there already as a source: one that gives records, or one of an item."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, create_model

from longline.core.errors import BadSource, NothingToStore
from longline.core.model import Cursor, Item
from longline.limits.retry import RetryHandler, translate_error
from longline.sources.adapters.blocking import (
    ThreadFetch,
    chained_session,
    stream,
    stream_from_thread,
)
from longline.sources.adapters.records import Key, Keying, RecordSource
from longline.sources.base import Options, Source, layer
from longline.sources.visit import Visit

_GIVEN = ("fetch", "session")
_OF_AN_ITEM = ("item", "url")
_OPEN_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
Items = Iterable[Any] | Callable[[], Any]
"""Items, addresses, or pairs of key and address; or a function that gives them."""


def function_source(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    key: str | Key | None = None,
    items: Items | None = None,
    rate: float | Literal["auto"] | None = 2.0,
    burst: int = 5,
    attempts: int = 3,
    timeout: float | None = None,
) -> type[Source]:
    """Make a source of a function, async or not; one that blocks runs in a thread.

    One whose first parameter is called `item` or `url` is called for each item, and returns its
    record, several, or None. Any other is called once, and returns or yields records. A parameter
    called `fetch` is given what `Visit.fetch` is; `session`, in code that blocks, a session of
    `requests`: both ask through our chain. All other parameters are settings of the source.

    Args:
        function: what to call.
        name: what records are kept under; the function's own name by default.
        key: the field that names a record, or a function of it; else `id`, `key` or `url`, and
            what has none of them is told apart by its content.
        items: what a function of an item is called for; else the user says so with `--set items`.
        rate: requests a second and domain, for what asks through our chain.
        burst: how many of them may go at once.
        attempts: how often a function of an item is tried that makes its own requests.
        timeout: seconds for one call of a function of an item.

    Raises:
        BadSource: its parameters cannot be filled.
    """
    called = name or getattr(function, "__name__", type(function).__name__).strip("<>")
    signature = _Signature(called, function)
    base: type[_FunctionSource] = _ItemFunction if signature.of_item else _RecordFunction
    values = {
        "name": called,
        "kind": "function",
        "__doc__": inspect.getdoc(function) or f"The function {called}.",
        "__module__": getattr(function, "__module__", __name__),
        "Options": signature.options(has_items=signature.of_item is not None and items is None),
        "rate": rate,
        "burst": burst,
        "_signature": signature,
        "_said": _Said(key, items, attempts, timeout),
    }
    return type(called, (base,), values)


@dataclass(frozen=True, slots=True)
class _Said:
    """How whoever made a source of a function wants it called."""

    key: str | Key | None
    items: Items | None
    attempts: int
    timeout: float | None


class _Signature:
    """What a function wants to be given."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.function = function
        try:
            parameters = [
                one
                for one in inspect.signature(function, eval_str=True).parameters.values()
                if one.kind not in _OPEN_KINDS
            ]
        except (TypeError, ValueError, NameError) as error:
            raise BadSource(name, f"its parameters cannot be read: {error}") from error
        names = [one.name for one in parameters]
        self.of_item = names[0] if names and names[0] in _OF_AN_ITEM else None
        self.given = [one for one in names if one in _GIVEN]
        self.settings = [one for one in parameters if one.name not in (*_GIVEN, self.of_item)]
        self.is_async = _is_async(function)
        if any(one.kind is one.POSITIONAL_ONLY for one in parameters):
            raise BadSource(name, "a parameter before `/` cannot be given by its name")
        if self.is_async and "session" in self.given:
            raise BadSource(name, "an async function is given `fetch`; a session is for others")

    def options(self, *, has_items: bool) -> type[Options]:
        """Return the model of the settings that the function has as parameters."""
        fields: dict[str, Any] = {one.name: _field(one) for one in self.settings}
        if has_items:
            fields["items"] = (_Words, Field(description="Addresses or keys, or @file with them."))
        return create_model("FunctionOptions", __base__=_FunctionOptions, **fields)


class _FunctionOptions(Options):
    # A parameter may be of any type: what is no model of pydantic is taken as it comes.
    model_config = ConfigDict(arbitrary_types_allowed=True)


class _FunctionSource(RecordSource):
    _signature: ClassVar[_Signature]
    _said: ClassVar[_Said]

    @property
    def place(self) -> str:
        """The address of records that have none."""
        return f"function://{self.name}"

    async def _called(self, visit: Visit, **more: Any) -> AsyncGenerator[Any, None]:
        """Call the function and yield what it gives."""
        signature = self._signature
        may_be_none = signature.of_item is not None
        values = {one.name: getattr(self.options, one.name) for one in signature.settings}
        values |= more
        if signature.is_async:
            if "fetch" in signature.given:
                values["fetch"] = visit.fetch
            async for one in stream(signature.function(**values), may_be_none=may_be_none):
                yield one
            return
        fetch = ThreadFetch(visit, asyncio.get_running_loop())
        handed = {"fetch": fetch, "session": chained_session(fetch)}
        values |= {name: handed[name] for name in signature.given}
        try:
            call = partial(signature.function, **values)
            async with aclosing(stream_from_thread(call, may_be_none=may_be_none)) as them:
                async for one in them:
                    yield one
        finally:
            fetch.stop()


class _RecordFunction(_FunctionSource):
    """Called once. After a crash it is called anew, and what is already there is not queued."""

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield an item for each record."""
        keying = Keying(self.place, self._said.key, visit)
        async with aclosing(self._called(visit)) as records:
            async for one in records:
                yield keying.item(one)


class _ItemFunction(_FunctionSource):
    """Called for each item."""

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items it is to be called for."""
        del visit
        wanted = self.options.items if self._said.items is None else self._said.items
        async for one in _all_of(wanted() if callable(wanted) else wanted):
            yield self._item(one)

    def _item(self, one: Any) -> Item:
        if isinstance(one, Item):
            return one
        if isinstance(one, tuple):
            return Item(*one)
        text = str(one)
        return Item(text, text if "://" in text else f"{self.place}/{text}")

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return what the function makes of the item.

        Raises:
            NothingToStore: it returned nothing, or several records, which become items.
        """
        if "record" in visit.item.data or "problem" in visit.item.data:
            return await super().record(visit)
        # Our chain tries again by itself; what asks on its own is tried again as a whole.
        attempts = 1 if self._signature.given else self._said.attempts
        handler = RetryHandler(attempts, circuit_breaker_threshold=None, clock=visit.clock)
        records = await handler.execute(lambda: self._try(visit), domain=visit.item.url)
        if len(records) == 1 and isinstance(records[0], Mapping):
            only: Mapping[str, Any] = records[0]
            return only
        keying = Keying(visit.item.url, self._said.key, visit)
        for one in records:
            visit.add(keying.item(one))
        raise NothingToStore(f"{len(records)} records" if records else "the function gave nothing")

    async def _try(self, visit: Visit) -> list[Any]:
        item = visit.item
        address = item.key if item.url.startswith(self.place) else item.url
        value = item if self._signature.of_item == "item" else address
        given = {str(self._signature.of_item): value}
        try:
            async with (
                asyncio.timeout(self._said.timeout),
                aclosing(self._called(visit, **given)) as all_,
            ):
                return [one async for one in all_]
        except Exception as error:
            ours = translate_error(error, item.url, visit.clock.now())
            if ours is error:
                raise
            raise ours from error


async def _all_of(items: Any) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for one in items:
            yield one
        return
    for one in await items if inspect.isawaitable(items) else items:
        yield one


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(function, "__call__", function)  # noqa: B004  # its code, not whether
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    has_default = parameter.default is not parameter.empty
    kind = parameter.annotation
    if kind is parameter.empty:
        kind = type(parameter.default) if has_default and parameter.default is not None else Any
    return kind, parameter.default if has_default else ...


def _words(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text("utf-8")
        except OSError as error:
            raise ValueError(f"{value[1:]} cannot be read ({error.strerror})") from error
    return value.replace(",", " ").split()


_Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
