"""longline quarantine and reextract: process stored items again, without requests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table as Grid
from rich.text import Text

from longline.analysis.reextract import (
    ReextractedItem,
    Reextraction,
    ReextractStatus,
    copy_notice,
    reextract,
    source_for,
)
from longline.analysis.replay import Replay, replay, source_now
from longline.cli.options import COUNT, JOB, common_options, enum_option, set_option, settings_of
from longline.cli.output import (
    SafeConsole,
    TextTable,
    diff_sides,
    iso_time,
    one_line,
    print_heading,
    print_line,
    print_note,
    print_result,
    value_text,
)
from longline.cli.queries import uses_store
from longline.core.clock import SystemClock
from longline.core.errors import FailureKind
from longline.core.output import count_text, sanitize
from longline.pipeline.pipeline import unpack_material
from longline.storage.store import Store
from longline.wiring import open_archive

_KINDS = (FailureKind.INVALID, FailureKind.BUG)
_SHOWN_ITEMS = 20  # items of each kind; --json has all


@click.group("quarantine")
def quarantine_command() -> None:
    """Inspect quarantined items and reprocess them offline."""


@quarantine_command.command("list")
@click.argument("job", type=JOB, required=False)
@enum_option("--kind", _KINDS, "Only items with this kind of failure.")
@click.option("--reason", metavar="TEXT", help="Only reasons that contain TEXT.")
@common_options
@uses_store
async def list_reasons(
    store: Store, job: str | None, *, kind: FailureKind | None, reason: str | None
) -> None:
    """List the reasons for quarantine, in JOB or in all jobs."""
    name = (await store.jobs.get(job)).id if job else None
    groups = await store.quarantine.groups(name, kind=kind, text=reason or "")
    table = TextTable("items", "job", "reason", "examples")
    for one in groups:
        table.add(one.count, one.job, one.reason, ", ".join(one.keys))
    print_result([asdict(group) for group in groups], lambda: table.print("no quarantined items"))


@quarantine_command.command("show")
@click.argument("job", type=JOB)
@click.argument("key")
@common_options
@uses_store
async def show_item(store: Store, job: str, key: str) -> None:
    """Show a quarantined item: its problems and the data of its layers."""
    found = await store.quarantine.get((await store.jobs.get(job)).id, key)
    material = unpack_material(found.raw)
    item = {
        "job": found.job,
        "key": found.item.key,
        "url": found.item.url,
        "kind": found.kind,
        "reason": found.reason,
        "problems": list(material.problems) or [found.reason],
        "at": iso_time(found.finished_at),
        "layers": dict(material.layers),
        "notes": [asdict(one) for one in material.notes],
        "raw": material.results,
    }
    print_result(item, lambda: _print_item(item))


def _print_item(item: dict[str, Any]) -> None:
    print_line(f"{item['job']} {item['key']}", "bold", end=" ")
    print_line(item["url"])
    for problem in item["problems"]:
        print_line(f"  {problem}")
    for layer, fields in item["raw"].items():
        print_heading(f"layer {layer}")
        grid = Grid.grid(padding=(0, 2))
        for name, value in fields.items():
            grid.add_row(Text(f"  {sanitize(name)}"), Text(sanitize(value_text(value))))
        SafeConsole().print(grid)
    for one in item["notes"]:
        print_line(f"  note on {one['field']}: {one['text']}")


@quarantine_command.command("replay")
@click.argument("job", type=JOB)
@click.option(
    "--source",
    metavar="SOURCE",
    help="The corrected source: FILE.yaml, FILE.py, a name, or module:Class.",
)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only this item. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Print the result without storing it.")
@common_options
@uses_store
async def replay_items(
    store: Store, job: str, *, source: str | None, keys: tuple[str, ...], dry_run: bool
) -> None:
    """Reprocess the quarantined items of JOB.

    Uses the source as it is now and sends no requests. If JOB was run with --archive, a manifest
    is applied again to the archived pages, including discovery. Otherwise compose and pipeline run
    again on the stored results of the layers, and items that a changed manifest would extract
    differently stay in quarantine.

    Exits with the code of the new state of JOB: 0 complete, 3 partial, 1 failed. With --dry-run,
    exits with 3 if an item would stay in quarantine.
    """
    found = await store.jobs.get(job)
    if source is None and (notice := copy_notice(found)):
        print_note(notice)
    made, settings = source_now(found, source), settings_of()
    async with open_archive(settings) if settings.archive.is_dir() else nullcontext() as archive:
        result = await replay(
            store, found, made, SystemClock(), archive=archive, keys=keys, dry_run=dry_run
        )
    print_result(result.as_dict(), lambda: _print_replay(result))
    sys.exit(result.exit_code)


def _print_replay(result: Replay) -> None:
    would = "would be " if result.is_dry else ""
    parts = [f"{count} {would}{state}" for state, count in result.ends.items()]
    parts += [f"{result.others} replayed by another process"] if result.others else []
    counts = ", ".join(parts) or "nothing to do"
    click.echo(f"{count_text(result.items, 'item')} of {result.job}: {counts}")
    for key, reason in [*result.still.items(), *result.left.items()][:_SHOWN_ITEMS]:
        print_line(f"still in quarantine {key}: {reason}")
    if (more := len(result.still) + len(result.left) - _SHOWN_ITEMS) > 0:
        click.echo(f"and {more} more; --json shows all")
    if not result.is_dry:
        click.echo(f"the job is {result.as_dict()['state']}")


# ---------------- reextract

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
@common_options
@uses_store
async def reextract_command(
    store: Store,
    job: str,
    *,
    source: str | None,
    options: tuple[tuple[str, str], ...],
    limit: int | None,
    write: bool,
) -> None:
    """Extract the items of JOB again from archived responses.

    Compares the result with the stored records. Sends no requests; JOB must have been run with
    --archive. Without --source, a manifest is read again from its file. Discovery is repeated on
    the archived pages. Exits with 3 if an item could not be extracted or compared, or is no longer
    discovered.
    """
    found = await store.jobs.get(job)
    if source is None and (notice := copy_notice(found)):
        print_note(notice)
    made = source_for(found, source, dict(options))
    async with open_archive(settings_of()) as archive:
        result = await reextract(
            store, archive, found, made, SystemClock(), limit=limit, write=write
        )
    print_result(result.as_dict(), lambda: _print_reextraction(result, is_written=write))
    sys.exit(result.exit_code)


def _print_reextraction(result: Reextraction, *, is_written: bool) -> None:
    counts = result.as_dict()  # they add up to the number of items
    parts = ", ".join(
        f"{counts[one.value]} {_WORDS.get(one, one.value)}" for one in ReextractStatus
    )
    items, requests = count_text(counts["items"], "item"), count_text(counts["requests"], "request")
    click.echo(f"{items} of {result.job}: {parts}; {requests}")
    superseded, renamed = counts["superseded"], len(counts["renamed"])
    kept = count_text(
        superseded, "record updated by a later job is", "records updated by a later job are"
    )
    unfinished = count_text(
        result.unfinished, "item was never finished and is", "items were never finished and are"
    )
    rekeyed = count_text(renamed, "item has", "items have")
    notes = {
        f"{kept} not replaced": superseded,
        f"{unfinished} not compared": result.unfinished,
        "discovery was not repeated: new and removed items are unknown": (
            not result.is_discovery_repeated
        ),
        f"discovery is incomplete: {result.discovery_problem}": result.discovery_problem,
        f"{rekeyed} a new key; records under old keys are kept": renamed,
    }
    for text, applies in notes.items():
        if applies:
            print_line(text)
    _print_changed(result.of(ReextractStatus.CHANGED))
    for status in (ReextractStatus.FAILED, ReextractStatus.REMOVED):
        for one in result.of(status)[:_SHOWN_ITEMS]:
            print_line(f"{status.value} {one.key}: {one.reason}")
        if (more := len(result.of(status)) - _SHOWN_ITEMS) > 0:
            click.echo(f"and {more} more {status.value}; --json shows all")
    if is_written:
        click.echo(f"{result.written} records written")
    elif counts["changed"] or counts["new"]:
        click.echo("nothing was written; --write stores new and changed records")


def _print_changed(changed: Sequence[ReextractedItem]) -> None:
    columns = ("item", "field", "before", "after")
    table = TextTable(*columns)
    for one in changed[:_SHOWN_ITEMS]:
        if one.new_key:
            table.add(one.key, "(key)", one.key, one.new_key)
        for change in one.changes:
            sides = (one_line(side, _VALUE) for side in diff_sides(change))
            table.add(one.key, change.field, *sides)
    if changed:
        table.print()
    if (more := len(changed) - _SHOWN_ITEMS) > 0:
        click.echo(f"and {more} more items; --json shows all")
