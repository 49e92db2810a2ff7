"""longline drift: changes in the fields of sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from longline.cli.options import JOB, home_option, json_option
from longline.cli.output import iso_time, one_line, print_json, time_text
from longline.cli.queries import with_store
from longline.cli.table import TextTable
from longline.core.clock import SystemClock
from longline.drift.monitor import accept_profile
from longline.drift.report import drift_of, sources_watched

_TYPICAL = ("typical value before", "typical value now")
_KINDS = {"flag": "boolean"}  # stored profiles keep the short name
_UNITS = {"text": " characters", "list": " entries"}


class _ShowByDefault(click.Group):
    """Takes the name of a source in place of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("drift", cls=_ShowByDefault)
def command() -> None:
    """Show changes in the fields of sources, and accept them.

    `longline drift` lists sources, `longline drift SOURCE` shows the fields of one.
    """


@command.command("show")
@click.argument("source", required=False)
@home_option
@json_option
def show_drift(source: str | None, *, home: Path | None, as_json: bool) -> None:
    """Show the fields of SOURCE in its last run and before.

    Without SOURCE, list the last run of every source.
    """
    if source is None:
        _list(home, as_json=as_json)
        return
    seen = with_store(home, lambda store: drift_of(store, source))
    if as_json:
        print_json({**seen, "at": iso_time(seen["at"])})
        return
    _print_fields(seen)


@command.command("accept")
@click.argument("job", type=JOB)
@home_option
@json_option
def accept_job(job: str, *, home: Path | None, as_json: bool) -> None:
    """Use the records of JOB as the baseline of later runs."""
    kept = with_store(home, lambda store: accept_profile(store, job, SystemClock().now()))
    if as_json:
        print_json({"job": kept.job, "source": kept.source, "is_accepted": True})
        return
    click.echo(f"{kept.job} is now the baseline of {kept.source}")


def _list(home: Path | None, *, as_json: bool) -> None:
    rows = with_store(home, sources_watched)
    if as_json:
        print_json([{**row, "at": iso_time(row["at"])} for row in rows])
        return
    if not rows:
        click.echo("no run has ended yet; try: longline demo")
        return
    table = TextTable(
        "source", "last run", "ended (UTC)", "records", "drift", wrap=("source", "drift")
    )
    for row in rows:
        table.add(row["source"], row["job"], time_text(row["at"]), row["records"], _drift(row))
    table.print()


def _print_fields(seen: dict[str, Any]) -> None:
    baseline = seen["baseline"]
    click.echo(f"{seen['source']}: last run {seen['job']}, {seen['records']} records")
    click.echo(f"baseline: {baseline['runs']} earlier runs, {baseline['records']} records")
    columns = ("filled before", "filled now", "type before", "type now", *_TYPICAL)
    table = TextTable("field", *columns, keep_end="field")
    for row in seen["fields"]:
        before, now = _cells(row["before"]), _cells(row["now"])
        table.add(row["field"], *(cell for pair in zip(before, now, strict=True) for cell in pair))
    table.print()
    click.echo(f"drift: {one_line(_drift(seen))}")


def _drift(row: dict[str, Any]) -> str:
    if row["is_accepted"]:
        return "accepted"
    if row["is_sound"]:
        return "none"
    return ", ".join(row["drift"]) or str(row["reason"])


def _cells(field: dict[str, Any] | None) -> tuple[str, str, str]:
    if field is None:
        return "", "", ""
    kind, middle = field["kind"] or "", field["middle"]
    size = "" if middle is None else f"{middle:g}{_UNITS.get(kind, '')}"
    return f"{field['filled']:.0%}", _KINDS.get(kind, kind), size
