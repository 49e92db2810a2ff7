"""Follow a launch on a server to its end: its progress, its result and its exit code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from longline.cli.exit_codes import ExitCode
from longline.cli.options import wants_json
from longline.cli.output import print_line, print_result
from longline.cli.progress import JobDisplay, print_summary
from longline.cli.remote import seconds_of
from longline.core.clock import Clock
from longline.core.model import OPEN_STATES, ItemState
from longline.engine.progress import Progress
from longline.engine.report import JobReport

if TYPE_CHECKING:
    from longline.client.client import Client
    from longline.server import models

_POLL = 0.5  # seconds between two requests for the progress
_NOT_REPORTED = frozenset({"cuts", "warnings", "limited_to", "output"})  # by a server


async def follow_launch(client: Client, launch: models.Launch, clock: Clock) -> int:
    """Show the progress of a launch until it has ended, and its result; return the exit code."""
    display, started = JobDisplay(is_quiet=wants_json()), clock.now()
    display.say(f"Submitted launch {launch.id} (Ctrl-C stops waiting, not the job)")
    job: models.JobDetails | None = None
    with display:
        while launch.ended_at is None:
            await clock.sleep(_POLL)
            launch = await client.get_launch(launch.id)
            if launch.target is not None:
                job = await client.get_job(launch.target)
                if not wants_json():
                    display.update(_progress_of(job, clock.now() - started))
    job = None if launch.target is None else await client.get_job(launch.target)
    if job is None:
        row = {"launch": launch.id, "source": launch.name, "state": launch.result}
        text = f"{launch.result}: {launch.reason or 'the launch ended before its job began'}"
        print_result({**row, "reason": launch.reason}, lambda: print_line(text))
        return ExitCode.PAUSED if launch.result == "cancelled" else ExitCode.FAILED
    ended = seconds_of(job.finished_at) or clock.now()
    seconds = max(0.0, ended - (seconds_of(job.started_at) or started))
    report = JobReport(_progress_of(job, seconds), seconds, job.reason)
    row = {name: one for name, one in report.as_dict().items() if name not in _NOT_REPORTED}
    print_result(row, lambda: print_summary(report))
    return report.exit_code


def _progress_of(job: models.JobDetails, elapsed: float) -> Progress:
    """Return the progress of a job on a server, with its mean speed."""
    counts = Counter({state: job.items.get(state, 0) for state in ItemState})
    waiting = sum(counts[state] for state in (ItemState.QUEUED, ItemState.LEASED))
    done = counts.total() - waiting
    speed = done / elapsed if elapsed > 0 else 0.0
    seconds = job.statistics.get("item_seconds", 0.0)
    is_over = job.state not in OPEN_STATES
    return Progress(
        job=job.id,
        source=job.source,
        state=job.state,
        counts=counts,
        statistics=job.statistics,
        is_discovered=job.is_discovered,
        elapsed=elapsed,
        items_per_minute=speed * 60,
        mean_seconds=seconds / done if done else None,
        eta=0.0 if is_over else waiting / speed if speed and waiting else None,
    )
