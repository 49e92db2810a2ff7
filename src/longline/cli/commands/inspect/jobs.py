"""longline jobs: list jobs, or show one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.options import COUNT, JOB, home_option, json_option
from longline.cli.output import iso_time, one_line, print_json, time_text
from longline.cli.queries import with_store
from longline.cli.table import TextTable
from longline.core.clock import SystemClock
from longline.core.json_text import as_text
from longline.core.model import OPEN_STATES, ItemState, Job
from longline.core.output import sanitize
from longline.engine.owner import in_words, is_abandoned
from longline.engine.tasks import holder_of
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

_SHOWN = ("job.", "lease", "checkpoint.", "export.", "source.", "discovery.")  # not those of items
_ABANDONED = "no process runs this job; resume it"


@click.command("jobs")
@click.argument("job", type=JOB, required=False)
@click.option("--limit", type=COUNT, default=20, show_default=True, help="Maximum number of jobs.")
@home_option
@json_option
def command(job: str | None, *, limit: int, home: Path | None, as_json: bool) -> None:
    """List jobs, or show one with its settings, counts and events.

    Pending tasks of the job, such as exports, are shown with it.
    """
    if job is None:
        rows = with_store(home, lambda store: _list_jobs(store, limit))
        _print_jobs(rows, as_json=as_json)
        return
    found = with_store(home, lambda store: _job(store, job))
    if as_json:
        print_json(found)
        return
    note = f" ({_ABANDONED})" if found["is_abandoned"] else ""
    shown = found | {"state": f"{shown_state(found)}{note}"}
    for name, value in shown.items():
        if name not in {"events", "is_abandoned", "tasks"}:
            text = value if isinstance(value, str) else as_text(value)
            click.echo(sanitize(f"{name:12} {text}", is_line=True))
    for event in found["events"]:
        data = sanitize(as_text(event["data"]), is_line=True)
        click.echo(f"  {time_text(event['at'], seconds=True)}  {event['kind']}  {data}")
    _print_tasks(found["tasks"])


async def _list_jobs(store: Store, limit: int) -> list[dict[str, Any]]:
    return [await _job_row(store, job) for job in await store.jobs.list(limit=limit)]


async def _job_row(store: Store, job: Job) -> dict[str, Any]:
    counts = await store.queue.counts(job.id)
    return {
        "job": job.id,
        "source": job.source,
        "state": job.state.value,
        "is_abandoned": await is_abandoned(store, job, SystemClock().now()),
        "created_at": iso_time(job.created_at),
        "discovered": sum(counts.values()),
        **{state.value: counts[state] for state in ItemState},
        "reason": job.reason,
    }


async def _job(store: Store, name: str) -> dict[str, Any]:
    job = await store.jobs.get(name)
    events = await store.events.list(job.id, with_items=False)
    now = await store.now()
    return {
        **await _job_row(store, job),
        **(await store.jobs.caveats(job.id)).as_dict(),
        "settings": dict(job.settings),
        "statistics": await store.events.statistics(job.id),
        "tasks": [_task_json(task, job, now) for task in await store.tasks.of(job.id)],
        "events": [asdict(event) for event in events if event.kind.startswith(_SHOWN)],
    }


def _task_json(task: Task, job: Job, now: float) -> dict[str, Any]:
    held_by = holder_of(task, now)
    is_early = task.is_after_end and job.state in OPEN_STATES
    return {
        "task": task.name,
        "kind": task.kind.value,
        "output": task.what.get("output"),
        "placed_at": iso_time(task.placed_at),
        "held_by": held_by,
        "waits_for": None if held_by else "the end of the job" if is_early else "a worker",
    }


def _print_tasks(tasks: Sequence[Mapping[str, Any]]) -> None:
    if tasks:
        click.echo("pending tasks")
    for task in tasks:
        is_export = task["kind"] == TaskKind.EXPORT
        what = f"export to {task['output']}" if is_export else "call Source.finished"
        held_by = task["held_by"]
        state = f"held by {in_words(held_by)}" if held_by else f"waits for {task['waits_for']}"
        click.echo(f"  {task['placed_at'][:19].replace('T', ' ')}  {one_line(f'{what}: {state}')}")


def shown_state(row: dict[str, Any]) -> str:
    """Return the state of a job as people see it: `abandoned` if its process was killed."""
    return "abandoned" if row["is_abandoned"] else str(row["state"])


def _print_jobs(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no jobs yet; try: longline demo")
        return
    numbers = ("items", "ok", "failed")
    table = TextTable(
        "job",
        "state",
        "created (UTC)",
        *numbers,
        "reason",
        right=numbers,
        drop=("created (UTC)", "ok", "items", "failed"),
        note="reason",
        wrap=("job",),
    )
    for row in rows:
        table.add(
            row["job"],
            shown_state(row),
            row["created_at"][:16],
            row["discovered"],
            row["stored"] + row["unchanged"],
            row["failed"] + row["quarantined"],
            row["reason"] or (_ABANDONED if row["is_abandoned"] else ""),
        )
    table.print()
