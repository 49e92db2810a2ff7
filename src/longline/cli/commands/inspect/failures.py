"""longline failures: failed items of a job, attempt by attempt."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.options import COUNT, JOB, home_option, json_option
from longline.cli.output import count_text, print_json, stdout_console, time_text
from longline.cli.queries import with_store
from longline.cli.table import TextTable
from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.core.output import sanitize
from longline.storage.queue.failures import FailedItem, FailureQuery
from longline.storage.store import Store

_KINDS = [kind.value for kind in FailureKind]
_STATES = ["failed", "quarantined", "skipped", "queued"]


@click.command("failures")
@click.argument("job", type=JOB)
@click.option("--kind", type=click.Choice(_KINDS), help="Only this kind of failure.")
@click.option("--state", type=click.Choice(_STATES), help="Only items in this state.")
@click.option("--key", metavar="KEY", help="Only this item.")
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of items.")
@click.option("--attempts", is_flag=True, help="Show every attempt with its time and status.")
@home_option
@json_option
def command(
    job: str,
    *,
    kind: str | None,
    state: str | None,
    key: str | None,
    limit: int,
    attempts: bool,
    home: Path | None,
    as_json: bool,
) -> None:
    """List failed items of JOB, with failure kinds and attempts.

    After fixing the cause, attempt them again with `longline retry JOB --kind KIND`.
    """
    wanted = {
        "kind": FailureKind(kind) if kind else None,
        "state": ItemState(state) if state else None,
        "key": key,
        "limit": limit,
    }
    found = with_store(home, lambda store: _failures(store, job, wanted))
    if as_json:
        print_json({**found, "items": [asdict(one) for one in found["items"]]})
        return
    _print_kinds(found["kinds"])
    _print_items(found["items"], has_attempts=attempts)


async def _failures(store: Store, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    job = (await store.jobs.get(name)).id
    return {
        "job": job,
        "kinds": await store.failures.by_kind(job),
        "items": await store.failures.unlucky(FailureQuery(job, **wanted)),
    }


def _print_kinds(kinds: dict[str, dict[str, int]]) -> None:
    if not kinds:
        click.echo("no failures in this job")
        return
    columns = ("attempts", *_STATES)
    table = TextTable("kind", *columns, right=columns)
    for kind, counts in kinds.items():
        table.add(kind, *(counts.get(name, 0) or "" for name in columns))
    table.print()


def _print_items(items: list[FailedItem], *, has_attempts: bool) -> None:
    console = stdout_console()
    for one in items:
        status = f", last status {one.status}" if one.status else ""
        attempts = f"{count_text(one.tries, 'attempt')}, {count_text(one.requests, 'request')}"
        console.print(sanitize(one.key, is_line=True), style="bold", end=" ", soft_wrap=True)
        console.print(f"{one.state}, {one.kind}, {attempts}{status}", soft_wrap=True)
        console.print(f"  {sanitize(one.reason or '', is_line=True)}")
        for attempt in one.attempts if has_attempts else ():
            console.print(
                f"    {time_text(attempt['at'], seconds=True)}  {attempt['kind']}  "
                f"{attempt['status'] or 'no response'}  {attempt['seconds']:.2f} s  "
                f"{attempt['step']}: {attempt['reason']}",
            )
