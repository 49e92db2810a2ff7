"""longline pause: pause a job on all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from longline.cli.options import JOB, home_option, json_option, settings_of
from longline.cli.output import print_json
from longline.core.model import Job
from longline.orchestrator import Orchestrator


@click.command("pause")
@click.argument("job", type=JOB)
@home_option
@json_option
def command(job: str, *, home: Path | None, as_json: bool) -> None:
    """Pause JOB on all workers.

    Requests in flight are finished and committed. On a cluster they have up to a minute; items
    that take longer are attempted again. `longline resume JOB` continues the job.
    """
    stop_job(home, Orchestrator.pause, job, as_json=as_json)


def stop_job(
    home: Path | None,
    stop: Callable[[Orchestrator, str], Awaitable[Job]],
    name: str,
    *,
    as_json: bool,
) -> None:
    """Pause or cancel a job, and print its new state."""

    async def stopped() -> tuple[Job, Job]:
        async with Orchestrator(settings=settings_of(home)) as orchestrator:
            return await orchestrator.store.jobs.get(name), await stop(orchestrator, name)

    before, job = asyncio.run(stopped())
    if as_json:
        print_json({"job": job.id, "state": job.state.value, "reason": job.reason})
    else:
        already = "already " if job.state is before.state else ""
        click.echo(f"{job.id} is {already}{job.state.value}")
