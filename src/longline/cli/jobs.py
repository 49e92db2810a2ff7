"""longline jobs: list jobs, or show one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from longline.cli.options import COUNT, home_option, json_option, print_json
from longline.cli.reading import with_store
from longline.clock import SystemClock, moment
from longline.jobs.owner import is_abandoned
from longline.model import ItemState, Job
from longline.stores.store import Store

_SHOWN = ("job.", "lease", "checkpoint.")  # kinds of events; those of items are too many


@click.command("jobs")
@click.argument("job", required=False)
@click.option("--limit", type=COUNT, default=20, show_default=True)
@home_option
@json_option
def command(job: str | None, *, limit: int, home: Path | None, as_json: bool) -> None:
    """List jobs, or show one with its settings, counts and events."""
    if job is None:
        rows = with_store(home, lambda store: _all(store, limit))
        _print_all(rows, as_json=as_json)
        return
    told = with_store(home, lambda store: _one(store, job))
    if as_json:
        print_json(told)
        return
    shown = told | {"state": _state(told)}
    for name, value in shown.items():
        if name not in {"events", "is_abandoned"}:
            click.echo(f"{name:12} {value}")
    for event in told["events"]:
        click.echo(f"  {moment(event['at']):%Y-%m-%d %H:%M:%S}  {event['kind']}  {event['data']}")


async def _all(store: Store, limit: int) -> list[dict[str, Any]]:
    return [await _row(store, job) for job in await store.jobs.list(limit=limit)]


async def _row(store: Store, job: Job) -> dict[str, Any]:
    counts = await store.queue.counts(job.id)
    return {
        "job": job.id,
        "source": job.source,
        "state": job.state.value,
        "is_abandoned": await is_abandoned(store, job, SystemClock().now()),
        "created_at": moment(job.created_at).isoformat(timespec="seconds"),
        "discovered": sum(counts.values()),
        **{state.value: counts[state] for state in ItemState},
        "reason": job.reason,
    }


async def _one(store: Store, name: str) -> dict[str, Any]:
    job = await store.jobs.get(name)
    events = await store.journal.events(job.id)
    return {
        **await _row(store, job),
        "settings": dict(job.settings),
        "statistics": await store.journal.statistics(job.id),
        "events": [asdict(event) for event in events if event.kind.startswith(_SHOWN)],
    }


def _state(row: dict[str, Any]) -> str:
    return f"{row['state']}{' (nobody works on it)' if row['is_abandoned'] else ''}"


def _print_all(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    # An id that is cut short cannot be resumed.
    job = Column("job", no_wrap=True, min_width=max((len(row["job"]) for row in rows), default=0))
    table = Table(job, "state", "created (UTC)", "items", "ok", "failed", "reason", box=None)
    for row in rows:
        table.add_row(
            row["job"],
            _state(row),
            row["created_at"][:16],
            str(row["discovered"]),
            str(row["stored"] + row["unchanged"]),
            str(row["failed"] + row["quarantined"]),
            escape(row["reason"] or ""),
        )
    Console().print(table if rows else "no jobs yet; try: longline demo")
