"""longline quarantine: data that did not fit, and its way into the records without a request."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import orjson
from rich.table import Column, Table
from rich.text import Text

from longline.analysis.quarantine import Replay, replay, source_now
from longline.analysis.reextract import copy_notice
from longline.cli.format import cleaned, echo_line, note, plain_console
from longline.cli.opening import with_store
from longline.cli.options import JOB, home_option, json_option, print_json, settings_of
from longline.core.clock import SystemClock, utc_datetime
from longline.core.errors import FailureKind
from longline.pipeline.material import unpack_material
from longline.storage.queue.quarantine import Group, Held
from longline.storage.store import Store
from longline.wiring import open_archive

_KINDS = [FailureKind.INVALID.value, FailureKind.BUG.value]
_SHOWN = 20  # items; --json has them all


@click.group("quarantine")
def command() -> None:
    """Show quarantined items, or process them again without a request."""


@command.command("list")
@click.argument("job", type=JOB, required=False)
@click.option("--kind", type=click.Choice(_KINDS), help="Only what failed in this way.")
@click.option("--reason", default="", help="Only reasons that hold this text.")
@home_option
@json_option
def list_groups(
    job: str | None, *, kind: str | None, reason: str, home: Path | None, as_json: bool
) -> None:
    """List why items are in quarantine, with how many there are of each reason."""

    async def look(store: Store) -> list[Group]:
        name = (await store.jobs.get(job)).id if job else None
        chosen = FailureKind(kind) if kind else None
        return await store.quarantine.groups(name, kind=chosen, text=reason)

    groups = with_store(home, look)
    if as_json:
        print_json([asdict(group) for group in groups])
        return
    table = Table(Column("items", justify="right"), "job", "reason", "such as", box=None)
    for one in groups:
        texts = (str(one.count), one.job, one.reason, ", ".join(one.keys))
        table.add_row(*(Text(cleaned(text)) for text in texts))
    plain_console().print(table if groups else "nothing is in quarantine")


@command.command("show")
@click.argument("job", type=JOB)
@click.argument("key")
@home_option
@json_option
def show(job: str, key: str, *, home: Path | None, as_json: bool) -> None:
    """Show why an item is in quarantine, all that is wrong with it, and what it was made of."""

    async def look(store: Store) -> Held:
        return await store.quarantine.get((await store.jobs.get(job)).id, key)

    held = with_store(home, look)
    told = _told(held)
    if as_json:
        # What no database could hold, no line of UTF-8 can either: escapes can.
        click.echo(orjson.dumps(told).decode())
        return
    _print(told)


@command.command("replay")
@click.argument("job", type=JOB)
@click.option("--source", help="The mended source: FILE.yaml, FILE.py, a name, or mod:Class.")
@click.option("--key", "keys", multiple=True, help="Only this item; may be given several times.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and say what would come of it.")
@home_option
@json_option
def replay_items(
    job: str,
    *,
    source: str | None,
    keys: tuple[str, ...],
    dry_run: bool,
    home: Path | None,
    as_json: bool,
) -> None:
    """Make records of the quarantined items of JOB with its source as it is now.

    Not one request is made. If JOB was run with --archive, a manifest is applied again to the
    archived pages, from discovery on. Otherwise compose and pipeline run again on what the layers
    left, and items that a changed manifest would read differently are left as they are.

    Exits as a run of JOB would: 0 when it is complete now, 3 when it is partial, 1 when it failed.
    With --dry-run, 3 when something would still be in quarantine.
    """

    async def again(store: Store) -> Replay:
        found = await store.jobs.get(job)
        if source is None and (notice := copy_notice(found)):
            note(notice)
        made, settings = source_now(found, source), settings_of(home)
        async with AsyncExitStack() as ends:
            archive = None
            if settings.archive.is_dir():
                archive = await ends.enter_async_context(open_archive(settings))
            return await replay(
                store, found, made, SystemClock(), archive=archive, keys=keys, dry_run=dry_run
            )

    result = with_store(home, again)
    if as_json:
        print_json(result.as_dict())
    else:
        _print_replay(result)
    sys.exit(result.exit_code)


def _told(held: Held) -> dict[str, Any]:
    material = unpack_material(held.raw)
    return {
        "job": held.job,
        "key": held.item.key,
        "url": held.item.url,
        "kind": held.kind,
        "reason": held.reason,
        "problems": list(material.problems) or [held.reason],
        "at": utc_datetime(held.finished_at).isoformat(timespec="seconds"),
        "layers": dict(material.layers),
        "notes": [asdict(one) for one in material.notes],
        "raw": _storable(material.results),
    }


def _storable(value: Any) -> Any:
    """Return a value as JSON can show it: half a surrogate pair as its escape."""
    if isinstance(value, dict):
        return {_storable(name): _storable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_storable(one) for one in value]
    if isinstance(value, int) and value.bit_length() > 63:  # noqa: PLR2004  # orjson's largest
        return str(value)
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _print(told: dict[str, Any]) -> None:
    console = plain_console()
    console.print(cleaned(f"{told['job']} {told['key']}"), style="bold", end=" ", soft_wrap=True)
    console.print(cleaned(told["url"]), soft_wrap=True)
    for problem in told["problems"]:
        console.print(f"  {cleaned(problem)}", soft_wrap=True)
    for layer, fields in told["raw"].items():
        console.print(f"\n{cleaned(layer)} found", style="bold")
        table = Table.grid(padding=(0, 2))
        for name, value in fields.items():
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            table.add_row(Text(f"  {cleaned(name)}"), Text(cleaned(text)))
        console.print(table)
    for one in told["notes"]:
        console.print(cleaned(f"  note on {one['field']}: {one['text']}"), soft_wrap=True)


def _print_replay(result: Replay) -> None:
    told = result.as_dict()
    would = "would be " if result.is_dry else ""
    parts = [f"{count} {would}{state}" for state, count in result.ends.items()]
    parts += [f"{result.others} settled by another replay"] if result.others else []
    counts = ", ".join(parts)
    click.echo(f"{result.items} items of {result.job}: {counts or 'nothing done'}; no request")
    for key, reason in [*result.still.items(), *result.left.items()][:_SHOWN]:
        echo_line(f"still in quarantine {key}: {reason}")
    if (more := len(result.still) + len(result.left) - _SHOWN) > 0:
        click.echo(f"and {more} items more; --json shows them all")
    if not result.is_dry:
        click.echo(f"the job is {told['state']}")
