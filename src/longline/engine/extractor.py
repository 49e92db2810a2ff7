"""One try at an item: its layers, the pipeline, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
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
from longline.core.logging import log_context
from longline.core.model import (
    Failure,
    Item,
    Job,
    Outcome,
    OutcomeAction,
    Record,
    Usage,
)
from longline.http.messages import Middleware, origin_of
from longline.pipeline.material import Material
from longline.pipeline.pipeline import Pipeline
from longline.sources.base import Layer, Source, Visit
from longline.storage.bulk import sanitize_text
from longline.storage.events import event_row
from longline.storage.store import Store

# ---------------- What a source's code raises that would end more than its item


@contextlib.contextmanager
def no_stray_cancellation() -> Iterator[None]:
    """Make an error of a cancellation that this task was not asked for; others go through.

    Let through, it would end the task that works on an item, and nobody would hear of it.

    Raises:
        StrayCancellation: the code inside let one through.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise StrayCancellation from error


def is_of_the_process(error: BaseException) -> bool:
    """Say whether an error is no bug of the code it came out of, but is to end what runs it.

    SystemExit and KeyboardInterrupt are bugs, unless the handler of a signal raised them: that ends
    the process, not an item.
    """
    if isinstance(error, GeneratorExit):
        # The code raised it itself, unless its coroutine is being closed: then no task is at it.
        return _current_task() is None
    if isinstance(error, SystemExit):
        return _is_of_a_signal(error)
    if isinstance(error, KeyboardInterrupt):
        # Python's own handler leaves no frame. Where a loop handles SIGINT, it is not installed.
        is_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return is_python or _is_of_a_signal(error)
    return isinstance(error, asyncio.CancelledError)


def _is_of_a_signal(error: BaseException) -> bool:
    """Say whether an error came out of the handler of a signal, which is called in any code."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(handler: Any) -> CodeType | None:
    """Return the code of a handler; None for one that has none, as those of the system."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs any more
        return None


_MOST_POSTPONEMENTS = 10
_MOST_BANS = 3
_ACTIONS = {
    FailureKind.GONE: OutcomeAction.SKIP,
    FailureKind.BUDGET: OutcomeAction.SKIP,
    FailureKind.INVALID: OutcomeAction.QUARANTINE,
}


@dataclass(frozen=True, slots=True)
class Extraction:
    """The whole result of one try, before anything is stored."""

    item: Item
    outcome: Outcome
    layers: Mapping[str, str]
    results: Mapping[str, Mapping[str, Any]]
    usage: Usage
    seconds: float
    found: list[Item] = field(default_factory=list)

    @property
    def record(self) -> Record | None:
        """The record, when there is one."""
        return self.outcome.record

    @property
    def is_success(self) -> bool:
        """Whether there is a record."""
        return self.outcome.record is not None


async def _none_yet(_key: str) -> int:
    return 0


class Collector:
    """Takes items of one source through every layer and the pipeline; stores nothing."""

    def __init__(
        self,
        source: Source,
        link: Middleware,
        clock: Clock,
        params: Mapping[str, Any] | None = None,
        *,
        bans: Callable[[str], Awaitable[int]] = _none_yet,
    ) -> None:
        """Make one; `bans` tells how often an item was answered with a ban before.

        Raises:
            ConfigError: the pipeline of the source cannot be used, as written.
        """
        self.source = source
        self._link = link
        self._clock = clock
        self._params = params or {}
        self._bans = bans
        self._layers = source.layers()
        self._pipeline = Pipeline(source)

    def visit(self, item: Item | None = None, cursor: Mapping[str, Any] | None = None) -> Visit:
        """Return a fresh visit for an item, or for discovery."""
        return Visit(self._link, self._clock, item=item, cursor=cursor, params=self._params)

    async def collect(
        self, item: Item, *, tries: int = 1, usage: Usage | None = None
    ) -> Extraction:
        """Try an item once. Errors become outcomes; only a cancellation goes through.

        What it costs is put down in `usage` as it goes, for whoever looks at that meanwhile.

        Raises:
            StoreError: what the chain has to keep cannot be kept.
        """
        started = self._clock.now()
        visit = self.visit(item)
        visit.usage = usage or visit.usage
        layers: dict[str, str] = {}
        material = Material(visit.results, visit.notes, {}, visit.origins, layers)
        try:
            with log_context(source=self.source.name, item=item.key), no_stray_cancellation():
                outcome = await self._attempt(visit, layers, material, tries)
        except StoreError:
            raise  # no fault of the item: what cannot be kept ends the run, and says so
        except BaseException as error:  # the edge of an item: it must not end the job
            if is_of_the_process(error):
                raise
            is_own_ban = await self._is_own_ban(error, item)
            parked = _parked(error, tries, visit, is_own_ban=is_own_ban)
            is_whole = len(layers) == len(self._layers)
            outcome = parked or refusal(error, material, is_whole=is_whole)
            self._note(error, outcome, visit, self._clock.now() - started)
        seconds = self._clock.now() - started
        return Extraction(item, outcome, layers, visit.results, visit.usage, seconds, visit.found)

    def _note(self, error: BaseException, outcome: Outcome, visit: Visit, seconds: float) -> None:
        """Put a failure of the source's own into the ledger; requests are there already."""
        if isinstance(error, FetchError) or outcome.kind is None:
            return
        visit.usage.failures.append(
            Failure(
                self._clock.now(),
                visit.address or visit.item.url,
                outcome.kind,
                outcome.reason or "",
                outcome.action.value,
                seconds,
                visit.usage.status,
            )
        )

    async def _is_own_ban(self, error: BaseException, item: Item) -> bool:
        """Say whether it is this item, and again and again, that its site answers with a ban.

        Others may be let in: it must not park their domain for ever.
        """
        if not isinstance(error.__cause__, Blocked):
            return False
        return await self._bans(item.key) + 1 >= _MOST_BANS

    async def _attempt(
        self, visit: Visit, layers: dict[str, str], material: Material, tries: int
    ) -> Outcome:
        for layer in self._layers:
            layers[layer.name] = await self._run_layer(layer, visit, tries)
            origin = f"{layer.name} {visit.address or ''}".strip()
            material.provenance.update(dict.fromkeys(visit.results.get(layer.name, ()), origin))
        record = self._pipeline.record(visit.item, material)
        # Of no use unless it turns out that no database can hold the record.
        return Outcome(OutcomeAction.STORE, record=record, raw=material.as_raw())

    async def _run_layer(self, layer: Layer, visit: Visit, tries: int) -> str:
        missing = [name for name in layer.needs if name not in visit.results]
        if missing and layer.is_optional:
            return f"not run: needs {', '.join(missing)}"
        try:
            visit.results[layer.name] = _fields(
                layer, await getattr(self.source, layer.name)(visit)
            )
        except StoreError:
            raise
        except BaseException as error:
            if is_of_the_process(error):
                raise
            told = _told(layer.name, error)
            if told is error and not layer.is_optional:
                raise
            if not layer.is_optional:
                raise told from error
            if _is_to_be_had_later(error, visit.item, tries):
                raise  # a record without it would replace a better one
            visit.note(layer.name, error_text(told))
            return error_text(told)
        return "ok"


def _fields(layer: Layer, found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise NoFields(layer.name, type(found).__name__)
    return found


def _told(layer: str, error: BaseException) -> LonglineError:
    """Return the error in our words; what is not ours is a bug of the layer, with its place."""
    if isinstance(error, LonglineError):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return LayerFailed(layer, f"{type(error).__name__}: {error_text(error)}{place}")


def refusal(error: BaseException, material: Material, *, is_whole: bool) -> Outcome:
    """Return what becomes of an item that raised; what it was made of is kept where that may help.

    `is_whole` says that all layers had run: then even a bug can be mended without a request.
    """
    if isinstance(error, NothingToStore):
        return Outcome(OutcomeAction.SKIP, reason=sanitize_text(error.reason))
    kind = kind_of(error)
    action = _ACTIONS.get(kind, OutcomeAction.FAIL)
    is_ours = isinstance(error, (FetchError, ExtractError, LayerFailed))
    reason = error_text(error) if is_ours else f"{type(error).__name__}: {error_text(error)}"
    is_kept = action is OutcomeAction.QUARANTINE or (is_whole and kind is FailureKind.BUG)
    raw = material.as_raw(error) if is_kept else None
    # A reason may repeat what a site wrote, and half a surrogate pair cannot be stored.
    return Outcome(action, kind=kind, reason=sanitize_text(reason), raw=raw)


def _parked(error: BaseException, tries: int, visit: Visit, *, is_own_ban: bool) -> Outcome | None:
    """Return the outcome of an item that has to wait; None when it has not."""
    if isinstance(error, CircuitOpen) and not is_own_ban:
        # The domain rests: nobody's fault, however often.
        return _later(error, visit, is_for_domain=True)
    if isinstance(error, Deferred) and (error.is_for_domain or tries < _MOST_POSTPONEMENTS):
        return _later(error, visit, is_for_domain=error.is_for_domain)
    return None


def _is_to_be_had_later(error: BaseException, item: Item, tries: int) -> bool:
    """Say whether an optional part is missing only for now: the budget is spent, its site rests."""
    if isinstance(error, BudgetSpent):
        return True
    if not isinstance(error, (CircuitOpen, Deferred)) or not _is_of(item, error):
        return False
    return isinstance(error, CircuitOpen) or tries < _MOST_POSTPONEMENTS


def _later(error: CircuitOpen | Deferred, visit: Visit, *, is_for_domain: bool) -> Outcome:
    # An item may ask several hosts: only its own one's rest says something about its neighbours.
    is_own = _is_of(visit.item, error)
    return Outcome(
        OutcomeAction.DEFER,
        kind=error.kind,
        reason=sanitize_text(error_text(error)),
        due=error.until,
        is_for_domain=is_for_domain and is_own,
    )


def _is_of(item: Item, error: FetchError) -> bool:
    return error.host.lower() == origin_of(item.url)[1]


class NoFields(LayerFailed):
    """The code of a layer did not return fields by name; `problem` is the type it returned."""

    message = "layer {layer} returned {returned}, not fields by name"

    @property
    def returned(self) -> str:
        if self.problem == "NoneType":
            return "nothing"
        return f"{'an' if self.problem[0] in 'aeiou' else 'a'} {self.problem}"


class StrayCancellation(LonglineError):
    """The code of a source raised a cancellation that nothing asked for."""

    message = "something that the source awaited was cancelled (asyncio.CancelledError)"


class TookTooLong(LonglineError):
    """A call into the source exceeded its time limit."""

    seconds: float
    message = "it took longer than {seconds:g} s"


T = TypeVar("T")

_LETTING_GO = 15.0  # seconds to be torn down in: less than a worker has that is to end


async def tell_finished(store: Store, collector: Collector, job: Job, clock: Clock) -> str | None:
    """Call `Source.finished`; return what went wrong, which is an event of the job, too.

    Raises:
        StoreError: the database does not take any more.
    """
    visit = collector.visit(cursor=job.cursor)
    raised = await _raised(lambda: collector.source.finished(visit))
    if isinstance(raised, StoreError):
        raise raised
    if raised is None:
        return None
    problem = f"the source could not note that the job is complete: {in_words(raised)}"
    await store.events.append(
        event_row(job.id, clock.now(), "source.finished.failed", reason=problem)
    )
    return problem


async def tear_down(source: Source) -> str | None:
    """Call `Source.teardown`; return what it raised, in words, or that it did not end."""
    raised = await _raised(lambda: in_time(source.teardown(), _LETTING_GO))
    return None if raised is None else in_words(raised)


async def note_teardown(store: Store, job: str, clock: Clock, *, source: str, raised: str) -> str:
    """Note in the journal of a job what tearing its source down raised; return it as a sentence."""
    problem = f"the source {source} could not be torn down: {raised}"
    if job:
        with contextlib.suppress(StoreError):  # whose own end says more, and what is kept is safe
            at = clock.now()
            await store.events.append(event_row(job, at, "source.teardown.failed", reason=problem))
    return problem


async def in_time(work: Awaitable[T], seconds: float) -> T:
    """Await a source's own code for so many seconds at most.

    Raises:
        TookTooLong: it had not come to its end by then, and was broken off.
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TookTooLong(seconds) from error


def in_words(error: BaseException) -> str:
    """Return what a source's own code raised as a text that can be stored and shown."""
    return sanitize_text(str(error) if isinstance(error, LonglineError) else repr(error))


async def _raised(work: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Return what the source's own code raised; a cancellation of the task goes through."""
    try:
        with no_stray_cancellation():
            await work()
    except BaseException as error:  # the edge of a job: its records are stored already
        if is_of_the_process(error):
            raise
        return error
    return None
