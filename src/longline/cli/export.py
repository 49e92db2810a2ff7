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

from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.cli.querying import query_of, query_options, with_whole_job
from longline.config.secrets import SecretRef
from longline.config.settings import prepare_home
from longline.errors import BadOption
from longline.exports.base import Rows
from longline.exports.destinations import Exported, Wish
from longline.exports.files import export, export_stream
from longline.exports.formats import FORMATS
from longline.exports.incremental import Fresh
from longline.exports.known_secrets import known_secrets
from longline.exports.redaction import Redactor
from longline.stores.selecting import RecordQuery
from longline.stores.store import Store, open_store

_STDOUT = "-"


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
@click.option("--partition", metavar="FIELD", help="A folder, with a file for each value of FIELD.")
@click.option(
    "--incremental",
    metavar="NAME",
    help="Only what is new or changed since the last export of this name; the file gets a number.",
)
@click.option("--redact", is_flag=True, help="Without secrets, e-mail and telephone numbers.")
@click.option("--no-schema", is_flag=True, help="No FILE.schema.json beside the file.")
@click.option("--table", help="The table in PostgreSQL. [longline_export]")
@click.option(
    "--secret", help="Where the login is, such as env:NAME: a password, or ID:SECRET of a storage."
)
@click.option("--endpoint", help="The address of an S3-compatible storage. [AWS_ENDPOINT_URL]")
@query_options
@home_option
@json_option
def command(*, home: Path | None, as_json: bool, incremental: str | None, **given: Any) -> None:
    """Write records to a file, a database or a bucket.

    It is written beside its place and renamed, so that nobody ever sees half of it; a folder, an
    object of a storage and a table of a database likewise appear whole or not at all.
    """
    settings = settings_of(home)
    prepare_home(settings)
    is_redacted = given.pop("redact")
    wish = _wish(given)
    with open_store(settings.database) as store:
        if is_redacted:
            jobs = asyncio.run(store.jobs.list(limit=None))
            wish = replace(wish, redactor=Redactor(known_secrets(settings, jobs)))
        query = asyncio.run(with_whole_job(store, query_of(given)))
        done = _new(store, wish, query, incremental) if incremental else _all(store, wish, query)
    if wish.output == _STDOUT:
        return
    if as_json:
        print_json(asdict(done) if done else {"path": None, "records": 0})
    else:
        click.echo(_told(done) if done else f"nothing is new since the last export {incremental!r}")


def _wish(given: dict[str, Any]) -> Wish:
    """Take what concerns the file out of the options, and leave what concerns the records."""
    columns, secret = given.pop("columns"), given.pop("secret")
    names = ("output", "form", "partition", "table", "endpoint")
    try:
        reference = SecretRef.parse(secret) if secret else None
    except (ValueError, RuntimeError) as error:  # RuntimeError: no home for the ~
        raise BadOption("--secret", str(error)) from None
    return Wish(
        **{name: given.pop(name) for name in names},
        columns=tuple(columns.split(",")) if columns else (),
        secret=reference,
        has_schema=not given.pop("no_schema"),
    )


def _all(store: Store, wish: Wish, query: RecordQuery) -> Exported:
    return _written(wish, lambda: store.records.stream(query))


def _new(store: Store, wish: Wish, query: RecordQuery, name: str) -> Exported | None:
    """Write what is new, then say so to the marks; None when nothing is."""
    if query.as_of is not None:
        raise BadOption(
            "--incremental", "that does not go with --as-of: what is past never changes"
        )
    everything = replace(query, limit=None)  # what was written before must not use up the limit
    rows = Fresh(store.marks, name, lambda: store.records.stream(everything), limit=query.limit)
    with closing(rows):
        if rows.is_empty():
            return None
        done = _written(replace(wish, is_numbered=wish.output != _STDOUT), rows)
        asyncio.run(store.marks.add(name, rows.given()))
    return done


def _written(wish: Wish, rows: Rows) -> Exported:
    if wish.output != _STDOUT:
        return export(wish, rows)
    written = export_stream(sys.stdout.buffer, rows, wish)
    sys.stdout.buffer.flush()
    return Exported(_STDOUT, wish.form or "jsonl", written.records)


def _told(done: Exported) -> str:
    parts = f", {done.parts} files" if done.parts > 1 else ""
    lines = [f"{done.records} records written to {done.path} ({done.format}{parts})"]
    if done.redacted is not None:
        lines.append(f"  replaced: {_counted(done.redacted)}")
    lines += [f"  note: {note}" for note in done.notes]
    return "\n".join(lines)


def _counted(replaced: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(replaced.items())) or "nothing"
