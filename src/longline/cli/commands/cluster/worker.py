"""longline worker: run a cluster worker."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import click

from longline.cli.log_options import log_options, log_options_of
from longline.cli.options import UP_TO_1000, home_option, settings_of
from longline.config.settings import prepare_home
from longline.core.errors import MissingExtra
from longline.core.logging import configure_logging, log_context
from longline.engine.owner import this_host

_QUEUES = ("fetch", "process", "output")


class _QueueNames(click.ParamType[tuple[str, ...]]):
    """Names of queues, separated by commas."""

    name = "NAMES"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",")))
        for name in names:
            if name not in _QUEUES:
                self.fail(f"{name!r} is not a queue; queues: {', '.join(_QUEUES)}", param, ctx)
        return names


@click.command("worker")
@click.option(
    "-n",
    "--processes",
    type=UP_TO_1000,
    default=lambda: os.cpu_count() or 1,
    show_default="one per core",
    help="Number of child processes.",
)
@click.option(
    "--queues",
    type=_QueueNames(),
    default=",".join(_QUEUES),
    show_default=True,
    help="Queues to serve: fetch (items), process (finished jobs), output (exports).",
)
@click.option(
    "--items",
    type=UP_TO_1000,
    show_default="LONGLINE_CONCURRENCY",
    help="Concurrent items per process, for jobs that do not set it.",
)
@click.option("--name", metavar="NAME", show_default="host and process id", help="Worker name.")
@log_options
@home_option
def command(
    *,
    processes: int,
    queues: tuple[str, ...],
    items: int | None,
    name: str | None,
    home: Path | None,
) -> None:
    """Run a cluster worker.

    The worker executes jobs submitted with `longline run --engine celery`, together with other
    workers on any machine that shares the database and Redis. The first Ctrl-C finishes items in
    flight and releases the others; a second one exits immediately, which loses no data.
    """
    try:
        from longline.distributed.processes import WorkerOptions  # noqa: PLC0415  # an optional part
        from longline.distributed.supervisor import run_worker  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("cluster", "a worker") from error
    settings = settings_of(home)
    if items is not None:
        settings = settings.model_copy(update={"concurrency": items})
    prepare_home(settings)
    log = log_options_of(click.get_current_context())
    name = name or f"{this_host()}-{os.getpid()}"
    options = WorkerOptions(name, processes, queues, log)
    # A worker always logs its start and its end.
    configure_logging(replace(log, verbosity=max(1, log.verbosity)))
    with log_context(worker=name):
        sys.exit(asyncio.run(run_worker(settings, options)))
