"""longline resume: go on with an unfinished job."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from longline.cli.job_runs import run_shown
from longline.cli.options import (
    JOB,
    engine_option,
    home_option,
    ignore_robots_option,
    json_option,
    settings_of,
)
from longline.orchestrator import EngineName, Orchestrator


@click.command("resume")
@click.argument("job", type=JOB, required=False)
@click.option("--checkpoint", help="The job of this checkpoint document, or 'latest'.")
@click.option("--from-key", help="Leave out unfinished items that were found before this one.")
@engine_option("as it was run last")
@ignore_robots_option
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
    """Go on with an unfinished job.

    Without JOB, the newest unfinished one. The beginning of a job's id is enough. It goes on where
    it was run last, here or with workers, unless --engine says otherwise.
    """
    orchestrator = Orchestrator(settings=settings_of(home))
    sys.exit(
        asyncio.run(
            run_shown(
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
