"""longline pause: have whoever works on a job stop, for now."""

from __future__ import annotations

from pathlib import Path

import click

from longline.cli.options import JOB, home_option, json_option
from longline.cli.stopping import stop
from longline.orchestrator import Orchestrator


@click.command("pause")
@click.argument("job", type=JOB)
@home_option
@json_option
def command(job: str, *, home: Path | None, as_json: bool) -> None:
    """Have whoever works on JOB stop, on this machine or another.

    What is in flight is finished and committed; on a cluster it has a minute for that at most, and
    what takes longer is begun anew. `longline resume JOB` goes on.
    """
    stop(home, Orchestrator.pause, job, as_json=as_json)
