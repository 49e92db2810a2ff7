"""longline export: write records to a file, a folder, a storage or a table."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from longline.cli.closed_pipe import give_up_stdout
from longline.cli.commands.data.export_tasks import leave, take_back_told
from longline.cli.options import (
    home_option,
    json_option,
    query_of,
    query_options,
    settings_of,
    with_whole_job,
)
from longline.config.documents import nearest
from longline.config.secrets import SecretRef
from longline.config.settings import Settings, prepare_home
from longline.core.errors import BadOption
from longline.core.json_text import as_text
from longline.core.output import binary_stdout, sanitize_json
from longline.export.columns import parse_columns
from longline.export.export import NO_RECORDS, export, export_stream
from longline.export.formats.registry import FORMATS
from longline.export.incremental import IncrementalRows
from longline.export.redaction import Redactor, known_secrets, pseudonym_key
from longline.export.request import STDOUT, ExportRequest, ExportResult, check_request
from longline.export.rows import Rows
from longline.storage.records.records import ENRICHMENTS
from longline.storage.records.selecting import RecordQuery
from longline.storage.store import Store, open_store

_EVERY_TASK = "*"
_NOTHING_ASKED = "no enrichment task was run in this home yet, so that there is nothing to add"


@click.command("export")
@click.option(
    "--output",
    "-o",
    default="longline-export.jsonl",
    show_default=True,
    help="A file, '-' for standard output, s3://bucket/name.csv or postgresql://user@host/base.",
)
@click.option(
    "--format",
    "form",
    help=f"Unless the ending says: {', '.join(FORMATS)}, or one that a package adds.",
)
@click.option("--columns", help="Only these, in this order: key,title,price.amount.")
@click.option(
    "--with-enrichments",
    "tasks",
    metavar="[TASK,TASK]",
    is_flag=False,
    flag_value=_EVERY_TASK,
    help="Also what machines said about each, of all enrichment tasks or only of these.",
)
@click.option("--partition", metavar="FIELD", help="A folder, with a file for each value of FIELD.")
@click.option(
    "--incremental",
    metavar="NAME",
    help="Only what is new or changed since the last export of this name; the file gets a number.",
)
@click.option("--redact", is_flag=True, help="Without secrets, e-mail and telephone numbers.")
@click.option(
    "--ignore-unreadable",
    is_flag=True,
    help="With --redact: go on although a secret that this home names cannot be read.",
)
@click.option(
    "--mkdir", "makes_folder", is_flag=True, help="Make the folder of the file if it is missing."
)
@click.option("--no-schema", is_flag=True, help="No FILE.schema.json beside the file.")
@click.option("--table", help="The table in PostgreSQL. [longline_export]")
@click.option(
    "--secret", help="Where the login is, such as env:NAME: a password, or ID:SECRET of a storage."
)
@click.option("--endpoint", help="The address of an S3-compatible storage. [AWS_ENDPOINT_URL]")
@click.option(
    "--detach", is_flag=True, help="Leave it to a worker, on whose machine it is written; of --job."
)
@click.option(
    "--drop",
    is_flag=True,
    help="Take back what was left to a worker and waits: all of --job, or only to --output.",
)
@query_options
@home_option
@json_option
def command(
    *,
    home: Path | None,
    as_json: bool,
    incremental: str | None,
    detach: bool,
    drop: bool,
    **given: Any,
) -> None:
    """Write records to a file, a database or a bucket.

    It is written beside its place and renamed, so that nobody ever sees half of it; a folder, an
    object of a storage and a table of a database likewise appear whole or not at all.
    """
    settings = settings_of(home)
    prepare_home(settings)
    if drop:
        with open_store(settings.database) as store:
            asyncio.run(take_back_told(store, click.get_current_context(), as_json=as_json))
        return
    redacting = {name: given.pop(name) for name in ("redact", "ignore_unreadable")}
    tasks = given.pop("tasks")
    wish = _wish(given)
    if detach:
        beside = {**given, **redacting, "incremental": incremental}
        with open_store(settings.database) as store:
            wish = replace(wish, tasks=asyncio.run(_tasks(store, tasks)))
            _check_chosen(wish)
            asyncio.run(leave(settings, store, wish, beside, as_json=as_json))
        return
    with open_store(settings.database) as store:
        redactor, unread = _redactor(store, settings, **redacting)
        wish = replace(wish, redactor=redactor, tasks=asyncio.run(_tasks(store, tasks)))
        _check_chosen(wish)
        query = asyncio.run(with_whole_job(store, query_of(given)))
        asyncio.run(_check_source(store, query.source))
        done = _new(store, wish, query, incremental) if incremental else _all(store, wish, query)
    unheard = [_NOTHING_ASKED] if tasks and not wish.tasks else []
    done = replace(done, notes=(*done.notes, *unread, *unheard)) if done else None
    _tell(done, incremental, is_streamed=wish.output == STDOUT, as_json=as_json)


def _wish(given: dict[str, Any]) -> ExportRequest:
    """Take what concerns the file out of the options, and leave what concerns the records."""
    columns, secret = given.pop("columns"), given.pop("secret")
    names = ("output", "partition", "table", "endpoint")
    try:
        reference = SecretRef.parse(secret) if secret else None
    except (ValueError, RuntimeError) as error:  # RuntimeError: no home for the ~
        raise BadOption("--secret", str(error)) from None
    wish = ExportRequest(
        **{name: given.pop(name) for name in names},
        format=given.pop("form"),
        columns=tuple(columns.split(",")) if columns else (),
        secret=reference,
        has_schema=not given.pop("no_schema"),
        makes_folder=given.pop("makes_folder"),
    )
    check_request(wish)
    return wish


def _redactor(
    store: Store, settings: Settings, *, redact: bool, ignore_unreadable: bool
) -> tuple[Redactor | None, list[str]]:
    """Return what redacts, None when nothing does, and notes on the secrets that it cannot know."""
    if not redact:
        if ignore_unreadable:
            raise BadOption("--ignore-unreadable", "that goes only with --redact")
        return None, []
    known = known_secrets(settings, asyncio.run(store.jobs.list(limit=None)))
    if known.unreadable and not ignore_unreadable:
        names = ", ".join(known.unreadable)
        problem = f"{names} cannot be read, so that the secret could be written; provide it, or"
        raise BadOption("--redact", f"{problem} go on without by --ignore-unreadable")
    notes = [f"{one} cannot be read: that secret was not looked for" for one in known.unreadable]
    return Redactor(known.values, key=pseudonym_key(settings.home)), notes


async def _tasks(store: Store, said: str | None) -> tuple[str, ...] | None:
    """Return the enrichment tasks that were asked for; None when there are none."""
    if said is None:
        return None
    known = list(await store.questions.counts())
    if said == _EVERY_TASK:
        return tuple(known) or None
    wanted = tuple(dict.fromkeys(name.strip() for name in said.split(",")))
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadOption("--with-enrichments", f"no task {name!r} was run here{hint}")
    return wanted


def _check_chosen(wish: ExportRequest) -> None:
    """See that what is added can be found in the columns that were chosen."""
    named = parse_columns(wish.columns, wish.tasks or ())
    if wish.tasks and named and all(one.path[0] != ENRICHMENTS for one in named):
        problem = f"--columns names nothing of it, such as enrichments.{wish.tasks[0]}.@model"
        raise BadOption("--with-enrichments", problem)


async def _check_source(store: Store, source: str | None) -> None:
    """See that a source has records, before an empty export replaces a full one."""
    if source is None or await store.records.count(RecordQuery(source=source)):
        return
    known = [row["source"] for row in await store.records.statistics()]
    near = nearest(source, known)
    hint = f"; did you mean {near!r}?" if near else ""
    raise BadOption("--source", f"no record in this home is of {source!r}{hint}")


def _all(store: Store, wish: ExportRequest, query: RecordQuery) -> ExportResult:
    return _written(wish, _rows(store, wish, query))


def _rows(store: Store, wish: ExportRequest, query: RecordQuery) -> Rows:
    return lambda: store.records.stream(query, with_enrichments=wish.tasks is not None)


def _new(store: Store, wish: ExportRequest, query: RecordQuery, name: str) -> ExportResult | None:
    """Write what is new, then say so to the marks; None when nothing is."""
    if query.as_of is not None:
        raise BadOption(
            "--incremental", "that does not go with --as-of: what is past never changes"
        )
    everything = replace(query, limit=None)  # what was written before must not use up the limit
    read = _rows(store, wish, everything)
    rows = IncrementalRows(store.marks, name, read, limit=query.limit, tasks=wish.tasks or ())
    with closing(rows):
        if rows.is_empty():
            return None
        done = _written(replace(wish, is_numbered=wish.output != STDOUT), rows)
        asyncio.run(store.marks.add(name, rows.yielded()))
    return done


def _written(wish: ExportRequest, rows: Rows) -> ExportResult:
    if wish.output != STDOUT:
        return export(wish, rows)
    try:
        target = binary_stdout()
        written = export_stream(target, rows, wish)
        target.flush()
    except OSError as error:
        give_up_stdout()
        if isinstance(error, BrokenPipeError):  # whoever reads has had enough, such as head
            sys.exit(0)
        problem = error.strerror or str(error)
        raise click.ClickException(f"standard output cannot be written ({problem})") from error
    notes = written.notes if written.records else (*written.notes, NO_RECORDS)
    redacted = dict(wish.redactor.replaced) if wish.redactor else None
    name = wish.format or "jsonl"
    return ExportResult(STDOUT, name, written.records, notes=notes, redacted=redacted)


def _tell(
    done: ExportResult | None, incremental: str | None, *, is_streamed: bool, as_json: bool
) -> None:
    """Say what was written; beside the records if they are on standard output themselves."""
    if as_json:
        said = asdict(done) if done else {"path": None, "records": 0}
        click.echo(sanitize_json(as_text(said)), err=is_streamed)
    elif done is None:
        click.echo(f"nothing is new since the last export {incremental!r}", err=is_streamed)
    elif not is_streamed or done.notes or done.redacted is not None:
        click.echo(_told(done), err=is_streamed)


def _told(done: ExportResult) -> str:
    parts = f", {done.parts} files" if done.parts > 1 else ""
    lines = [f"{done.records} records written to {done.path} ({done.format}{parts})"]
    if done.redacted is not None:
        lines.append(f"  replaced: {_counted(done.redacted)}")
    lines += [f"  note: {note}" for note in done.notes]
    return "\n".join(lines)


def _counted(replaced: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(replaced.items())) or "nothing"
