"""longline export --detach: a worker writes the records of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from longline.cli.options import print_json
from longline.cli.showing import note
from longline.config.settings import Settings
from longline.errors import BadOption, MissingExtra
from longline.exports.destinations import Wish
from longline.exports.ordered import for_later, order_of
from longline.stores.store import Store

_SPELLED = {"text": "--search"}


async def leave(
    settings: Settings, store: Store, wish: Wish, beside: Mapping[str, Any], *, as_json: bool
) -> None:
    """Place the order to write the records of a job; `beside` are the other options.

    Raises:
        BadOption: an option does not go with it, or no workers can be told.
        UnknownJob: there is no such job, or several fit.
    """
    try:
        from longline.cluster.client import have_written  # noqa: PLC0415  # an optional part
    except ImportError as error:
        raise MissingExtra("cluster", "--detach") from error
    name = _job_of(beside)
    wish = for_later(wish, option="--output", by_worker=True)
    job = await store.jobs.get(name)
    order = order_of(wish, job.id, await store.now(), is_after_end=False)
    await have_written(settings, store, order, note)
    if as_json:
        print_json({"job": job.id, "output": wish.output, "order": order.name})
    else:
        click.echo(f"the records of {job.id} will be written to {wish.output} by a worker")


def _job_of(beside: Mapping[str, Any]) -> str:
    """Return the job; a worker is told of nothing else that chooses records."""
    name: str | None = beside["job"]
    if name is None:
        raise BadOption("--detach", "a worker writes the records of one job: say --job")
    for option, value in beside.items():
        if option != "job" and value not in (None, (), False):
            problem = "that does not go with --detach: a worker writes all records of a job"
            raise BadOption(_SPELLED.get(option, f"--{option.replace('_', '-')}"), problem)
    return name
