"""longline cancel: stop a job that anybody works on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.model import Job
from longline.orchestrator import Orchestrator


@click.command("cancel")
@click.argument("job")
@home_option
@json_option
def command(job: str, *, home: Path | None, as_json: bool) -> None:
    """End JOB for good, wherever it is worked on.

    What was stored stays; what was not collected yet never will be. The same command as before
    starts a new job.
    """
    found = asyncio.run(_stopped(Orchestrator(settings=settings_of(home)), job))
    if as_json:
        print_json({"job": found.id, "state": found.state.value, "reason": found.reason})
    else:
        click.echo(f"{found.id} is {found.state.value}")


async def _stopped(orchestrator: Orchestrator, job: str) -> Job:
    async with orchestrator:
        return await orchestrator.cancel(job)
