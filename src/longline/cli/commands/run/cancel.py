"""longline cancel: end a job for good."""

from __future__ import annotations

from pathlib import Path

import click

from longline.cli.options import JOB, home_option, json_option
from longline.cli.stopping import stop
from longline.orchestrator import Orchestrator


@click.command("cancel")
@click.argument("job", type=JOB)
@home_option
@json_option
def command(job: str, *, home: Path | None, as_json: bool) -> None:
    """End JOB for good, wherever it is worked on.

    What was stored stays; what was not collected yet never will be. What is in flight is finished
    and committed; on a cluster it has a minute for that at most. The same command as before starts
    a new job.
    """
    stop(home, Orchestrator.cancel, job, as_json=as_json)
