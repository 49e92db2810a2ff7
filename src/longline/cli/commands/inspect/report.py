"""longline report: the performance and validation of a job."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from longline.analysis.job_report import JobReport, as_markdown, build_report
from longline.cli.exit_codes import ExitCode
from longline.cli.options import JOB, home_option, json_option
from longline.cli.output import print_json
from longline.cli.queries import with_store
from longline.core.clock import SystemClock
from longline.core.errors import NoJobsYet
from longline.engine.progress import ProgressTracker
from longline.export.atomic_files import atomic_write
from longline.storage.store import Store


@click.command("report")
@click.argument("job", type=JOB, required=False)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report to a Markdown file.",
)
@home_option
@json_option
def command(job: str | None, *, output: Path | None, home: Path | None, as_json: bool) -> None:
    """Report on the performance and checks of a job.

    JOB defaults to the newest. Exits with 3 when a check fails.
    """
    result = with_store(home, lambda store: _audit(store, job))
    if output:
        with atomic_write(output) as target:
            target.write(as_markdown(result, SystemClock().now()).encode())
    if as_json:
        print_json(result.as_dict())
    elif output:
        click.echo(f"wrote the report of {result.job} to {output}")
    else:
        click.echo(as_markdown(result, SystemClock().now()), nl=False)
    sys.exit(ExitCode.OK if result.is_good else ExitCode.PARTIAL)


async def _audit(store: Store, name: str | None) -> JobReport:
    newest = await store.jobs.list(limit=1)
    if name is None and not newest:
        raise NoJobsYet
    job = newest[0] if name is None else await store.jobs.get(name)
    progress = await ProgressTracker(store, job.id).snapshot()
    findings = await store.jobs.findings(job.id, job.source)
    caveats = await store.jobs.caveats(job.id)
    return build_report(progress, findings, reason=job.reason, caveats=caveats)
