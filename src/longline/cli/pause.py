"""longline pause: stop a job that anybody works on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.model import Job
from longline.orchestrator import Orchestrator


@click.command("pause")
@click.argument("job")
@home_option
@json_option
def command(job: str, *, home: Path | None, as_json: bool) -> None:
    """Have whoever works on JOB stop, on this machine or another.

    What is in flight is finished and committed; `longline resume JOB` goes on.
    """
    found = asyncio.run(_stopped(Orchestrator(settings=settings_of(home)), job))
    if as_json:
        print_json({"job": found.id, "state": found.state.value, "reason": found.reason})
    else:
        click.echo(f"{found.id} is {found.state.value}")


async def _stopped(orchestrator: Orchestrator, job: str) -> Job:
    async with orchestrator:
        return await orchestrator.pause(job)
