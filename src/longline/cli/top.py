"""longline top: all jobs and workers, live."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.cli.showing import cleaned
from longline.cli.sites_table import row_of, sites_table
from longline.clock import SystemClock, moment
from longline.config.settings import Settings
from longline.errors import LonglineError
from longline.jobs.sites import SiteProgress, progress_of
from longline.stores.store import Store, open_store

_RECENT = 5  # jobs that have ended are shown as well, so many at most
_AN_HOUR = 3600.0


@click.command("top")
@click.option("--once", is_flag=True, help="Show one picture and end; so it is without a terminal.")
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=1.0, show_default=True, help="Seconds."
)
@home_option
@json_option
def command(*, once: bool, every: float, home: Path | None, as_json: bool) -> None:
    """Watch all jobs and workers live; ctrl-c ends it and nothing else."""
    settings = settings_of(home)
    console = Console()
    if as_json:
        print_json(asyncio.run(_one(settings)).as_dict())
    elif once or not console.is_terminal:
        console.print(shown(asyncio.run(_one(settings))))
    else:
        try:
            asyncio.run(_watch(settings, console, every))
        except KeyboardInterrupt:
            sys.exit(0)


@dataclass(frozen=True, slots=True)
class Picture:
    """What happens at one moment; `speeds` are items a minute by job."""

    at: float
    jobs: Sequence[SiteProgress]
    workers: Sequence[Any]
    trouble: str | None
    speeds: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "jobs": [job.as_dict() for job in self.jobs],
            "workers": [asdict(worker) for worker in self.workers],
            "trouble": self.trouble,
        }


async def _one(settings: Settings) -> Picture:
    with open_store(settings.database) as store:
        return await picture(settings, store)


async def _watch(settings: Settings, console: Console, every: float) -> None:
    before: Picture | None = None
    with (
        open_store(settings.database) as store,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            before = await picture(settings, store, before)
            live.update(shown(before), refresh=True)
            await asyncio.sleep(every)


async def picture(settings: Settings, store: Store, before: Picture | None = None) -> Picture:
    """Look at all open jobs, the newest that have ended, and the workers."""
    now = SystemClock().now()
    opened = await store.jobs.list(limit=None, is_open=True)
    ended = [
        job
        for job in await store.jobs.list(limit=_RECENT)
        if job.finished_at is not None and job.finished_at > now - _AN_HOUR
    ]
    jobs = [await progress_of(store, job) for job in [*opened, *ended]]
    workers, trouble = await _workers(settings)
    return Picture(now, jobs, workers, trouble, _speeds(jobs, now, before))


async def _workers(settings: Settings) -> tuple[Sequence[Any], str | None]:
    if settings.broker is None:
        return (), None
    from longline.cluster.presence import Presences  # noqa: PLC0415  # an optional part

    try:
        async with Presences.open(settings) as presences:
            return await presences.all(), None
    except LonglineError as error:
        return (), str(error)


def _speeds(jobs: Sequence[SiteProgress], now: float, before: Picture | None) -> dict[str, float]:
    if before is None or now <= before.at:
        return {}
    then = {job.job: job.completed_items for job in before.jobs}
    passed = now - before.at
    return {
        job.job: (job.completed_items - then[job.job]) * 60 / passed
        for job in jobs
        if job.job in then
    }


def shown(picture: Picture) -> RenderableType:
    """Return a picture as people see it."""
    parts: list[RenderableType] = [
        Text(f"longline, {moment(picture.at):%Y-%m-%d %H:%M:%S} UTC", style="bold"),
        Text(""),
    ]
    if picture.jobs:
        rows = [row_of(job, picture.speeds.get(job.job)) for job in picture.jobs]
        parts.append(sites_table(rows, first="job"))
        parts += [
            Text(cleaned(f"{job.job}: {job.reason}"), style="yellow")
            for job in picture.jobs
            if job.reason
        ]
    else:
        parts.append(Text("no job is open, and none has ended within the last hour"))
    if picture.trouble:
        parts += [Text(""), Text(picture.trouble, style="red")]
    if picture.workers:
        parts += [Text(""), _worker_table(picture)]
    return Group(*parts)


def _worker_table(picture: Picture) -> Table:
    table = Table(box=None, padding=(0, 1))
    for name in ("worker", "host", "pid", "processes", "queues", "chunks", "last one", "up"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for worker in picture.workers:
        last = worker.last_taken_at
        table.add_row(
            escape(cleaned(worker.name)),
            escape(cleaned(worker.host)),
            str(worker.pid),
            str(worker.processes),
            ", ".join(worker.queues),
            f"{worker.chunks:,}",
            "none yet" if last is None else f"{max(0.0, picture.at - last):.0f} s ago",
            f"{max(0.0, picture.at - worker.started_at) / 60:.0f} min",
        )
    return table
