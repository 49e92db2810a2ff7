"""longline export: write records to a file, a folder, an S3 bucket or a database."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import click
from click.core import ParameterSource

from longline.cli.options import common_options, settings_of, wants_json
from longline.cli.output import print_json, print_result
from longline.cli.queries import check_source, query_options, with_job_id
from longline.config.secrets import SecretRef
from longline.config.settings import Settings, prepare_home
from longline.core.errors import BadOption, MissingExtra
from longline.core.output import OutputFailed, binary_stdout, count_text, discard_stdout
from longline.engine.owner import describe_owner
from longline.engine.report import drop_exports
from longline.export.export import (
    STDOUT,
    ExportRequest,
    ExportResult,
    check_request,
    choose_tasks,
    export_records,
)
from longline.export.formats import FORMATS
from longline.export.redaction import home_redactor
from longline.export.tasks import absolute_output, export_task, prepare_for_task
from longline.storage.query import RecordQuery
from longline.storage.store import Store, open_store

_ALL_TASKS = "*"
_NO_TASKS = "no enrichment task has been run in this home yet, so no enrichments were added"
_WITH_DROP = ("drop", "job", "output", "home", "profile", "json")


@click.command("export")
@click.option(
    "--output",
    "-o",
    default="longline-export.jsonl",
    show_default=True,
    metavar="DESTINATION",
    help="A file, '-' for stdout, s3://bucket/name.csv, or postgresql://user@host/database.",
)
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    help=f"Output format: {', '.join(FORMATS)}, or a plugin's format.  [default: by file suffix]",
)
@click.option(
    "--columns",
    metavar="A,B.C",
    help="Columns to write, in order, for example key,title,price.amount.",
)
@click.option(
    "--with-enrichments",
    "tasks",
    metavar="[TASK,TASK]",
    is_flag=False,
    flag_value=_ALL_TASKS,
    help="Include enrichments of all tasks, or only of the given ones.",
)
@click.option(
    "--partition", metavar="FIELD", help="Write a folder with one file per value of FIELD."
)
@click.option(
    "--incremental",
    metavar="NAME",
    help="Only records new or changed since the last export NAME; adds a sequence number to the "
    "file name.",
)
@click.option("--redact", is_flag=True, help="Redact secrets, e-mail addresses and phone numbers.")
@click.option(
    "--ignore-unreadable",
    is_flag=True,
    help="With --redact: continue even if a configured secret cannot be read.",
)
@click.option(
    "--mkdir", "makes_folder", is_flag=True, help="Create the folder of the file if it is missing."
)
@click.option("--no-schema", is_flag=True, help="Do not write FILE.schema.json.")
@click.option(
    "--table", metavar="NAME", show_default="longline_export", help="Table in PostgreSQL."
)
@click.option(
    "--secret",
    metavar="REFERENCE",
    help="Reference to the password, or to ID:SECRET for S3: env:NAME, file:PATH or "
    "keyring:SERVICE/NAME.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    show_default="AWS_ENDPOINT_URL",
    help="Endpoint of an S3-compatible service.",
)
@click.option(
    "--detach", is_flag=True, help="Export on a worker, to a path on its machine (requires --job)."
)
@click.option(
    "--drop",
    is_flag=True,
    help="Drop pending exports of --job on workers; with --output, only those to DESTINATION.",
)
@query_options()
@common_options
def export_command(
    *,
    incremental: str | None,
    redact: bool,
    ignore_unreadable: bool,
    detach: bool,
    drop: bool,
    tasks: str | None,
    **given: Any,
) -> None:
    """Export records to a file, a database or an S3 bucket.

    An export is atomic: the file, folder, object or table is replaced only when the new one is
    complete.
    """
    settings = settings_of()
    prepare_home(settings)
    if drop:
        with open_store(settings.database) as store:
            asyncio.run(_drop(store, click.get_current_context()))
        return
    if ignore_unreadable and not redact:
        raise BadOption("--ignore-unreadable", "requires --redact")
    request = _parse_request(given)
    notes: list[str] = []
    with open_store(settings.database) as store:
        if tasks:
            names = [] if tasks == _ALL_TASKS else [name.strip() for name in tasks.split(",")]
            request = replace(request, tasks=asyncio.run(choose_tasks(store, names)))
            notes = [] if request.tasks else [_NO_TASKS]
        if detach:
            others = {**given, "redact": redact, "incremental": incremental}
            asyncio.run(_detach(settings, store, request, others))
            return
        if redact:
            jobs = asyncio.run(store.jobs.list(limit=None))
            redactor, unread = home_redactor(settings, jobs, ignore_unreadable=ignore_unreadable)
            request, notes = replace(request, redactor=redactor), unread + notes
        query = asyncio.run(with_job_id(store, RecordQuery(**given)))
        asyncio.run(check_source(store, query.source, needs_records=True))
        stream = binary_stdout() if request.output == STDOUT else None
        try:
            done = export_records(store, request, query, incremental=incremental, stream=stream)
            if stream:
                stream.flush()
        except OSError as error:
            if stream is None:
                raise
            if not isinstance(error, BrokenPipeError):
                raise OutputFailed(error.errno, error.strerror) from error
            discard_stdout()
            sys.exit(0)  # the reader has enough, as head does
    done = replace(done, notes=(*done.notes, *notes)) if done else None
    _print_done(done, incremental, is_streamed=stream is not None)


def _parse_request(given: dict[str, Any]) -> ExportRequest:
    """Take the options of the destination out of `given`; those of the records stay."""
    columns, secret = given.pop("columns"), given.pop("secret")
    names = ("output", "partition", "table", "endpoint", "makes_folder")
    try:
        reference = SecretRef.parse(secret) if secret else None
    except (ValueError, RuntimeError) as error:  # RuntimeError: the ~ of an unknown user
        raise BadOption("--secret", str(error)) from None
    request = ExportRequest(
        **{name: given.pop(name) for name in names},
        format=given.pop("form"),
        columns=tuple(columns.split(",")) if columns else (),
        secret=reference,
        has_schema=not given.pop("no_schema"),
    )
    check_request(request)
    return request


def _print_done(done: ExportResult | None, incremental: str | None, *, is_streamed: bool) -> None:
    """Print what was written; on stderr when the records are on stdout."""
    if wants_json():
        print_json(asdict(done) if done else {"path": None, "records": 0}, err=is_streamed)
    elif done is None:
        click.echo(
            f"no new or changed records since the last export {incremental}", err=is_streamed
        )
    elif not is_streamed or done.notes or done.redacted is not None:
        parts = f", {done.parts} files" if done.parts > 1 else ""
        lines = [
            f"{count_text(done.records, 'record')} written to {done.path} ({done.format}{parts})"
        ]
        if done.redacted is not None:
            counts = [f"{kind} {count}" for kind, count in sorted(done.redacted.items())]
            lines.append(f"  redacted: {', '.join(counts) or 'nothing'}")
        lines += [f"  note: {note}" for note in done.notes]
        click.echo("\n".join(lines), err=is_streamed)


# ---------------- Exports by workers


async def _detach(
    settings: Settings, store: Store, request: ExportRequest, others: Mapping[str, Any]
) -> None:
    """Create the task to export the records of a job; `others` are the remaining options.

    Raises:
        BadOption: an option cannot be combined with it, or there is no broker.
        UnknownJob: no job, or several, match.
    """
    try:
        from longline.distributed.client import submit_export  # noqa: PLC0415  # an optional part
    except ImportError as error:
        raise MissingExtra("cluster", "--detach") from error
    if others["job"] is None:
        raise BadOption("--detach", "requires --job")
    for option, value in others.items():
        if option != "job" and value not in (None, (), False):
            name = "--search" if option == "text" else f"--{option.replace('_', '-')}"
            raise BadOption(name, "it cannot be combined with --detach, which exports a whole job")
    request = prepare_for_task(request, option="--output", by_worker=True)
    job = await store.jobs.get(others["job"])
    task = export_task(request, job.id, await store.now(), is_after_end=False)
    await submit_export(settings, store, task)
    print_result(
        {"job": job.id, "output": request.output, "task": task.name},
        lambda: click.echo(f"a worker will export {job.id} to {request.output}"),
    )


async def _drop(store: Store, context: click.Context) -> None:
    """Drop pending export tasks of a job; a task that a worker runs is completed.

    Raises:
        BadOption: an option cannot be combined with it, or there is nothing to drop.
        UnknownJob: no job, or several, match.
    """
    given = {
        str(option.name): option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    }
    for option, name in given.items():
        if option not in _WITH_DROP:
            raise BadOption(name, "it cannot be combined with --drop")
    if context.params["job"] is None:
        raise BadOption("--drop", "requires --job")
    output = absolute_output(context.params["output"]) if "output" in given else None
    job = await store.jobs.get(context.params["job"])
    exports = await drop_exports(store, job, output)
    dropped, running = ([str(task.what.get("output")) for task in tasks] for tasks in exports)
    if not dropped:
        to = f" to {output}" if output else ""
        problem = f"{job.id} has no pending export{to}; `longline jobs {job.id}` lists its tasks"
        if running:
            owner = describe_owner(exports[1][0].owner or "a worker")
            problem = f"{owner} is already writing the export to {running[0]}"
        raise BadOption("--drop", problem)
    lines = [f"dropped the export of {job.id} to {place}" for place in dropped]
    lines += [f"{place} is already being written and will be completed" for place in running]
    values = {"job": job.id, "dropped": dropped, "under_way": running}
    print_result(values, lambda: click.echo("\n".join(lines)))
