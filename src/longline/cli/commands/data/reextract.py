"""longline reextract: run layers and pipeline again on archived answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import orjson
from rich.table import Column, Table

from longline.analysis.reextract import (
    Change,
    Finding,
    Reextraction,
    copy_notice,
    reextract,
    source_for,
)
from longline.cli.format import echo_line, note, plain_console
from longline.cli.opening import with_store
from longline.cli.options import COUNT, JOB, Pair, home_option, json_option, print_json, settings_of
from longline.core.clock import SystemClock
from longline.storage.store import Store
from longline.wiring import open_archive

_SHOWN = 20  # items of each kind; --json has them all
_LONGEST = 60  # characters of a value
_WORDS = {Finding.NEW: "newly possible", Finding.REMOVED: "not found any more"}


@click.command("reextract")
@click.argument("job", type=JOB)
@click.option(
    "--source", help="Extract with this source instead: a name, .py, .yaml, or mod:Class."
)
@click.option("--set", "options", type=Pair(), multiple=True, help="A setting that differs.")
@click.option("--limit", type=COUNT, help="Extract only the first N items of the job.")
@click.option("--write", is_flag=True, help="Store what is new or changed as new versions.")
@home_option
@json_option
def command(
    job: str,
    *,
    source: str | None,
    options: tuple[tuple[str, str], ...],
    limit: int | None,
    write: bool,
    home: Path | None,
    as_json: bool,
) -> None:
    """Extract a job's items again from archived answers, and compare.

    Not one request is made. The job must have been run with --archive. Without --source, a
    manifest is read again from its file. Discovery is repeated on the archived pages, too. Exits
    with 3 when an item could not be extracted or compared, or is not found any more.
    """

    async def again(store: Store) -> Reextraction:
        found = await store.jobs.get(job)
        if source is None and (notice := copy_notice(found)):
            note(notice)
        made = source_for(found, source, dict(options))
        async with open_archive(settings_of(home)) as archive:
            return await reextract(
                store, archive, found, made, SystemClock(), limit=limit, write=write
            )

    result = with_store(home, again)
    if as_json:
        print_json(result.as_dict())
    else:
        _show(result, is_written=write)
    sys.exit(result.exit_code)


def _show(result: Reextraction, *, is_written: bool) -> None:
    told = result.as_dict()  # its counts add up to the number of items
    counts = ", ".join(f"{told[one.value]} {_WORDS.get(one, one.value)}" for one in Finding)
    click.echo(f"{told['items']} items of {result.job}: {counts}; {told['requests']} requests")
    _show_notices(result)
    _show_changes(result)
    for finding in (Finding.FAILED, Finding.REMOVED):
        for one in result.of(finding)[:_SHOWN]:
            echo_line(f"{finding.value} {one.key}: {one.reason}")
        if (more := len(result.of(finding)) - _SHOWN) > 0:
            click.echo(f"and {more} {finding.value} more; --json shows them all")
    if is_written:
        click.echo(f"{result.written} written")
    elif told["changed"] or told["new"]:
        click.echo("nothing was written; --write stores what is new or changed")


def _show_notices(result: Reextraction) -> None:
    told = result.as_dict()
    if told["superseded"]:
        click.echo(f"{told['superseded']} were seen by a later job since and are never replaced")
    if result.unfinished:
        click.echo(f"{result.unfinished} items were never finished and are not compared")
    if not result.is_discovery_repeated:
        click.echo("discovery was not repeated: whether the source finds other items is unknown")
    if result.discovery_problem:
        echo_line(f"discovery did not find everything: {result.discovery_problem}")
    if told["renamed"]:
        click.echo(
            f"{len(told['renamed'])} have another key now; records under their old keys stay"
        )


def _show_changes(result: Reextraction) -> None:
    changed = result.of(Finding.CHANGED)
    if not changed:
        return
    table = Table(Column("item", no_wrap=True), "field", "before", "now", box=None)
    for one in changed[:_SHOWN]:
        if one.new_key:
            table.add_row(one.key, "(key)", one.key, one.new_key)
        for change in one.changes:
            values = (_shown(change, side) for side in ("old", "new"))
            table.add_row(one.key, change.field, *values)
    plain_console().print(table)
    if len(changed) > _SHOWN:
        click.echo(f"and {len(changed) - _SHOWN} items more; --json shows them all")


def _shown(change: Change, side: str) -> str:
    if side not in change.values:
        return "(no such field)"
    value: Any = change.values[side]
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
