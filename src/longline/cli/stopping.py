"""Stopping a job that anybody works on, for the commands that do so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from longline.cli.options import print_json, settings_of
from longline.model import Job
from longline.orchestrator import Orchestrator


def stop(
    home: Path | None, how: Callable[[Orchestrator], Awaitable[Job]], *, as_json: bool
) -> None:
    """Stop a job in one way or another, and tell what it is now."""
    job = asyncio.run(_stopped(Orchestrator(settings=settings_of(home)), how))
    if as_json:
        print_json({"job": job.id, "state": job.state.value, "reason": job.reason})
    else:
        click.echo(f"{job.id} is {job.state.value}")


async def _stopped(
    orchestrator: Orchestrator, how: Callable[[Orchestrator], Awaitable[Job]]
) -> Job:
    async with orchestrator:
        return await how(orchestrator)
