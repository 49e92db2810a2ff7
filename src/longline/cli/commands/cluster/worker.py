"""longline worker: work on the jobs of a cluster until told to stop."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import click

from longline.cli.options import home_option, settings_of
from longline.config.settings import prepare_home
from longline.core.errors import MissingExtra
from longline.engine.owner import this_host

_QUEUES = ("fetch", "process", "output")


class _Names(click.ParamType[tuple[str, ...]]):
    """Names of queues with commas between."""

    name = "names"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",")))
        for name in names:
            if name not in _QUEUES:
                self.fail(f"{name!r} is no queue; there are {', '.join(_QUEUES)}", param, ctx)
        return names


@click.command("worker")
@click.option(
    "-n",
    "--processes",
    type=click.IntRange(1, 1000),
    default=lambda: os.cpu_count() or 1,
    show_default="one a core",
    help="Processes that work at the same time.",
)
@click.option(
    "--queues",
    type=_Names(),
    default=",".join(_QUEUES),
    show_default=True,
    help="Kinds of work to do: fetching, ending jobs, writing exports.",
)
@click.option(
    "--items",
    type=click.IntRange(1, 1000),
    help="Items at once in each process, of jobs that do not say [LONGLINE_CONCURRENCY].",
)
@click.option("--name", help="What others see it by [host and process].")
@home_option
def command(
    *,
    processes: int,
    queues: tuple[str, ...],
    items: int | None,
    name: str | None,
    home: Path | None,
) -> None:
    """Work on the jobs of a cluster until told to stop.

    Takes what `longline run --engine celery` hands over, with as many other workers as there are,
    on any number of machines that share a database and a Redis. The first ctrl-c finishes what is
    in flight and hands back the rest; a second one ends at once, which loses nothing either.
    """
    try:
        from longline.distributed.celery_process import WorkerOptions  # noqa: PLC0415  # an optional part
        from longline.distributed.supervisor import run_worker  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra("cluster", "a worker") from error
    settings = settings_of(home)
    if items is not None:
        settings = settings.model_copy(update={"concurrency": items})
    prepare_home(settings)
    name = name or f"{this_host()}-{os.getpid()}"
    options = WorkerOptions(name, processes, queues)
    sys.exit(asyncio.run(run_worker(settings, options, _say)))


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {text}", err=True)
