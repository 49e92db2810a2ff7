"""longline resume: continue an unfinished job."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from longline.cli.log_options import log_options
from longline.cli.options import (
    JOB,
    engine_option,
    home_option,
    job_ignore_robots_option,
    json_option,
    settings_of,
)
from longline.cli.progress import run_job
from longline.orchestrator import EngineName, Orchestrator


@click.command("resume")
@click.argument("job", type=JOB, required=False)
@click.option("--checkpoint", metavar="ID", help="Resume the job of a checkpoint, or 'latest'.")
@click.option("--from-key", metavar="KEY", help="Skip unfinished items discovered before KEY.")
@engine_option("as in its last run")
@job_ignore_robots_option
@log_options
@home_option
@json_option
def command(
    job: str | None,
    *,
    checkpoint: str | None,
    from_key: str | None,
    engine: EngineName | None,
    ignore_robots: tuple[str, ...],
    home: Path | None,
    as_json: bool,
) -> None:
    """Resume an unfinished job.

    JOB is a job id or the beginning of one; by default the newest unfinished job.
    """
    orchestrator = Orchestrator(settings=settings_of(home))
    sys.exit(
        asyncio.run(
            run_job(
                orchestrator,
                lambda hooks: orchestrator.resume(
                    job,
                    checkpoint=checkpoint,
                    from_key=from_key,
                    engine=engine,
                    ignore_robots=ignore_robots,
                    **hooks,
                ),
                as_json=as_json,
            )
        )
    )
