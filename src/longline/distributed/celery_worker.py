"""The Celery worker of a supervisor, as a process: `python -m longline.distributed.celery_worker`.

It is a program of its own, so that it forks children from a process that has neither threads nor
loops nor connections. What it is to do stands in one line of JSON on its standard input, where no
other user of the machine can read the passwords in it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any

import orjson
from celery import Celery, signals
from celery.exceptions import Reject

from longline.config.settings import Settings
from longline.core.errors import StoreError
from longline.core.logging import LogOptions, configure_logging
from longline.core.output import protected_output
from longline.distributed.app import COLLECT, DISCOVER, EXPORT, FINISH, QUEUES, Messages, make_app
from longline.distributed.processes import ENDED, Drain, Reports, WorkerPlan, die_with
from longline.distributed.worker import ChildWorker
from longline.engine.extractor import ends_process, no_stray_cancellation

# ---------------- A child of a Celery worker: one loop, made after the fork, and all that lasts

_LOG = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds before the next message, when the database does not answer
_TIDY = 60.0  # seconds between looks at what is open for nothing


class Child:
    """Does what messages ask for; made before the fork, awake from `begin` on."""

    def __init__(
        self,
        settings: Settings,
        drain: Drain,
        reports: Reports,
        *,
        queues: Collection[str],
    ) -> None:
        self._settings = settings
        self._drain = drain
        self._reports = reports
        self._queues = queues
        self._parent = os.getpid()
        self._runner: asyncio.Runner
        self._messages: Messages
        self._working: ChildWorker | None = None
        self._is_at_work = False

    def begin(self) -> None:
        """Be a process of one's own; loops, threads and clients are made only from here on."""
        die_with(self._parent)
        self._runner = asyncio.Runner()
        self._messages = Messages(self._settings)
        # A service manager may signal every process. A child ends when its parent does or asks it.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, self._tidy)
        signal.setitimer(signal.ITIMER_REAL, _TIDY, _TIDY)

    def end(self) -> None:
        """Let go of everything; what is committed is safe without it, too."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._run(self._let_go())
        self._runner.close()

    # ------------------------------------------------------------ the tasks

    def collect(self, chunk: int) -> None:
        """Work on a chunk."""
        self._do(lambda working: working.collect(chunk))

    def discover(self, job: str) -> None:
        """Find the items of a job."""
        self._do(lambda working: working.discover(job))

    def finish(self, job: str) -> None:
        """End a job."""
        self._do(lambda working: working.finish(job))

    def export(self, order: str) -> None:
        """Write the records of a job."""
        self._do(lambda working: working.export(order))

    def _do(self, task: Callable[[ChildWorker], Awaitable[None]]) -> None:
        if self._drain.has_begun:
            # Back into the queue, for another worker; to be acknowledged it would wait for a sweep.
            raise Reject("the worker is to end", requeue=True)
        self._is_at_work = True
        self._reports.message_came()
        try:
            self._run(self._answer(task))
        except (KeyboardInterrupt, SystemExit):
            self._reports.fall_silent()
            raise
        finally:
            self._reports.tell(ENDED)
            self._is_at_work = False

    async def _answer(self, task: Callable[[ChildWorker], Awaitable[None]]) -> None:
        try:
            with no_stray_cancellation():
                working = await self._awake()
                async with working.keeping_time():
                    await task(working)
        except StoreError as error:
            # What was committed is safe; the rest is leased until it expires, or offered still.
            _LOG.warning(str(error))
            await self._begin_anew()
        except BaseException as error:  # the edge of a message
            if ends_process(error):
                raise
            # Celery would send it to the parent, which knows no class of a source and dies of it.
            _LOG.error("".join(traceback.format_exception(error)))
            await self._give_back()
            await self._begin_anew()

    async def _give_back(self) -> None:
        """Let others go on with what is in hand, without waiting until it expires."""
        if self._working is None:
            return
        try:
            await self._working.release_after_error()
        except Exception as error:  # noqa: BLE001  # the database may be what the error came from
            _LOG.warning("leases could not be released and will expire: %r", error)

    async def _begin_anew(self) -> None:
        await self._let_go()
        await asyncio.sleep(_PAUSE)

    async def _awake(self) -> ChildWorker:
        if self._working is None:
            working = ChildWorker(
                self._settings,
                self._messages,
                self._drain,
                self._reports,
                queues=self._queues,
            )
            self._working = await working.__aenter__()
        return self._working

    async def _let_go(self) -> None:
        working, self._working = self._working, None
        if working is not None:
            await working.__aexit__()

    def _tidy(self, _number: int, _frame: object) -> None:
        """Close what is open for nothing, if nothing is being done at this moment."""
        if not self._is_at_work and self._working is not None:
            self._run(self._tidy_up(self._working))

    async def _tidy_up(self, working: ChildWorker) -> None:
        try:
            await working.tidy()
        except Exception as error:  # noqa: BLE001  # an alarm that raises would end the child
            _LOG.warning("unused jobs could not be closed: %r", error)
            await self._let_go()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)


def main() -> int:
    """Consume until told to stop; return the exit code."""
    plan = WorkerPlan(**orjson.loads(sys.stdin.readline()))
    die_with(plan.parent)
    _log_to_stderr(LogOptions(**plan.log))
    settings = Settings(**plan.settings)
    drain = Drain()
    child = Child(settings, drain, Reports(plan.reports), queues=plan.queues)
    app = make_app(settings)
    _add_tasks(app, child)
    # Weak references would be gone before the first signal.
    signals.worker_process_init.connect(_calling(child.begin), weak=False)
    signals.worker_process_shutdown.connect(_calling(child.end), weak=False)
    signals.worker_shutting_down.connect(_calling(drain.begin), weak=False)
    worker = app.Worker(
        hostname=f"{plan.name}@{os.uname().nodename}",
        concurrency=plan.processes,
        queues=[QUEUES[name] for name in plan.queues],
        pool_cls="prefork",
        optimization="fair",  # a message goes to a child that is free, never to one that is busy
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _add_tasks(app: Celery, child: Child) -> None:
    """Register the tasks; they are run in processes that are forked after this.

    None has a limit of Celery's: a child may discover for hours beside the chunks that it works on,
    which the engine gives their time. One whose loop hangs is killed by its supervisor.
    """
    # Of a child that dies while it discovers, the sweeper counts the deaths, and sends another.
    app.task(child.discover, name=DISCOVER, reject_on_worker_lost=False)
    app.task(child.collect, name=COLLECT)
    app.task(child.finish, name=FINISH)
    app.task(child.export, name=EXPORT)


def _calling(function: Any) -> Any:
    def call(**_told: Any) -> None:
        function()

    return call


def _log_to_stderr(options: LogOptions) -> None:
    configure_logging(options)
    logging.getLogger("longline").propagate = False  # Celery's messages go to the root logger
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s"
    )
    logging.captureWarnings(capture=True)
    logging.getLogger("py.warnings").setLevel(logging.ERROR)
    # A child that was killed has no traceback of its own, only Celery's.
    logging.getLogger("celery.worker.request").addFilter(_without_traceback)
    # With a receiver, Celery leaves logging alone.
    signals.setup_logging.connect(_calling(lambda: None), weak=False)
    sys.__stdout__ = None  # type: ignore[misc]  # Celery says goodbye there, between blank lines


def _without_traceback(record: logging.LogRecord) -> bool:
    record.exc_info = None
    return True


if __name__ == "__main__":
    with protected_output():
        sys.exit(main())
