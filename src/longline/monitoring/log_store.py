"""Store the warnings and errors of a process in the database of its home.

A logging handler keeps lines in a bounded buffer, and a thread passes them to the writer of the
store. So a job never waits for its log: what does not fit, or cannot be written, is counted, and
the next line that is stored says how many were lost. Nothing here logs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from typing import Any

from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.json import as_text
from longline.core.logging import ROOT, TextFormatter, redact_text
from longline.storage.backends import sanitize_value
from longline.storage.monitoring.logs import LogFilter, LogLine, Logs
from longline.storage.store import Store

_BUFFER = 1000  # lines that wait for the writer
_INTERVAL = 0.25  # seconds between two writes
_POLL = 0.5  # seconds between two reads of new lines
_MOST_TEXT = 4000  # characters of a message
_MOST_TRACEBACK = 16_000  # characters of an exception; its middle is left out
_MOST_VALUE = 1000  # characters of a field
_MOST_FIELDS = 30
_MOST_ELEMENTS = 100  # of a list or an object in a field
_DEEPEST = 5  # levels of lists and objects; deeper ones become text
_LARGEST = 2**63  # integers from here on become text
_THREAD = "longline-logs"
_WRITERS = (_THREAD, "longline-writer")  # a line about writing lines must not cause another
_CONTEXT = ("job", "source", "domain", "item", "flow", "worker")


class LogStoreHandler(logging.Handler):
    """Passes warnings and errors to the writer of a store, in the background.

    Args:
        logs: where they are stored.
        clock: the clock of the process; lines are stored with its time.
        max_per_job: maximum lines of one job; None is no limit.
        worker: the name of the cluster worker, for lines of threads without context.
    """

    def __init__(
        self, logs: Logs, clock: Clock, *, max_per_job: int | None, worker: str | None = None
    ) -> None:
        super().__init__(logging.WARNING)
        self._logs = logs
        self._clock = clock
        self._offset = 0.0
        self._max_per_job = max_per_job
        self._texts = TextFormatter({"worker": worker} if worker else {})
        self._guard = threading.Lock()
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self._arrived = threading.Event()
        self._is_ending = threading.Event()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line for the writer; it belongs to another home if that one's block is active."""
        if _HOME.get() not in (None, self) or self._is_ending.is_set():
            return
        if not _has_other_handlers() and logging.lastResort is not None:
            logging.lastResort.handle(record)  # as without this handler
        if record.threadName in _WRITERS:
            return
        try:
            line = self._line_of(record)
        except Exception:  # noqa: BLE001  # a log must never fail its caller
            self._add_lost(1)
            return
        with self._guard:
            if len(self._lines) < _BUFFER:
                self._lines.append(line)
            else:
                self._dropped += 1
        self._arrived.set()
        if self._thread is None:  # most processes never log a warning
            self._thread = threading.Thread(target=self._run, name=_THREAD, daemon=True)
            self._thread.start()

    def pass_on(self) -> Future[None] | None:
        """Pass what waits to the writer, from any thread; what is written later is stored later.

        While the database does not respond, lines stay here: others would wait for their writes.
        """
        if self._logs.is_away:
            return None
        with self._guard:
            lines, self._lines = list(self._lines), deque()
            dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append(_dropped_line(dropped, time.time() + self._offset))
        if not lines:
            return None
        lost = len(lines) - bool(dropped) + dropped
        try:
            future = self._logs.add_soon(lines, max_per_job=self._max_per_job)
        except RuntimeError:  # the store is closed
            self._add_lost(lost)
            return None

        def count(done: Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._add_lost(lost)

        future.add_done_callback(count)
        return future

    def close(self) -> None:
        """Pass what waits to the writer, and take no further lines."""
        self._is_ending.set()
        self._arrived.set()
        self.pass_on()
        super().close()

    @property
    def dropped(self) -> int:
        """How many lines were lost since the last one that was stored."""
        return self._dropped

    def _run(self) -> None:
        while not self._is_ending.is_set():
            self._arrived.wait()
            self._arrived.clear()
            self._is_ending.wait(_INTERVAL)  # lines that follow share a transaction
            if (future := self.pass_on()) is not None:
                with suppress(Exception):  # counted by `pass_on`
                    future.result()
            elif self._lines:
                self._arrived.set()

    def _add_lost(self, lost: int) -> None:
        with self._guard:
            self._dropped += lost

    def _line_of(self, record: logging.LogRecord) -> LogLine:
        fields = {name: _redacted(value) for name, value in self._texts.fields(record).items()}
        context: dict[str, Any] = {
            name: str(fields.pop(name))[:_MOST_VALUE] for name in _CONTEXT if name in fields
        }
        with suppress(RuntimeError):  # virtual time has no time outside of its loop
            self._offset = self._clock.now() - time.time()
        exception = None
        if record.exc_info:
            exception = redact_text(self._texts.formatException(record.exc_info))
        return LogLine(
            at=record.created + self._offset,
            level=record.levelno,
            logger=record.name,
            message=_shorten(redact_text(record.getMessage()), _MOST_TEXT),
            exception=_cut_middle(exception),
            fields={name: _short(fields[name]) for name in list(fields)[:_MOST_FIELDS]},
            **context,
        )


_HOME: ContextVar[LogStoreHandler | None] = ContextVar("longline_log_home", default=None)
"""The handler of the home that the present task works for: a process may use several homes."""


@contextmanager
def storing_logs(
    store: Store, settings: Settings, clock: Clock, *, worker: str | None = None
) -> Iterator[LogStoreHandler]:
    """Store the warnings and errors of this process while the block runs.

    The store must be closed after the block: that waits until the last lines are written.
    """
    handler = LogStoreHandler(
        store.logs, clock, max_per_job=settings.log_max_per_job, worker=worker
    )
    logger = logging.getLogger(ROOT)
    logger.addHandler(handler)
    _HOME.set(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        if _HOME.get() is handler:
            _HOME.set(None)
        handler.close()


def pass_on_logs() -> None:
    """Pass the lines of this process to the writers of its stores, before what is written next."""
    for handler in logging.getLogger(ROOT).handlers:
        if isinstance(handler, LogStoreHandler):
            handler.pass_on()


async def prune_logs(store: Store, settings: Settings, now: float) -> int:
    """Delete lines beyond the retention that the settings name; return how many."""
    return await store.logs.prune_old(
        now, max_days=settings.log_max_days, max_count=settings.log_max_count
    )


async def follow_logs(
    logs: Logs, clock: Clock, wanted: LogFilter, after: int
) -> AsyncIterator[LogLine]:
    """Yield the lines after a cursor as they are stored, without end."""
    while True:
        found, after = await logs.read(after, wanted)
        for line in found:
            yield line
        if not found:
            await clock.sleep(_POLL)


def _has_other_handlers() -> bool:
    logger = logging.getLogger(ROOT)
    inherited = logging.getLogger().handlers if logger.propagate else []
    return any(not isinstance(one, LogStoreHandler) for one in (*logger.handlers, *inherited))


# ---------------- Text


def _dropped_line(count: int, at: float) -> LogLine:
    message = f"{count:,} log lines could not be stored"
    return LogLine(at, logging.WARNING, __name__, message, fields={"dropped": count})


def _redacted(value: Any, depth: int = 0) -> Any:
    """Return a field as plain data that can be stored, without secrets."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        text = redact_text(str(value))  # a secret may be a number
        return value if text == str(value) and abs(value) < _LARGEST else text
    if isinstance(value, dict) and depth < _DEEPEST:
        some = islice(value.items(), _MOST_ELEMENTS)
        return {redact_text(str(name)): _redacted(one, depth + 1) for name, one in some}
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
        return [_redacted(one, depth + 1) for one in islice(value, _MOST_ELEMENTS)]
    return redact_text(str(value))


def _short(value: Any) -> Any:
    """Return a value, or the beginning of its text if it is too long."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return _shorten(value, _MOST_VALUE)
    text = as_text(sanitize_value(value))
    return value if len(text) <= _MOST_VALUE else _shorten(text, _MOST_VALUE)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cut_middle(text: str | None) -> str | None:
    if text is None or len(text) <= _MOST_TRACEBACK:
        return text
    half = _MOST_TRACEBACK // 2  # the end names the error, the beginning where it was called
    return f"{text[:half]}\n…\n{text[-half:]}"
