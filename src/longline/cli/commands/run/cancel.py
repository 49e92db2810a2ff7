"""longline cancel: end a job permanently."""

from __future__ import annotations

from pathlib import Path

import click

from longline.cli.commands.run.pause import stop_job
from longline.cli.options import JOB, home_option, json_option
from longline.orchestrator import Orchestrator


@click.command("cancel")
@click.argument("job", type=JOB)
@home_option
@json_option
def command(job: str, *, home: Path | None, as_json: bool) -> None:
    """Cancel JOB on all workers.

    Records stay; items that are not finished are never collected. Requests in flight are finished
    and committed; on a cluster they have up to a minute. A cancelled job cannot be resumed: the
    same `longline run` starts a new one.
    """
    stop_job(home, Orchestrator.cancel, job, as_json=as_json)
