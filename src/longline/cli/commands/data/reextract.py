"""longline reextract: run layers and pipeline again on archived responses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from longline.analysis.reextract import (
    Reextraction,
    ReextractStatus,
    copy_notice,
    reextract,
    source_for,
)
from longline.cli.options import COUNT, JOB, home_option, json_option, set_option, settings_of
from longline.cli.output import print_json, print_line, print_note, value_text
from longline.cli.queries import with_store
from longline.cli.table import TextTable
from longline.core.clock import SystemClock
from longline.core.json_diff import FieldDiff
from longline.storage.store import Store
from longline.wiring import open_archive

_SHOWN = 20  # items of each kind; --json has all
_VALUE = 60  # characters
_WORDS = {ReextractStatus.NEW: "newly extracted", ReextractStatus.REMOVED: "no longer discovered"}


@click.command("reextract")
@click.argument("job", type=JOB)
@click.option(
    "--source",
    metavar="SOURCE",
    help="Extract with another source: a name, FILE.py, FILE.yaml, or module:Class.",
)
@set_option
@click.option("--limit", type=COUNT, help="Maximum number of items.")
@click.option("--write", is_flag=True, help="Store new and changed records as new versions.")
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
    """Extract the items of JOB again from archived responses.

    Compares the result with the stored records. Sends no requests; JOB must have been run with
    --archive. Without --source, a manifest is read again from its file. Discovery is repeated on
    the archived pages. Exits with 3 if an item could not be extracted or compared, or is no longer
    discovered.
    """

    async def extracted(store: Store) -> Reextraction:
        found = await store.jobs.get(job)
        if source is None and (notice := copy_notice(found)):
            print_note(notice)
        made = source_for(found, source, dict(options))
        async with open_archive(settings_of(home)) as archive:
            return await reextract(
                store, archive, found, made, SystemClock(), limit=limit, write=write
            )

    result = with_store(home, extracted)
    if as_json:
        print_json(result.as_dict())
    else:
        _print_result(result, is_written=write)
    sys.exit(result.exit_code)


def _print_result(result: Reextraction, *, is_written: bool) -> None:
    counts = result.as_dict()  # they add up to the number of items
    parts = ", ".join(
        f"{counts[one.value]} {_WORDS.get(one, one.value)}" for one in ReextractStatus
    )
    click.echo(f"{counts['items']} items of {result.job}: {parts}; {counts['requests']} requests")
    _print_notices(result, counts)
    _print_changes(result)
    for finding in (ReextractStatus.FAILED, ReextractStatus.REMOVED):
        for one in result.of(finding)[:_SHOWN]:
            print_line(f"{finding.value} {one.key}: {one.reason}")
        if (more := len(result.of(finding)) - _SHOWN) > 0:
            click.echo(f"and {more} more {finding.value}; --json shows all")
    if is_written:
        click.echo(f"{result.written} records written")
    elif counts["changed"] or counts["new"]:
        click.echo("nothing was written; --write stores new and changed records")


def _print_notices(result: Reextraction, counts: dict[str, Any]) -> None:
    if counts["superseded"]:
        click.echo(f"{counts['superseded']} were updated by a later job and are not replaced")
    if result.unfinished:
        click.echo(f"{result.unfinished} items were never finished and are not compared")
    if not result.is_discovery_repeated:
        click.echo("discovery was not repeated: new and removed items are unknown")
    if result.discovery_problem:
        print_line(f"discovery is incomplete: {result.discovery_problem}")
    if counts["renamed"]:
        click.echo(
            f"{len(counts['renamed'])} items have a new key; records under old keys are kept"
        )


def _print_changes(result: Reextraction) -> None:
    changed = result.of(ReextractStatus.CHANGED)
    if not changed:
        return
    table = TextTable("item", "field", "before", "after", wrap=("item", "field", "before", "after"))
    for one in changed[:_SHOWN]:
        if one.new_key:
            table.add(one.key, "(key)", one.key, one.new_key)
        for change in one.changes:
            table.add(
                one.key, change.field, _change_side(change, "old"), _change_side(change, "new")
            )
    table.print()
    if len(changed) > _SHOWN:
        click.echo(f"and {len(changed) - _SHOWN} more items; --json shows all")


def _change_side(change: FieldDiff, side: str) -> str:
    if side not in change.values:
        return "(no such field)"
    text = value_text(change.values[side])
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}…"
