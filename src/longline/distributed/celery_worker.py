"""The Celery worker of a supervisor, as a process: `python -m longline.distributed.celery_worker`.

It is a program of its own, so that it forks children from a process that has neither threads nor
loops nor connections. What it is to do stands in one line of JSON on its standard input, where no
other user of the machine can read the passwords in it.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import orjson
from celery import Celery, signals

from longline.config.settings import Settings
from longline.core.logging import LogOptions, configure_logging, log_context
from longline.core.output import protected_output
from longline.distributed.app import COLLECT, DISCOVER, EXPORT, FINISH, QUEUES, make_app
from longline.distributed.child import Child
from longline.distributed.processes import Drain, Reports, WorkerPlan, die_with


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
    with log_context(worker=plan.name):
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
