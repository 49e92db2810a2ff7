"""longline retry: attempt failed items of a job again."""

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
from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.orchestrator import EngineName, Orchestrator

_KINDS = [kind.value for kind in FailureKind]


@click.command("retry")
@click.argument("job", type=JOB)
@click.option("--kind", type=click.Choice(_KINDS), help="Only items with this kind of failure.")
@click.option(
    "--state",
    type=click.Choice(["failed", "quarantined", "skipped"]),
    help="Only items in this state.",
)
@click.option("--key", metavar="KEY", help="Only this item.")
@engine_option("as in its last run")
@job_ignore_robots_option
@log_options
@home_option
@json_option
def command(
    job: str,
    *,
    kind: str | None,
    state: str | None,
    key: str | None,
    engine: EngineName | None,
    ignore_robots: tuple[str, ...],
    home: Path | None,
    as_json: bool,
) -> None:
    """Requeue failed items of JOB and run it.

    Without --kind, --state and --key, all failed and quarantined items are requeued, and those
    that were skipped because of a failure.
    """
    orchestrator = Orchestrator(settings=settings_of(home))
    sys.exit(
        asyncio.run(
            run_job(
                orchestrator,
                lambda hooks: orchestrator.retry(
                    job,
                    kind=FailureKind(kind) if kind else None,
                    state=ItemState(state) if state else None,
                    key=key,
                    engine=engine,
                    ignore_robots=ignore_robots,
                    **hooks,
                ),
                as_json=as_json,
            )
        )
    )
