"""Stopping a job that anybody works on, for the commands that do so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import click

from longline.cli.options import print_json, settings_of
from longline.core.model import Job
from longline.orchestrator import Orchestrator

Stop = Callable[[Orchestrator, str], Awaitable[Job]]
"""One of the ways to stop a job, by its name."""


def stop(home: Path | None, how: Stop, name: str, *, as_json: bool) -> None:
    """Stop a job in one way or another, and tell what it is now."""
    before, job = asyncio.run(_stopped(Orchestrator(settings=settings_of(home)), how, name))
    if as_json:
        print_json({"job": job.id, "state": job.state.value, "reason": job.reason})
    else:
        already = " already" if job.state is before.state else ""
        click.echo(f"{job.id} is {job.state.value}{already}")


async def _stopped(orchestrator: Orchestrator, how: Stop, name: str) -> tuple[Job, Job]:
    """Return the job before and after."""
    async with orchestrator:
        return await orchestrator.store.jobs.get(name), await how(orchestrator, name)
