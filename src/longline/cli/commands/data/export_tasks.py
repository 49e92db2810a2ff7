"""longline export --detach and --drop: a worker writes the records of a job, or need not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from longline.cli.format import note
from longline.cli.options import print_json
from longline.config.settings import Settings
from longline.core.errors import BadOption, MissingExtra
from longline.engine.owner import in_words
from longline.engine.tasks import Taken, take_back
from longline.export.request import ExportRequest
from longline.export.tasks import absolute_output, export_task, prepare_for_task
from longline.storage.queue.tasks import Task
from longline.storage.store import Store

_SPELLED = {"text": "--search"}
_WITH_DROP = ("drop", "job", "output", "home", "profile", "as_json")


async def leave(
    settings: Settings,
    store: Store,
    wish: ExportRequest,
    beside: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Place the order to write the records of a job; `beside` are the other options.

    Raises:
        BadOption: an option does not go with it, or no workers can be told.
        UnknownJob: there is no such job, or several fit.
    """
    try:
        from longline.distributed.client import have_written  # noqa: PLC0415  # an optional part
    except ImportError as error:
        raise MissingExtra("cluster", "--detach") from error
    name = _job_of(beside)
    wish = prepare_for_task(wish, option="--output", by_worker=True)
    job = await store.jobs.get(name)
    order = export_task(wish, job.id, await store.now(), is_after_end=False)
    await have_written(settings, store, order, note)
    if as_json:
        print_json({"job": job.id, "output": wish.output, "order": order.name})
    else:
        click.echo(f"the records of {job.id} will be written to {wish.output} by a worker")


async def take_back_told(store: Store, given: click.Context, *, as_json: bool) -> None:
    """Drop the orders to write the records of a job that wait; one that is written now is left.

    Raises:
        BadOption: an option does not go with it, or nothing is there to drop.
        UnknownJob: there is no such job, or several fit.
    """
    name, output = _to_drop(given)
    job = await store.jobs.get(name)
    found = await take_back(store, job, output)
    if not found.dropped:
        raise BadOption("--drop", _nothing_dropped(job.id, output, found))
    told = {"dropped": _outputs(found.dropped), "under_way": _outputs(found.under_way)}
    if as_json:
        print_json({"job": job.id, **told})
        return
    for place in told["dropped"]:
        click.echo(f"the records of {job.id} will not be written to {place}")
    for place in told["under_way"]:
        click.echo(f"{place} is being written, and comes to its end")


def _nothing_dropped(job: str, output: str | None, found: Taken) -> str:
    where = f" to {output}" if output else ""
    if found.under_way:
        who = in_words(found.under_way[0].owner or "a worker")
        return f"{who} is writing the export of {job}{where} by now, which comes to its end"
    return f"no export of {job}{where} waits; `longline jobs {job}` shows what does"


def _outputs(orders: Iterable[Task]) -> list[str]:
    return [str(order.what.get("output")) for order in orders]


def _to_drop(given: click.Context) -> tuple[str, str | None]:
    """Return the job whose exports are to be dropped, and where they go, if that was said."""
    said = {
        option.name: option.opts[0]
        for option in given.command.params
        if given.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    }
    for option, spelled in said.items():
        if option not in _WITH_DROP:
            raise BadOption(spelled, "that does not go with --drop, which takes --job and --output")
    if given.params["job"] is None:
        raise BadOption("--drop", "exports that wait are those of a job: say --job")
    output = given.params["output"]
    return given.params["job"], absolute_output(output) if "output" in said else None


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
