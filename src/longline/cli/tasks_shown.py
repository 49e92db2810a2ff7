"""What is still to be done for a job: the orders that wait, and those that somebody is at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from longline.cli.format import cleaned
from longline.core.clock import utc_datetime
from longline.core.model import OPEN_STATES, Job
from longline.engine.owner import in_words
from longline.engine.tasks import holder_of
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store


async def orders_of(store: Store, job: Job) -> list[dict[str, Any]]:
    """Return the orders of a job, each as a program reads it."""
    at = await store.now()
    return [_as_dict(order, job, at) for order in await store.orders.of(job.id)]


def print_orders(orders: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each order; nothing when there is none."""
    if orders:
        click.echo("to be done")
    for one in orders:
        held_by = one["held_by"]
        state = f"{in_words(held_by)} is at it" if held_by else f"waits for {one['waits_for']}"
        said = cleaned(f"{_what(one)}: {state}", is_line=True)
        click.echo(f"  {one['placed_at'][:19].replace('T', ' ')}  {said}")


def _as_dict(order: Task, job: Job, at: float) -> dict[str, Any]:
    held_by = holder_of(order, at)
    is_early = order.is_after_end and job.state in OPEN_STATES
    return {
        "order": order.name,
        "kind": order.kind.value,
        "output": order.what.get("output"),
        "placed_at": utc_datetime(order.placed_at).isoformat(timespec="seconds"),
        "held_by": held_by,
        "waits_for": None if held_by else "the end of the job" if is_early else "a worker",
    }


def _what(one: Mapping[str, Any]) -> str:
    if one["kind"] == TaskKind.EXPORT:
        return f"export to {one['output']}"
    return "tell the source that the job is complete"
