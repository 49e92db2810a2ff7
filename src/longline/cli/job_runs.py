"""Running a job in front of a person: live progress, safe interruption, a summary."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import click

from longline.cli.display import Display, print_summary
from longline.cli.options import print_json
from longline.core.model import Job
from longline.core.threads import use_daemon_threads
from longline.engine.report import INTERRUPTED, JobReport
from longline.orchestrator import Orchestrator


async def run_shown(
    orchestrator: Orchestrator,
    start: Callable[[dict[str, Any]], Awaitable[JobReport]],
    *,
    as_json: bool,
    is_left: bool = False,
) -> int:
    """Run a job with everything a person expects around it; return the exit code.

    `is_left`: workers do it, who write its records as well if they are to be written.
    """
    use_daemon_threads()
    display = Display(is_quiet=as_json)

    def announce(job: Job, is_new: bool) -> None:  # noqa: FBT001  # called by the orchestrator
        word = "new job" if is_new else "going on with"
        display.say(f"{word} {job.id} (ctrl-c stops it safely)")

    def told_to_stop() -> None:
        display.say("finishing what is in flight; press ctrl-c again to stop at once")

    try:
        async with orchestrator:
            with orchestrator.handling_signals(told_to_stop), display:
                report = await start(
                    {
                        "on_progress": None if as_json else display.update,
                        "on_start": announce,
                        "on_trouble": lambda text: display.say(text, is_trouble=True),
                    }
                )
    except asyncio.CancelledError:
        click.echo("stopped at once; run the same command again to go on", err=True)
        return INTERRUPTED
    if as_json:
        print_json(report.as_dict())
    else:
        print_summary(report)
        _tell_export(report, is_left=is_left)
    return report.exit_code


def _tell_export(report: JobReport, *, is_left: bool) -> None:
    if report.unwritten:
        click.echo(f"  export    not written: {report.unwritten}")
    elif report.output:
        left = f", which a worker writes; longline jobs {report.job} tells what came of it"
        click.echo(f"  export    {report.output}{left if is_left else ''}")
