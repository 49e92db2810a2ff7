"""longline drift: whether sources still look as they always did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from longline.cli.format import cleaned, plain_console
from longline.cli.opening import with_store
from longline.cli.options import JOB, home_option, json_option, print_json
from longline.core.clock import SystemClock, utc_datetime
from longline.drift.view import drift_of, sources_watched
from longline.drift.watch import accept

_UNITS = {"text": " chars", "list": " entries"}


class _ShowsByDefault(click.Group):
    """Takes the name of a source where others have a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "-h", "--help"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("drift", cls=_ShowsByDefault)
def command() -> None:
    """Show how fields of sources have changed, or accept what they look like now.

    `longline drift` lists sources, `longline drift SOURCE` shows the fields of one.
    """


@command.command("show")
@click.argument("source", required=False)
@home_option
@json_option
def show(source: str | None, *, home: Path | None, as_json: bool) -> None:
    """Show the fields of SOURCE, before and in its last run; or the last run of each source."""
    if source is None:
        _list(home, as_json=as_json)
        return
    seen = with_store(home, lambda store: drift_of(store, source))
    if as_json:
        print_json({**seen, "at": _moment(seen["at"])})
        return
    _print_fields(seen)


@command.command("accept")
@click.argument("job", type=JOB)
@home_option
@json_option
def accept_job(job: str, *, home: Path | None, as_json: bool) -> None:
    """Make what the records of JOB look like the measure of later runs."""
    kept = with_store(home, lambda store: accept(store, job, SystemClock().now()))
    if as_json:
        print_json({"job": kept.job, "source": kept.source, "is_accepted": True})
        return
    click.echo(f"later runs of {kept.source} are measured by {kept.job}")


def _list(home: Path | None, *, as_json: bool) -> None:
    rows = with_store(home, sources_watched)
    if as_json:
        print_json([{**row, "at": _moment(row["at"])} for row in rows])
        return
    table = Table("source", "last run", "ended (UTC)", "records", "drift", box=None)
    for row in rows:
        texts = (row["source"], row["job"], _moment(row["at"])[:16], str(row["records"]))
        table.add_row(*(_shown(text) for text in (*texts, _verdict(row))))
    plain_console().print(table if rows else "no run has ended yet; try: longline demo")


def _print_fields(seen: dict[str, Any]) -> None:
    baseline = seen["baseline"]
    click.echo(f"{seen['source']}: last run {seen['job']}, {seen['records']} records")
    click.echo(f"measured by {baseline['runs']} earlier runs, {baseline['records']} records")
    table = Table("field", "filled before", "now", "kind before", "now", "size before", "now")
    table.box = None
    for row in seen["fields"]:
        before, now = _words(row["before"]), _words(row["now"])
        pairs = (text for pair in zip(before, now, strict=True) for text in pair)
        table.add_row(*(_shown(text) for text in (row["field"], *pairs)))
    plain_console().print(table)
    click.echo(f"drift: {cleaned(_verdict(seen), is_line=True)}")


def _verdict(row: dict[str, Any]) -> str:
    if row["is_accepted"]:
        return "accepted"
    if row["is_sound"]:
        return "none"
    return ", ".join(row["drift"]) or str(row["reason"])


def _words(figures: dict[str, Any] | None) -> tuple[str, str, str]:
    if figures is None:
        return "", "", ""
    kind, middle = figures["kind"] or "", figures["middle"]
    size = "" if middle is None else f"{middle:g}{_UNITS.get(kind, '')}"
    return f"{figures['filled']:.0%}", kind, size


def _shown(text: str) -> str:
    return cleaned(text, is_line=True)


def _moment(at: float) -> str:
    return utc_datetime(at).isoformat(timespec="seconds")
