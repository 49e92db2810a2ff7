"""The Celery worker of a supervisor, as a process: `python -m longline.distributed.celery_worker`.

It is a separate program, so that it forks children from a process without threads, loops and
connections. Its plan is one line of JSON on standard input, where no other user of the machine can
read the passwords in it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import orjson
from celery import signals
from celery.exceptions import Reject

from longline.config.settings import Settings
from longline.core.errors import StoreError
from longline.core.logging import LogOptions, configure_logging
from longline.core.output import protected_output
from longline.distributed.app import (
    COLLECT,
    DISCOVER,
    EXPORT,
    FINISH,
    PROXIES,
    QUEUES,
    Messages,
    make_app,
)
from longline.distributed.processes import ENDED, Drain, Reports, WorkerPlan, die_with
from longline.distributed.worker import ChildWorker
from longline.engine.collector import NoStrayCancellation, ends_process

_LOG = logging.getLogger("longline.distributed.celery_worker")  # __name__ is "__main__"

_PAUSE = 1.0  # seconds before the next message, after an error
_CLOSE_UNUSED = 60.0  # seconds between two checks for unused jobs


class Child:
    """Handles messages on one event loop; made before the fork, `begin` is called after it."""

    def __init__(
        self,
        settings: Settings,
        drain: Drain,
        reports: Reports,
        *,
        queues: Collection[str],
        name: str | None = None,
    ) -> None:
        self._settings = settings
        self._drain = drain
        self._reports = reports
        self._queues = queues
        self._name = name
        self._parent = os.getpid()
        self._runner: asyncio.Runner
        self._messages: Messages
        self._worker: ChildWorker | None = None
        self._is_busy = False

    def begin(self) -> None:
        """Prepare the process; loops, threads and clients are made only from here on."""
        die_with(self._parent)
        self._runner = asyncio.Runner()
        self._messages = Messages(self._settings)
        # A service manager may signal every process. A child ends when its parent does or asks it.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, self._close_unused)
        signal.setitimer(signal.ITIMER_REAL, _CLOSE_UNUSED, _CLOSE_UNUSED)

    def end(self) -> None:
        """Close everything."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._runner.run(self._close_worker())
        self._runner.close()

    def collect(self, chunk: int) -> None:
        """Work on a chunk."""
        self._handle(lambda worker: worker.collect(chunk))

    def discover(self, job: str) -> None:
        """Find the items of a job."""
        self._handle(lambda worker: worker.discover(job))

    def finish(self, job: str) -> None:
        """Finish a job."""
        self._handle(lambda worker: worker.finish(job))

    def export(self, task: str) -> None:
        """Write the records of a job."""
        self._handle(lambda worker: worker.export(task))

    def proxies(self, task: str) -> None:
        """Check chunks of candidates for proxies."""
        self._handle(lambda worker: worker.check_proxies(task))

    def _handle(self, work: Callable[[ChildWorker], Awaitable[None]]) -> None:
        if self._drain.has_begun:
            # Back into the queue for another worker, which is faster than the next sweep.
            raise Reject("the worker is shutting down", requeue=True)
        self._is_busy = True
        self._reports.message_started()
        try:
            self._runner.run(self._handle_message(work))
        except (KeyboardInterrupt, SystemExit):
            self._reports.fall_silent()
            raise
        finally:
            self._reports.send(ENDED)
            self._is_busy = False

    async def _handle_message(self, work: Callable[[ChildWorker], Awaitable[None]]) -> None:
        try:
            with NoStrayCancellation():
                worker = await self._opened()
                async with worker.following_clock():
                    await work(worker)
        except StoreError as error:
            # The leases expire; chunks that were not claimed are still published.
            _LOG.warning(str(error))
        except BaseException as error:  # the edge of a message
            if ends_process(error):
                raise
            # Celery would pickle it for the parent, which does not know the classes of a source.
            _LOG.error("".join(traceback.format_exception(error)))
            try:
                if self._worker is not None:
                    await self._worker.release_after_error()
            except Exception as problem:  # noqa: BLE001  # the database may be the cause
                _LOG.warning("leases could not be released and will expire: %r", problem)
        else:
            return
        await self._close_worker()
        await asyncio.sleep(_PAUSE)

    async def _opened(self) -> ChildWorker:
        if self._worker is None:
            worker = ChildWorker(
                self._settings,
                self._messages,
                self._drain,
                self._reports,
                queues=self._queues,
                name=self._name,
            )
            self._worker = await worker.__aenter__()
        return self._worker

    async def _close_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.__aexit__()

    def _close_unused(self, _number: int, _frame: object) -> None:
        async def close_unused(worker: ChildWorker) -> None:
            try:
                await worker.close_unused()
            except Exception as error:  # noqa: BLE001  # an error in a handler would end the child
                _LOG.warning("unused jobs could not be closed: %r", error)
                await self._close_worker()

        if not self._is_busy and self._worker is not None:
            self._runner.run(close_unused(self._worker))


def main() -> int:
    """Consume messages until the process is asked to end; return the exit code."""
    plan = WorkerPlan(**orjson.loads(sys.stdin.readline()))
    die_with(plan.parent)
    _log_to_stderr(LogOptions(**plan.log))
    settings = Settings(**plan.settings)
    drain = Drain()
    reports = Reports(plan.reports)
    child = Child(settings, drain, reports, queues=plan.queues, name=plan.name)
    app = make_app(settings)
    # No task has a time limit of Celery: a child may discover for hours, and the engine limits
    # chunks. The supervisor kills a child whose loop hangs. The sweeper counts the deaths of
    # children that discover, and sends another message.
    app.task(child.discover, name=DISCOVER, reject_on_worker_lost=False)
    app.task(child.collect, name=COLLECT)
    app.task(child.finish, name=FINISH)
    app.task(child.export, name=EXPORT)
    app.task(child.proxies, name=PROXIES)
    # Weak references would be gone before the first signal.
    signals.worker_process_init.connect(_receiver(child.begin), weak=False)
    signals.worker_process_shutdown.connect(_receiver(child.end), weak=False)
    signals.worker_shutting_down.connect(_receiver(drain.begin), weak=False)
    worker = app.Worker(
        hostname=f"{plan.name}@{os.uname().nodename}",
        concurrency=plan.processes,
        queues=[QUEUES[name] for name in plan.queues],
        pool_cls="prefork",
        optimization="fair",  # a message goes to an idle child only
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _receiver(function: Callable[[], None]) -> Any:
    def receive(**_data: Any) -> None:
        function()

    return receive


def _log_to_stderr(options: LogOptions) -> None:
    configure_logging(options)
    logging.getLogger("longline").propagate = False  # messages of Celery go to the root logger
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s"
    )
    logging.captureWarnings(capture=True)
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    # The traceback of a child that was killed is one of Celery.
    logging.getLogger("celery.worker.request").addFilter(_without_traceback)
    # With a receiver, Celery does not configure logging.
    signals.setup_logging.connect(_receiver(lambda: None), weak=False)
    sys.__stdout__ = None  # type: ignore[misc]  # Celery prints blank lines there at its end


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


if __name__ == "__main__":
    with protected_output():
        sys.exit(main())
