"""longline pause: have whoever works on a job stop, for now."""

from __future__ import annotations

from pathlib import Path

import click

from longline.cli.options import home_option, json_option
from longline.cli.stopping import stop


@click.command("pause")
@click.argument("job")
@home_option
@json_option
def command(job: str, *, home: Path | None, as_json: bool) -> None:
    """Have whoever works on JOB stop, on this machine or another.

    What is in flight is finished and committed; `longline resume JOB` goes on.
    """
    stop(home, lambda orchestrator: orchestrator.pause(job), as_json=as_json)
