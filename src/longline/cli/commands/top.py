"""longline top: all jobs and workers, live."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from longline.cli.options import common_options, number, settings_of, wants_json
from longline.cli.output import (
    SafeConsole,
    SafeLive,
    TextTable,
    duration_text,
    one_line,
    print_json,
    time_text,
)
from longline.cli.progress import SiteRow, sites_table
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import LonglineError, StoreGone
from longline.engine.owner import is_abandoned
from longline.engine.progress import SiteProgress, progress_of
from longline.storage.store import Store, open_store

_RECENT = 5  # ended jobs that are shown at most
_RECENT_SECONDS = 3600.0
_RESPONSE_TIMEOUT = 2.0  # seconds; after that the display reports that the database is down


@click.command("top")
@click.option(
    "--once",
    is_flag=True,
    help="Print one snapshot and exit (default when stdout is not a terminal).",
)
@click.option(
    "--every",
    type=number(float, 0.2),
    default=1.0,
    metavar="SECONDS",
    help="Refresh interval in seconds.",
)
@common_options
def top_command(*, once: bool, every: float) -> None:
    """Show live progress of all jobs and workers.

    Ctrl-C ends the display; jobs continue. --json prints one snapshot.
    """
    settings = settings_of()
    console = SafeConsole()
    if wants_json():
        print_json(asyncio.run(_read_snapshot(settings)).as_dict())
    elif once or not console.is_terminal:
        console.print(snapshot_view(asyncio.run(_read_snapshot(settings))))
    else:
        try:
            asyncio.run(_watch(settings, console, every))
        except KeyboardInterrupt:
            sys.exit(0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Jobs and workers at one time; `speeds` are items per minute by job."""

    at: float
    jobs: Sequence[SiteProgress]
    workers: Sequence[Any]
    trouble: str | None
    speeds: dict[str, float]
    abandoned: frozenset[str] = frozenset()

    def as_dict(self) -> dict[str, Any]:
        """Return the snapshot for JSON."""
        return {
            "jobs": [
                job.as_dict() | {"is_abandoned": job.job in self.abandoned} for job in self.jobs
            ],
            "workers": [asdict(worker) for worker in self.workers],
            "trouble": self.trouble,
        }


async def _read_snapshot(settings: Settings) -> Snapshot:
    with open_store(settings.database) as store:
        return await take_snapshot(settings, store)


async def _watch(settings: Settings, console: SafeConsole, every: float) -> None:
    last: Snapshot | None = None
    with (
        open_store(settings.database, timeout=_RESPONSE_TIMEOUT) as store,
        SafeLive(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            try:
                last = await take_snapshot(settings, store, last)
                live.update(snapshot_view(last), refresh=True)
            except StoreGone as error:
                text = f"The database does not respond ({error.problem}). Reconnecting."
                problem = Text(one_line(text), style="red")
                parts = (snapshot_view(last), Text(""), problem) if last else (problem,)
                live.update(Group(*parts), refresh=True)
            await asyncio.sleep(every)


async def take_snapshot(settings: Settings, store: Store, last: Snapshot | None = None) -> Snapshot:
    """Return all open jobs, recently ended jobs, and the workers."""
    now = SystemClock().now()
    unfinished = await store.jobs.list(limit=None, is_open=True)
    ended = [
        job
        for job in await store.jobs.list(limit=_RECENT)
        if job.finished_at is not None and job.finished_at > now - _RECENT_SECONDS
    ]
    jobs = [await progress_of(store, job) for job in [*unfinished, *ended]]
    abandoned = [job.id for job in unfinished if await is_abandoned(store, job, now)]
    workers: Sequence[Any] = ()
    trouble = None
    if settings.broker is not None:
        from longline.distributed.registry import Presences  # noqa: PLC0415  # an optional part

        try:
            async with Presences.open(settings) as presences:
                workers = await presences.all()
        except LonglineError as error:
            trouble = str(error)
    speeds = {}
    if last is not None and now > last.at:
        before = {job.job: job.completed_items for job in last.jobs}
        speeds = {
            job.job: (job.completed_items - before[job.job]) * 60 / (now - last.at)
            for job in jobs
            if job.job in before
        }
    return Snapshot(now, jobs, workers, trouble, speeds, frozenset(abandoned))


def snapshot_view(snapshot: Snapshot) -> RenderableType:
    """Return a snapshot as people see it."""
    empty = Text("")
    title = f"longline, {time_text(snapshot.at, seconds=True)} UTC"
    parts: list[RenderableType] = [Text(title, style="bold"), empty]
    rows = [
        SiteRow.of_job(
            job, snapshot.speeds.get(job.job), is_abandoned=job.job in snapshot.abandoned
        )
        for job in snapshot.jobs
    ]
    nothing = Text("no open jobs, and none ended within the last hour")
    parts.append(sites_table(rows, first="job") if rows else nothing)
    reasons = [one_line(f"{job.job}: {job.reason}") for job in snapshot.jobs if job.reason]
    parts += [Text(reason, style="yellow") for reason in reasons]
    if snapshot.trouble:
        parts += [empty, Text(snapshot.trouble, style="red")]
    if snapshot.workers:
        parts += [empty, _worker_table(snapshot)]
    return Group(*parts)


def _worker_table(snapshot: Snapshot) -> TextTable:
    columns = ("worker", "host", "pid", "processes", "queues", "chunks", "last chunk", "up for")
    drop = ("host", "queues", "pid", "up for", "processes")
    table = TextTable(*columns, drop=drop)
    for worker in snapshot.workers:
        last = worker.last_taken_at
        table.add(
            worker.name,
            worker.host,
            str(worker.pid),
            worker.processes,
            ", ".join(worker.queues),
            worker.chunks,
            "none yet" if last is None else f"{duration_text(max(0.0, snapshot.at - last))} ago",
            duration_text(max(0.0, snapshot.at - worker.started_at)),
        )
    return table
