"""One attempt at an item: its layers, the pipeline, and the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from longline.core.clock import Clock
from longline.core.errors import (
    Blocked,
    BudgetSpent,
    CircuitOpen,
    Deferred,
    ExtractError,
    FailureKind,
    FetchError,
    LayerFailed,
    LonglineError,
    NothingToStore,
    StoreError,
    error_text,
    kind_of,
)
from longline.core.logging import LogContext, redact_text
from longline.core.model import (
    WARNING,
    Failure,
    Item,
    Job,
    Outcome,
    OutcomeAction,
    PendingEvent,
    Record,
    Usage,
)
from longline.http.messages import Middleware, origin_of
from longline.pipeline.pipeline import Material, Pipeline
from longline.sources.base import Layer, Source, Visit
from longline.storage.backends import sanitize_text
from longline.storage.events.events import event_row
from longline.storage.store import Store

T = TypeVar("T")
_MAX_DEFERRALS = 10
_MAX_BANS = 3
_MAX_WARNINGS = 1000  # that are remembered, so that each is stored once
_TEARDOWN_TIMEOUT = 15.0  # seconds; less than a worker has for its shutdown
_ACTIONS = {
    FailureKind.GONE: OutcomeAction.SKIP,
    FailureKind.BUDGET: OutcomeAction.SKIP,
    FailureKind.INVALID: OutcomeAction.QUARANTINE,
}


class NoFields(LayerFailed):
    """The code of a layer did not return fields by name; `problem` is the type it returned."""

    message = "layer {layer} returned {problem} instead of a mapping of fields"


class StrayCancellation(LonglineError):
    """The code of a source raised a cancellation that was not requested."""

    message = "something that the source awaited was cancelled (asyncio.CancelledError)"


class TookTooLong(LonglineError):
    """A call into the source exceeded its time limit."""

    seconds: float
    message = "it took longer than {seconds:g} s"


# ---------------- Errors of a source that would end more than its item


class NoStrayCancellation:
    """Converts a cancellation that was not requested into a StrayCancellation.

    Otherwise it would silently end the task that works on an item. Every item uses it, so it is not
    a generator.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise StrayCancellation from error


def ends_process(error: BaseException) -> bool:
    """Return whether an error ends what runs the code, and is not a bug of the code.

    SystemExit is a bug: a source must not end the process.
    """
    return isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit))


async def with_timeout(work: Awaitable[T], seconds: float) -> T:
    """Await code of a source.

    Raises:
        TookTooLong: it did not end in time, and was cancelled.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TookTooLong(seconds) from error


def describe_source_error(error: BaseException) -> str:
    """Return an error of a source's code as text that can be stored and shown."""
    return _storable(str(error) if isinstance(error, LonglineError) else repr(error))


def _storable(text: str) -> str:
    """Return a text that may quote the site: without secrets, and without lone surrogates."""
    return sanitize_text(redact_text(text))


async def _error_of(work: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Return the error that a source's code raises."""
    try:
        with NoStrayCancellation():
            await work()
    except BaseException as error:  # the edge of a job: its records are stored already
        if ends_process(error):
            raise
        return error
    return None


# ---------------- The attempt


async def _no_bans(_key: str) -> int:
    return 0


class Collector:
    """Takes items of one source through every layer and the pipeline; stores nothing.

    `bans` returns how often an item was answered with a ban before.
    """

    def __init__(
        self,
        source: Source,
        chain: Middleware,
        clock: Clock,
        params: Mapping[str, Any] | None = None,
        *,
        bans: Callable[[str], Awaitable[int]] = _no_bans,
    ) -> None:
        """Check the pipeline of the source.

        Raises:
            ConfigError: it cannot be used.
        """
        self.source = source
        self._chain = chain
        self._clock = clock
        self._params = params or {}
        self._bans = bans
        self._warnings: set[str] = set()
        self._layers = source.layers()
        self._pipeline = Pipeline(source)

    def visit(self, item: Item | None = None, cursor: Mapping[str, Any] | None = None) -> Visit:
        """Return a new visit for an item, or for discovery."""
        return Visit(self._chain, self._clock, item=item, cursor=cursor, params=self._params)

    async def collect(self, item: Item, *, tries: int = 1, usage: Usage | None = None) -> Outcome:
        """Attempt an item once. Errors become outcomes; only a cancellation is raised.

        `usage` is updated during the attempt.

        Raises:
            StoreError: a response cannot be stored.
        """
        started = self._clock.now()
        visit = self.visit(item)
        visit.usage, visit.tries = usage or visit.usage, tries
        layers: dict[str, str] = {}
        material = Material(visit.results, visit.notes, {}, visit.origins, layers)
        record: Record | None = None
        try:
            with LogContext(source=self.source.name, item=item.key), NoStrayCancellation():
                record = await self._run_layers(visit, layers, material, tries)
        except StoreError:
            raise  # not a failure of the item: the run ends
        except BaseException as error:  # the edge of an item: it must not end the job
            if ends_process(error):
                raise
            is_banned = isinstance(error.__cause__, Blocked)
            # An item that is banned again and again must not defer its domain forever.
            is_own_ban = is_banned and await self._bans(item.key) + 1 >= _MAX_BANS
            outcome = _deferral(error, tries, visit, is_own_ban=is_own_ban) or failed_outcome(
                error, material, is_whole=len(layers) == len(self._layers)
            )
            if outcome.kind is not None and not isinstance(error, FetchError):
                # Failed requests are in the failure log already.
                now = self._clock.now()
                url, reason = visit.address or item.url, outcome.reason or ""
                visit.usage.failures.append(
                    Failure(
                        *(now, url, outcome.kind, reason, outcome.action.value),
                        *(now - started, visit.usage.status),
                    )
                )
        if visit.usage.events:
            visit.usage.events[:] = filter(self._is_new, visit.usage.events)
        now = self._clock.now()
        end: dict[str, Any] = {
            "at": now,
            "seconds": now - started,
            "usage": visit.usage,
            "found": visit.found,
            "spent": visit.spent,
            "layers": layers,
            "results": visit.results,
        }
        if record is None:
            return replace(outcome, **end)
        # `raw` is used only if no database can store the record.
        return Outcome(OutcomeAction.STORE, record=record, raw=material.as_raw(), **end)

    def _is_new(self, event: PendingEvent) -> bool:
        """Return whether an event is not a warning that another item of this process had.

        A warning may concern every item: stored for each, it would hide the other warnings.
        """
        if event.type != WARNING:
            return True
        reason = str(event.data.get("reason"))
        is_new = reason not in self._warnings
        if len(self._warnings) < _MAX_WARNINGS:
            self._warnings.add(reason)
        return is_new

    async def _run_layers(
        self, visit: Visit, layers: dict[str, str], material: Material, tries: int
    ) -> Record:
        for layer in self._layers:
            layers[layer.name] = await self._run_layer(layer, visit, tries)
            origin = f"{layer.name} {visit.address or ''}".strip()
            material.provenance.update(dict.fromkeys(visit.results.get(layer.name, ()), origin))
        return self._pipeline.record(visit.item, material)

    async def _run_layer(self, layer: Layer, visit: Visit, tries: int) -> str:
        """Return how a layer ended: "ok", or why an optional one has no result."""
        missing = [name for name in layer.needs if name not in visit.results]
        if missing and layer.is_optional:
            return f"not run: needs {', '.join(missing)}"
        try:
            found = await getattr(self.source, layer.name)(visit)
            visit.results[layer.name] = _require_fields(layer, found)
        except StoreError:
            raise
        except BaseException as error:
            if ends_process(error):
                raise
            ours = error
            if not isinstance(error, LonglineError):
                frames = traceback.extract_tb(error.__traceback__)
                place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
                text = f"{type(error).__name__}: {error_text(error)}{place}"
                ours = LayerFailed(layer.name, text)
            if not layer.is_optional:
                if ours is error:
                    raise
                raise ours from error
            if _is_temporary(error, visit.item, tries):
                raise  # a record without the layer would replace a better one
            reason = _storable(error_text(ours))
            visit.note(layer.name, reason)
            return reason
        return "ok"


def _require_fields(layer: Layer, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise NoFields(layer.name, type(found).__name__)
    return found


def failed_outcome(error: BaseException, material: Material, *, is_whole: bool) -> Outcome:
    """Return the outcome of an item that raised; its material is kept if that can help later.

    `is_whole` says that all layers had run: then a bug can be fixed without a request.
    """
    if isinstance(error, NothingToStore):
        return Outcome(OutcomeAction.SKIP, reason=_storable(error.reason))
    kind = kind_of(error)
    action = _ACTIONS.get(kind, OutcomeAction.FAIL)
    is_ours = isinstance(error, (FetchError, ExtractError, LayerFailed))
    reason = error_text(error) if is_ours else f"{type(error).__name__}: {error_text(error)}"
    is_kept = action is OutcomeAction.QUARANTINE or (is_whole and kind is FailureKind.BUG)
    raw = material.as_raw(error) if is_kept else None
    return Outcome(action, kind=kind, reason=_storable(reason), raw=raw)


def _deferral(
    error: BaseException, tries: int, visit: Visit, *, is_own_ban: bool
) -> Outcome | None:
    """Return the outcome of an item that has to wait; None when it has not."""
    if isinstance(error, CircuitOpen) and not is_own_ban:
        is_for_domain = True  # does not count as a deferral of the item
    elif isinstance(error, Deferred) and (error.is_for_domain or tries < _MAX_DEFERRALS):
        is_for_domain = error.is_for_domain
    else:
        return None
    return Outcome(
        OutcomeAction.DEFER,
        kind=error.kind,
        reason=_storable(error_text(error)),
        due=error.until,
        # An item may request several hosts: another host says nothing about items of its own.
        is_for_domain=is_for_domain and _is_own_host(visit.item, error),
    )


def _is_temporary(error: BaseException, item: Item, tries: int) -> bool:
    """Return whether a layer fails only for now: its budget is exhausted or its site deferred."""
    if isinstance(error, BudgetSpent):
        return True
    if not isinstance(error, (CircuitOpen, Deferred)) or not _is_own_host(item, error):
        return False
    return isinstance(error, CircuitOpen) or tries < _MAX_DEFERRALS


def _is_own_host(item: Item, error: FetchError) -> bool:
    return error.host.lower() == origin_of(item.url)[1]


# ---------------- The end of a source


async def notify_finished(store: Store, collector: Collector, job: Job, clock: Clock) -> str | None:
    """Call `Source.finished`; return its error, which is also an event of the job.

    Raises:
        StoreError: the database cannot be written.
    """
    visit = collector.visit(cursor=job.cursor)
    error = await _error_of(lambda: collector.source.finished(visit))
    if isinstance(error, StoreError):
        raise error
    if error is None:
        return None
    problem = (
        f"the source could not be notified that the job is complete: {describe_source_error(error)}"
    )
    event = event_row(job.id, clock.now(), "source.finished.failed", reason=problem)
    await store.events.append(event)
    return problem


async def tear_down(source: Source) -> str | None:
    """Call `Source.teardown`; return its error as text."""
    error = await _error_of(lambda: with_timeout(source.teardown(), _TEARDOWN_TIMEOUT))
    return None if error is None else describe_source_error(error)


async def note_teardown(store: Store, job: str, clock: Clock, *, source: str, raised: str) -> str:
    """Append an event that a source could not be torn down; return it as a sentence."""
    problem = f"teardown of the source {source} failed: {raised}"
    if job:
        event = event_row(job, clock.now(), "source.teardown.failed", reason=problem)
        with contextlib.suppress(StoreError):  # reported elsewhere
            await store.events.append(event)
    return problem
