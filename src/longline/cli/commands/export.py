"""longline export: write records to a file, a folder, an S3 bucket or a database."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import count_text, print_json
from longline.cli.queries import query_of, query_options, with_job_id
from longline.config.secrets import SecretRef
from longline.config.settings import Settings, prepare_home
from longline.config.validation_messages import nearest
from longline.core.errors import BadOption, MissingExtra, OptionNeeds
from longline.core.output import binary_stdout, discard_stdout
from longline.engine.owner import in_words
from longline.engine.report import take_back
from longline.export.columns import Rows, parse_columns
from longline.export.export import (
    NO_RECORDS,
    STDOUT,
    ExportRequest,
    ExportResult,
    IncrementalRows,
    check_request,
    export,
    export_stream,
)
from longline.export.formats import FORMATS
from longline.export.redaction import Redactor, known_secrets, pseudonym_key
from longline.export.tasks import absolute_output, export_task, prepare_for_task
from longline.storage.query import RecordQuery
from longline.storage.queue.tasks import Task
from longline.storage.records import ENRICHMENTS
from longline.storage.store import Store, open_store

_ALL_TASKS = "*"
_NO_TASKS = "no enrichment task has been run in this home yet, so no enrichments were added"
_WITH_DROP = ("drop", "job", "output", "home", "profile", "as_json")


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
    help=f"Output format: {', '.join(FORMATS)}, or that of a plugin.  [default: by file suffix]",
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
    help="Include enrichments, of all tasks or only of these.",
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
    "--mkdir", "makes_folder", is_flag=True, help="Create the folder of the file if missing."
)
@click.option("--no-schema", is_flag=True, help="Do not write FILE.schema.json.")
@click.option(
    "--table", metavar="NAME", show_default="longline_export", help="Table in PostgreSQL."
)
@click.option(
    "--secret",
    metavar="REFERENCE",
    help="Where to read the password, or ID:SECRET for S3: env:NAME, file:PATH.",
)
@click.option(
    "--endpoint",
    metavar="URL",
    show_default="AWS_ENDPOINT_URL",
    help="Endpoint of an S3-compatible service.",
)
@click.option(
    "--detach", is_flag=True, help="Export on a worker, to a path of its machine (requires --job)."
)
@click.option(
    "--drop",
    is_flag=True,
    help="Drop pending exports of --job on workers; with --output, only those to DESTINATION.",
)
@query_options
@home_option
@json_option
def export_command(
    *,
    home: Path | None,
    as_json: bool,
    incremental: str | None,
    detach: bool,
    drop: bool,
    **given: Any,
) -> None:
    """Export records to a file, a database or an S3 bucket.

    An export is atomic: a file, folder, object or table is replaced when it is complete, or left
    unchanged.
    """
    settings = settings_of(home)
    prepare_home(settings)
    if drop:
        with open_store(settings.database) as store:
            asyncio.run(_drop(store, click.get_current_context(), as_json=as_json))
        return
    redacting = {name: given.pop(name) for name in ("redact", "ignore_unreadable")}
    tasks = given.pop("tasks")
    request = _parse_destination(given)
    with open_store(settings.database) as store:
        request = replace(request, tasks=asyncio.run(_parse_tasks(store, tasks)))
        _check_columns(request)
        if detach:
            others = {**given, **redacting, "incremental": incremental}
            asyncio.run(_detach(settings, store, request, others, as_json=as_json))
            return
        redactor, notes = _redactor(store, settings, **redacting)
        request = replace(request, redactor=redactor)
        query = asyncio.run(with_job_id(store, query_of(given)))
        asyncio.run(_check_has_records(store, query.source))
        if incremental:
            done = _export_new(store, request, query, incremental)
        else:
            done = _write(request, _rows(store, request, query))
    notes += [_NO_TASKS] if tasks and not request.tasks else []
    done = replace(done, notes=(*done.notes, *notes)) if done else None
    _print_done(done, incremental, is_streamed=request.output == STDOUT, as_json=as_json)


# ---------------- Options


def _parse_destination(given: dict[str, Any]) -> ExportRequest:
    """Take the options of the destination out of `given`; those of the records stay."""
    columns, secret = given.pop("columns"), given.pop("secret")
    names = ("output", "partition", "table", "endpoint")
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
        makes_folder=given.pop("makes_folder"),
    )
    check_request(request)
    return request


def _redactor(
    store: Store, settings: Settings, *, redact: bool, ignore_unreadable: bool
) -> tuple[Redactor | None, list[str]]:
    """Return the redactor, if one is wanted, and notes on secrets that it does not know."""
    if not redact:
        if ignore_unreadable:
            raise OptionNeeds("--ignore-unreadable", "--redact")
        return None, []
    known = known_secrets(settings, asyncio.run(store.jobs.list(limit=None)))
    if known.unreadable and not ignore_unreadable:
        problem = f"{', '.join(known.unreadable)} cannot be read, so it cannot be redacted"
        raise BadOption("--redact", f"{problem}; provide it, or use --ignore-unreadable")
    notes = [f"{one} cannot be read and was not redacted" for one in known.unreadable]
    return Redactor(known.values, key=pseudonym_key(settings.home)), notes


async def _parse_tasks(store: Store, names: str | None) -> tuple[str, ...] | None:
    """Return the enrichment tasks to include; None when there are none."""
    if names is None:
        return None
    known = list(await store.questions.counts())
    if names == _ALL_TASKS:
        return tuple(known) or None
    wanted = tuple(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadOption("--with-enrichments", f"task {name!r} was never run here{hint}")
    return wanted


def _check_columns(request: ExportRequest) -> None:
    """Check that chosen columns include some of the enrichments."""
    chosen = parse_columns(request.columns, request.tasks or ())
    if request.tasks and chosen and all(one.path[0] != ENRICHMENTS for one in chosen):
        problem = f"--columns has no enrichment, such as enrichments.{request.tasks[0]}.@model"
        raise BadOption("--with-enrichments", problem)


async def _check_has_records(store: Store, source: str | None) -> None:
    """Check that a source has records, before an empty export replaces a full one."""
    if source is None or await store.records.count(RecordQuery(source=source)):
        return
    known = [row["source"] for row in await store.records.statistics()]
    near = nearest(source, known)
    hint = f"; did you mean {near!r}?" if near else ""
    raise BadOption("--source", f"no record of {source!r} in this home{hint}")


# ---------------- Exports by this process


def _rows(store: Store, request: ExportRequest, query: RecordQuery) -> Rows:
    return lambda: store.records.stream(query, with_enrichments=request.tasks is not None)


def _export_new(
    store: Store, request: ExportRequest, query: RecordQuery, name: str
) -> ExportResult | None:
    """Write new and changed records, then move the cursor of `name`; None when there are none."""
    if query.as_of is not None:
        raise BadOption("--incremental", "it cannot be combined with --as-of")
    unlimited = replace(query, limit=None)  # records written before must not use up the limit
    read = _rows(store, request, unlimited)
    rows = IncrementalRows(
        store.export_cursors, name, read, limit=query.limit, tasks=request.tasks or ()
    )
    with closing(rows):
        if rows.is_empty():
            return None
        done = _write(replace(request, is_numbered=request.output != STDOUT), rows)
        asyncio.run(store.export_cursors.add(name, rows.yielded()))
    return done


def _write(request: ExportRequest, rows: Rows) -> ExportResult:
    if request.output != STDOUT:
        return export(request, rows)
    try:
        target = binary_stdout()
        written = export_stream(target, rows, request)
        target.flush()
    except OSError as error:
        discard_stdout()
        if isinstance(error, BrokenPipeError):  # the reader has enough, as head does
            sys.exit(0)
        problem = error.strerror or str(error)
        raise click.ClickException(f"standard output cannot be written ({problem})") from error
    notes = written.notes if written.records else (*written.notes, NO_RECORDS)
    redacted = dict(request.redactor.replaced) if request.redactor else None
    name = request.format or "jsonl"
    return ExportResult(STDOUT, name, written.records, notes=notes, redacted=redacted)


def _print_done(
    done: ExportResult | None, incremental: str | None, *, is_streamed: bool, as_json: bool
) -> None:
    """Print what was written; on stderr when the records are on stdout."""
    if as_json:
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
    settings: Settings,
    store: Store,
    request: ExportRequest,
    others: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Create the task to export the records of a job; `others` are the remaining options.

    Raises:
        BadOption: an option cannot be combined with it, or there is no broker.
        UnknownJob: no job, or several, match.
    """
    try:
        from longline.distributed.client import have_written  # noqa: PLC0415  # an optional part
    except ImportError as error:
        raise MissingExtra("cluster", "--detach") from error
    if others["job"] is None:
        raise OptionNeeds("--detach", "--job")
    for option, value in others.items():
        if option != "job" and value not in (None, (), False):
            name = "--search" if option == "text" else f"--{option.replace('_', '-')}"
            raise BadOption(name, "it cannot be combined with --detach, which exports a whole job")
    request = prepare_for_task(request, option="--output", by_worker=True)
    job = await store.jobs.get(others["job"])
    task = export_task(request, job.id, await store.now(), is_after_end=False)
    await have_written(settings, store, task)
    if as_json:
        print_json({"job": job.id, "output": request.output, "task": task.name})
    else:
        click.echo(f"a worker will export {job.id} to {request.output}")


async def _drop(store: Store, context: click.Context, *, as_json: bool) -> None:
    """Drop pending export tasks of a job; a task that a worker runs is completed.

    Raises:
        BadOption: an option cannot be combined with it, or there is nothing to drop.
        UnknownJob: no job, or several, match.
    """
    given = {
        option.name: option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    }
    for option, name in given.items():
        if option not in _WITH_DROP:
            raise BadOption(name, "it cannot be combined with --drop")
    if context.params["job"] is None:
        raise OptionNeeds("--drop", "--job")
    output = absolute_output(context.params["output"]) if "output" in given else None
    job = await store.jobs.get(context.params["job"])
    found = await take_back(store, job, output)
    if not found.dropped:
        to = f" to {output}" if output else ""
        if found.under_way:
            owner = in_words(found.under_way[0].owner or "a worker")
            raise BadOption("--drop", f"{owner} is already writing the export of {job.id}{to}")
        problem = f"{job.id} has no pending export{to}; `longline jobs {job.id}` lists its tasks"
        raise BadOption("--drop", problem)
    dropped, running = _outputs(found.dropped), _outputs(found.under_way)
    if as_json:
        print_json({"job": job.id, "dropped": dropped, "under_way": running})
        return
    for place in dropped:
        click.echo(f"dropped the export of {job.id} to {place}")
    for place in running:
        click.echo(f"{place} is already being written and will be completed")


def _outputs(tasks: Iterable[Task]) -> list[str]:
    return [str(task.what.get("output")) for task in tasks]
