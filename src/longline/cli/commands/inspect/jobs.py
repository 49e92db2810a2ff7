"""longline jobs: list jobs, or show one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.format import cleaned, plain_console
from longline.cli.opening import with_store
from longline.cli.options import COUNT, JOB, home_option, json_option, print_json
from longline.cli.tables import Fitting
from longline.cli.tasks_shown import orders_of, print_orders
from longline.core.clock import SystemClock, utc_datetime
from longline.core.model import ItemState, Job
from longline.engine.owner import is_abandoned
from longline.storage.store import Store

# Kinds of events; those of items are too many.
_SHOWN = ("job.", "lease", "checkpoint.", "export.", "source.", "discovery.")
_NOBODY = "nobody works on it"


@click.command("jobs")
@click.argument("job", type=JOB, required=False)
@click.option("--limit", type=COUNT, default=20, show_default=True)
@home_option
@json_option
def command(job: str | None, *, limit: int, home: Path | None, as_json: bool) -> None:
    """List jobs, or show one with its settings, counts and events.

    With them, the exports and other orders of a job that are still to be carried out.
    """
    if job is None:
        rows = with_store(home, lambda store: _all(store, limit))
        _print_all(rows, as_json=as_json)
        return
    told = with_store(home, lambda store: _one(store, job))
    if as_json:
        print_json(told)
        return
    note = f" ({_NOBODY})" if told["is_abandoned"] else ""
    shown = told | {"state": f"{state_of(told)}{note}"}
    for name, value in shown.items():
        if name not in {"events", "is_abandoned", "orders"}:
            click.echo(cleaned(f"{name:12} {value}", is_line=True))
    for event in told["events"]:
        said = cleaned(str(event["data"]), is_line=True)
        click.echo(f"  {utc_datetime(event['at']):%Y-%m-%d %H:%M:%S}  {event['kind']}  {said}")
    print_orders(told["orders"])


async def _all(store: Store, limit: int) -> list[dict[str, Any]]:
    return [await _row(store, job) for job in await store.jobs.list(limit=limit)]


async def _row(store: Store, job: Job) -> dict[str, Any]:
    counts = await store.queue.counts(job.id)
    return {
        "job": job.id,
        "source": job.source,
        "state": job.state.value,
        "is_abandoned": await is_abandoned(store, job, SystemClock().now()),
        "created_at": utc_datetime(job.created_at).isoformat(timespec="seconds"),
        "discovered": sum(counts.values()),
        **{state.value: counts[state] for state in ItemState},
        "reason": job.reason,
    }


async def _one(store: Store, name: str) -> dict[str, Any]:
    job = await store.jobs.get(name)
    events = await store.event_log.events(job.id, with_items=False)
    return {
        **await _row(store, job),
        **(await store.jobs.caveats(job.id)).as_dict(),
        "settings": dict(job.settings),
        "statistics": await store.event_log.statistics(job.id),
        "orders": await orders_of(store, job),
        "events": [asdict(event) for event in events if event.kind.startswith(_SHOWN)],
    }


def state_of(row: dict[str, Any]) -> str:
    """Return the state of a job as people are told it: whoever was killed could not write it."""
    return "abandoned" if row["is_abandoned"] else str(row["state"])


def _print_all(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no jobs yet; try: longline demo")
        return
    numbers = ("items", "ok", "failed")
    listing = Fitting(
        "job",
        "state",
        "created (UTC)",
        *numbers,
        "reason",
        right=numbers,
        least=("created (UTC)", "ok", "items", "failed"),
        note="reason",
    )
    for row in rows:
        listing.add(
            row["job"],
            state_of(row),
            row["created_at"][:16],
            str(row["discovered"]),
            str(row["stored"] + row["unchanged"]),
            str(row["failed"] + row["quarantined"]),
            row["reason"] or (_NOBODY if row["is_abandoned"] else ""),
        )
    plain_console().print(listing)
