"""longline failures: what went wrong in a job, attempt by attempt."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from longline.cli.format import cleaned, plain_console
from longline.cli.opening import with_store
from longline.cli.options import COUNT, JOB, home_option, json_option, print_json
from longline.core.clock import utc_datetime
from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.storage.queue.failures import FailedItem, FailureQuery
from longline.storage.store import Store

_KINDS = [kind.value for kind in FailureKind]
_STATES = ["failed", "quarantined", "skipped", "queued"]


@click.command("failures")
@click.argument("job", type=JOB)
@click.option("--kind", type=click.Choice(_KINDS), help="Only failures of this kind.")
@click.option("--state", type=click.Choice(_STATES), help="Only items in this state.")
@click.option("--key", help="Only this item.")
@click.option("--limit", type=COUNT, default=50, show_default=True)
@click.option("--attempts", is_flag=True, help="Show every attempt, with its time and answer.")
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
    """Show what went wrong in JOB: items, kinds, reasons, attempts.

    Mend what you can, then `longline retry JOB --kind KIND` tries exactly those again.
    """
    wanted = {
        "kind": FailureKind(kind) if kind else None,
        "state": ItemState(state) if state else None,
        "key": key,
        "limit": limit,
    }
    told = with_store(home, lambda store: _look(store, job, wanted))
    if as_json:
        print_json({**told, "items": [asdict(one) for one in told["items"]]})
        return
    _print_kinds(told["kinds"])
    _print_items(told["items"], has_attempts=attempts)


async def _look(store: Store, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    job = (await store.jobs.get(name)).id
    return {
        "job": job,
        "kinds": await store.failure_log.by_kind(job),
        "items": await store.failure_log.unlucky(FailureQuery(job, **wanted)),
    }


def _print_kinds(kinds: dict[str, dict[str, int]]) -> None:
    columns = ("attempts", *_STATES)
    table = Table("kind", *columns, box=None)
    for kind, counts in kinds.items():
        table.add_row(kind, *(str(counts.get(name, 0) or "") for name in columns))
    plain_console().print(table if kinds else "nothing has failed in this job")


def _print_items(items: list[FailedItem], *, has_attempts: bool) -> None:
    console = plain_console()
    for one in items:
        answer = f", last answer {one.status}" if one.status else ""
        told = f"{one.state}, {one.kind}, {one.tries} tries, {one.requests} requests{answer}"
        console.print(cleaned(one.key, is_line=True), style="bold", end=" ", soft_wrap=True)
        console.print(told, soft_wrap=True)
        console.print(f"  {cleaned(one.reason or '', is_line=True)}")
        for attempt in one.attempts if has_attempts else ():
            status = attempt["status"] or "no answer"
            console.print(
                f"    {utc_datetime(attempt['at']):%F %T}  {attempt['kind']}  {status}  "
                f"{attempt['seconds']:.2f} s  {attempt['step']}: "
                f"{attempt['reason']}",
            )
