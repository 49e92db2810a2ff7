"""longline top: all jobs and workers, live."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from longline.cli.format import SafeConsole, SafeLive, cleaned, plain_console
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.cli.tables import Fitting, row_of, sites_table
from longline.config.settings import Settings
from longline.core.clock import SystemClock, utc_datetime
from longline.core.errors import LonglineError
from longline.engine.owner import is_abandoned
from longline.engine.progress import rest_after
from longline.engine.sites import SiteProgress, progress_of
from longline.storage.database import open_database
from longline.storage.errors import StoreGone
from longline.storage.store import Store, open_store

_RECENT = 5  # jobs that have ended are shown as well, so many at most
_AN_HOUR = 3600.0
_PATIENCE = 2.0  # seconds for a server that is away, before people are told
_MARK = re.compile(r"~[0-9a-f]{8}(?![0-9a-f])")  # of a host, see jobs/owner.py


@click.command("top")
@click.option("--once", is_flag=True, help="Show one picture and end; so it is without a terminal.")
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=1.0, show_default=True, help="Seconds."
)
@home_option
@json_option
def command(*, once: bool, every: float, home: Path | None, as_json: bool) -> None:
    """Watch all jobs and workers live; ctrl-c ends it and nothing else.

    With --json it is one picture, as with --once.
    """
    settings = settings_of(home)
    console = plain_console()
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
    """What happens at one moment; `speeds` are items a minute by job.

    On jobs that are `abandoned` nobody works, whatever their state says.
    """

    at: float
    jobs: Sequence[SiteProgress]
    workers: Sequence[Any]
    trouble: str | None
    speeds: dict[str, float]
    abandoned: frozenset[str] = frozenset()

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "jobs": [
                job.as_dict() | {"is_abandoned": job.job in self.abandoned} for job in self.jobs
            ],
            "workers": [asdict(worker) for worker in self.workers],
            "trouble": self.trouble,
        }


async def _one(settings: Settings) -> Picture:
    with open_store(settings.database) as store:
        return await picture(settings, store)


async def _watch(settings: Settings, console: SafeConsole, every: float) -> None:
    before: Picture | None = None
    with (
        Store(open_database(settings.database, patience=_PATIENCE)) as store,
        SafeLive(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            begun, pause = time.monotonic(), every
            try:
                before = await picture(settings, store, before)
                pause = rest_after(time.monotonic() - begun, every=every)
                live.update(shown(before), refresh=True)
            except StoreGone as error:
                live.update(_waiting(error, before), refresh=True)
            await asyncio.sleep(pause)


def _waiting(error: StoreGone, before: Picture | None) -> RenderableType:
    """Return that the database is away, below what was last seen."""
    problem = cleaned(f"the database does not answer ({error.problem}); waiting for it")
    trouble = Text(problem, style="red")
    return Group(shown(before), Text(""), trouble) if before else trouble


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
    left = frozenset([job.id for job in opened if await is_abandoned(store, job, now)])
    return Picture(now, jobs, workers, trouble, _speeds(jobs, now, before), left)


async def _workers(settings: Settings) -> tuple[Sequence[Any], str | None]:
    if settings.broker is None:
        return (), None
    from longline.distributed.registry import Presences  # noqa: PLC0415  # an optional part

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
        Text(f"longline, {utc_datetime(picture.at):%Y-%m-%d %H:%M:%S} UTC", style="bold"),
        Text(""),
    ]
    if picture.jobs:
        rows = [
            row_of(job, picture.speeds.get(job.job), is_abandoned=job.job in picture.abandoned)
            for job in picture.jobs
        ]
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


def _worker_table(picture: Picture) -> Fitting:
    numbers = ("pid", "processes", "chunks")
    table = Fitting(
        "worker",
        "host",
        "pid",
        "processes",
        "queues",
        "chunks",
        "last one",
        "up",
        right=numbers,
        least=("host", "queues", "pid", "up", "processes"),
    )
    names = short_names(worker.name for worker in picture.workers)
    hosts = short_names(worker.host for worker in picture.workers)
    for worker in picture.workers:
        last = worker.last_taken_at
        table.add(
            names[worker.name],
            hosts[worker.host],
            str(worker.pid),
            str(worker.processes),
            ", ".join(worker.queues),
            f"{worker.chunks:,}",
            "none yet" if last is None else f"{max(0.0, picture.at - last):.0f} s ago",
            f"{max(0.0, picture.at - worker.started_at) / 60:.0f} min",
        )
    return table


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return names without the mark of their host, but for those that would be the same then."""
    short = {name: _MARK.sub("", name) for name in names}
    often = Counter(short.values())
    return {name: one if often[one] == 1 else name for name, one in short.items()}
