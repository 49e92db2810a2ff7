"""longline jobs, failures, checkpoints, drift: inspect jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from longline.cli.options import (
    COUNT,
    JOB,
    ShowByDefault,
    common_options,
    failure_options,
    home_or_server_options,
    settings_of,
)
from longline.cli.output import TextTable, iso_time, one_line, print_line, print_result, time_text
from longline.cli.queries import uses_store
from longline.cli.remote import first, iso_text, or_on_server, page_size, seconds_of
from longline.core.clock import SystemClock
from longline.core.json import as_text
from longline.core.model import OPEN_STATES, ItemState, Job
from longline.core.output import count_text, sanitize
from longline.drift.monitor import accept_profile, drift_of, sources_watched
from longline.engine.owner import describe_owner, is_abandoned
from longline.engine.report import holder_of
from longline.engine.watch import Checkpoints
from longline.storage.queue.failures import FailureQuery
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store

if TYPE_CHECKING:
    from longline.client.client import Client
    from longline.server import models

_SHOWN_EVENTS = ("job.", "lease", "checkpoint.", "export.", "source.", "discovery.")  # not of items
_JOB_EVENTS = ("job.*", "leases.*", "checkpoint.*", "export.*", "source.*", "discovery.*")
_EVENTS = 1000  # of a job on a server that are shown
_ABANDONED = "no process runs this job; resume it"


async def _jobs_on_server(client: Client, job: str | None, *, limit: int) -> None:
    if job is None:
        listed = client.each(client.list_jobs, limit=page_size(limit))
        rows = [_remote_job_row(one) for one in await first(listed, limit)]
        print_result(rows, lambda: _print_jobs(rows))
        return
    found = await client.get_job(job)
    events = client.each(client.list_events, job=found.id, types=_JOB_EVENTS)
    shown = {
        **_remote_job_row(found),
        "settings": found.settings,
        "statistics": found.statistics,
        "events": [
            {**one.model_dump(), "at": seconds_of(one.at)} for one in await first(events, _EVENTS)
        ],
    }
    print_result(shown, lambda: _print_job(shown))


def _remote_job_row(job: models.Job) -> dict[str, Any]:
    """Return a job of a server as `_job_row` does; whether it is abandoned is not known."""
    return {
        "job": job.id,
        "source": job.source,
        "state": job.state.value,
        "is_abandoned": None,
        "created_at": iso_text(job.created_at),
        "discovered": sum(job.items.values()),
        **{state.value: job.items.get(state, 0) for state in ItemState},
        "reason": job.reason,
    }


@click.command("jobs")
@click.argument("job", type=JOB, required=False)
@click.option("--limit", type=COUNT, default=20, help="Maximum number of jobs.")
@home_or_server_options
@or_on_server(_jobs_on_server)
@uses_store
async def jobs_command(store: Store, job: str | None, *, limit: int) -> None:
    """List jobs, or show one with its settings, counts and events.

    With JOB, also shows its pending tasks, such as exports.
    """
    if job is None:
        found = await store.jobs.list(limit=limit)
        counts = await store.queue.counts_of([one.id for one in found])
        rows = [await _job_row(store, one, counts[one.id]) for one in found]
        print_result(rows, lambda: _print_jobs(rows))
        return
    shown = await _job(store, job)
    print_result(shown, lambda: _print_job(shown))


async def _job_row(store: Store, job: Job, counts: Mapping[ItemState, int]) -> dict[str, Any]:
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
        **await _job_row(store, job, await store.queue.counts(job.id)),
        **(await store.jobs.caveats(job.id)).as_dict(),
        "settings": dict(job.settings),
        "statistics": await store.events.statistics(job.id),
        "tasks": [_task_json(task, job, now) for task in await store.tasks.of_job(job.id)],
        "events": [asdict(event) for event in events if event.type.startswith(_SHOWN_EVENTS)],
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


def _print_jobs(rows: list[dict[str, Any]]) -> None:
    columns = ("job", "state", "created (UTC)", "items", "ok", "failed", "reason")
    drop = ("created (UTC)", "ok", "items", "failed")
    table = TextTable(*columns, drop=drop, note="reason")
    for row in rows:
        is_dead = row["is_abandoned"]
        table.add(
            row["job"],
            "abandoned" if is_dead else row["state"],
            row["created_at"][:16],
            row["discovered"],
            row["stored"] + row["unchanged"],
            row["failed"] + row["quarantined"],
            row["reason"] or (_ABANDONED if is_dead else ""),
        )
    table.print("no jobs yet; try: longline demo")


def _print_job(found: dict[str, Any]) -> None:
    shown = {**found, "state": f"abandoned ({_ABANDONED})"} if found["is_abandoned"] else found
    for name, value in shown.items():
        if name not in {"events", "is_abandoned", "tasks"}:
            text = value if isinstance(value, str) else as_text(value)
            click.echo(sanitize(f"{name:12} {text}", is_line=True))  # of any length
    for event in found["events"]:
        data = sanitize(as_text(event["data"]), is_line=True)
        click.echo(f"  {time_text(event['at'], seconds=True)}  {event['type']}  {data}")
    tasks = found.get("tasks", ())  # a server does not list them
    if tasks:
        click.echo("pending tasks")
    for task in tasks:
        is_export = task["kind"] == TaskKind.EXPORT
        what = f"export to {task['output']}" if is_export else "call Source.finished"
        held_by = task["held_by"]
        state = (
            f"held by {describe_owner(held_by)}" if held_by else f"waits for {task['waits_for']}"
        )
        print_line(f"  {task['placed_at'][:19].replace('T', ' ')}  {what}: {state}")


# ---------------- failures

_STATES = (ItemState.FAILED, ItemState.QUARANTINED, ItemState.SKIPPED, ItemState.QUEUED)


@click.command("failures")
@click.argument("job", type=JOB)
@failure_options(*_STATES)
@click.option("--limit", type=COUNT, default=50, help="Maximum number of items.")
@click.option("--attempts", is_flag=True, help="Show every attempt with its time and status.")
@common_options
@uses_store
async def failures_command(store: Store, job: str, *, attempts: bool, **wanted: Any) -> None:
    """List failed items of JOB, with failure kinds and attempts.

    After fixing the cause, attempt them again with `longline retry JOB --kind KIND`.
    """
    name = (await store.jobs.get(job)).id
    found: dict[str, Any] = {
        "job": name,
        "kinds": await store.failures.by_kind(name),
        "items": await store.failures.failed_items(FailureQuery(name, **wanted)),
    }
    values = {**found, "items": [asdict(one) for one in found["items"]]}
    print_result(values, lambda: _print_failures(found, has_attempts=attempts))


def _print_failures(found: dict[str, Any], *, has_attempts: bool) -> None:
    columns = ("attempts", *(state.value for state in _STATES))
    table = TextTable("kind", *columns)
    for kind, counts in found["kinds"].items():
        table.add(kind, *(counts.get(name) or None for name in columns))
    table.print("no failures in this job")
    for one in found["items"]:
        status = f", last status {one.status}" if one.status else ""
        attempts = f"{count_text(one.tries, 'attempt')}, {count_text(one.requests, 'request')}"
        print_line(one.key, "bold", end=" ")
        print_line(f"{one.state}, {one.kind}, {attempts}{status}")
        print_line(f"  {one.reason or ''}")
        for attempt in one.attempts if has_attempts else ():
            print_line(
                f"    {time_text(attempt['at'], seconds=True)}  {attempt['kind']}  "
                f"{attempt['status'] or 'no response'}  {attempt['seconds']:.2f} s  "
                f"{attempt['step']}: {attempt['reason']}"
            )


# ---------------- checkpoints


@click.command("checkpoints")
@click.argument("job", type=JOB, required=False)
@common_options
def checkpoints_command(job: str | None) -> None:
    """List checkpoint documents.

    With JOB, only the documents of this job.
    """
    documents = Checkpoints(settings_of().checkpoints).list()
    if job is not None:  # the beginning of its id is enough
        documents = [one for one in documents if one["job"].startswith(job)]
    lines = [
        f"{one['checkpoint_id']}  {one['job']}  {one['state']}  "
        f"{one['processed']} of {one['total']} processed, {one['failed']} failed"
        for one in documents
    ]
    print_result(documents, lambda: click.echo("\n".join(lines) or "no checkpoints yet"))


# ---------------- drift

_TYPICAL = ("typical value before", "typical value now")
_UNITS = {"text": " characters", "list": " entries"}


@click.group("drift", cls=ShowByDefault)
def drift_command() -> None:
    """Show changes in the fields of sources, and accept them.

    `longline drift` lists sources, `longline drift SOURCE` shows the fields of one.
    """


@drift_command.command("show")
@click.argument("source", required=False)
@common_options
@uses_store
async def show_drift(store: Store, source: str | None) -> None:
    """Compare the fields of SOURCE in its last run with earlier runs.

    Without SOURCE, list the last run of every source.
    """
    if source is None:
        rows = await sources_watched(store)
        values = [{**row, "at": iso_time(row["at"])} for row in rows]
        print_result(values, lambda: _print_watched_sources(rows))
        return
    seen = await drift_of(store, source)
    print_result({**seen, "at": iso_time(seen["at"])}, lambda: _print_drift(seen))


@drift_command.command("accept")
@click.argument("job", type=JOB)
@common_options
@uses_store
async def accept_job(store: Store, job: str) -> None:
    """Use the records of JOB as the baseline of later runs."""
    kept = await accept_profile(store, job, SystemClock().now())
    print_result(
        {"job": kept.job, "source": kept.source, "is_accepted": True},
        lambda: click.echo(f"{kept.job} is now the baseline of {kept.source}"),
    )


def _print_watched_sources(rows: Sequence[dict[str, Any]]) -> None:
    table = TextTable(
        "source",
        "last run",
        "ended (UTC)",
        "records",
        "drift",
    )
    for row in rows:
        table.add(row["source"], row["job"], time_text(row["at"]), row["records"], _drift(row))
    table.print("no run has ended yet; try: longline demo")


def _print_drift(seen: dict[str, Any]) -> None:
    baseline = seen["baseline"]
    records = count_text(seen["records"], "record")
    click.echo(f"{seen['source']}: last run {seen['job']}, {records}")
    runs = count_text(baseline["runs"], "earlier run")
    click.echo(f"baseline: {runs}, {count_text(baseline['records'], 'record')}")
    columns = ("filled before", "filled now", "type before", "type now", *_TYPICAL)
    table = TextTable("field", *columns)
    for row in seen["fields"]:
        before, now = _cells(row["before"]), _cells(row["now"])
        table.add(row["field"], *(cell for pair in zip(before, now, strict=True) for cell in pair))
    table.print()
    click.echo(f"drift: {one_line(_drift(seen))}")


def _drift(row: dict[str, Any]) -> str:
    if row["is_accepted"]:
        return "accepted"
    if row["is_sound"]:
        return "none"
    return ", ".join(row["drift"]) or str(row["reason"])


def _cells(field: dict[str, Any] | None) -> tuple[str, str, str]:
    if field is None:
        return "", "", ""
    kind, middle = field["kind"] or "", field["middle"]
    size = "" if middle is None else f"{middle:g}{_UNITS.get(kind, '')}"
    return f"{field['filled']:.0%}", kind, size
