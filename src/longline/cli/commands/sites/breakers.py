"""longline breakers: circuit breakers of domains."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.commands.sites.limits import with_limit_backends
from longline.cli.options import home_option, json_option
from longline.cli.output import iso_time, print_json, print_line
from longline.cli.queries import with_store
from longline.cli.table import TextTable
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.limits.breaker import BreakerBackend, BreakerPolicy, BreakerState, status_of_breaker


@click.group("breakers", invoke_without_command=True)
@home_option
@json_option
@click.pass_context
def command(context: click.Context, *, home: Path | None, as_json: bool) -> None:
    """List circuit breakers and reset them."""
    if context.invoked_subcommand is not None:
        return
    known = with_limit_backends(home, lambda backends: backends.breakers.all())
    rows = [_breaker_row(domain, state) for domain, state in sorted(known.items())]
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo("no circuit breakers yet")
        return
    numbers = ("failures", "failure rate", "trips")
    table = TextTable(
        "domain", "phase", *numbers, "until (UTC)", "reason", right=numbers, note="reason"
    )
    for row in rows:
        until = (row["until"] or "")[:19]
        table.add(
            row["domain"],
            f"{row['phase']}{' (banned)' if row['is_ban'] and until else ''}",
            row["failures"],
            "" if row["rate"] is None else f"{row['rate']:.0%}",
            row["trips"],
            until,
            row["reason"],
        )
    table.print()


@command.command("show")
@click.argument("domain")
@home_option
@json_option
def show_breaker(domain: str, *, home: Path | None, as_json: bool) -> None:
    """Show the circuit breaker of DOMAIN and its recent changes."""
    row = _breaker_row(
        domain, with_limit_backends(home, lambda one: _breaker(one.breakers, domain))
    )
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        if name != "history":
            print_line(f"{name:10} {'' if value is None else value}")
    for change in row["history"]:
        print_line(f"  {change['at']}  {change['old']} -> {change['new']}  {change['reason']}")


@command.command("reset")
@click.argument("domain")
@home_option
@json_option
def reset(domain: str, *, home: Path | None, as_json: bool) -> None:
    """Close the circuit breaker of DOMAIN.

    Its deferred items become due immediately.
    """

    async def closed(backend: BreakerBackend) -> BreakerState:
        await _breaker(backend, domain)
        return await backend.reset(domain)

    row = _breaker_row(
        domain, with_limit_backends(home, lambda backends: closed(backends.breakers))
    )
    due = with_store(home, lambda store: store.queue.hurry(domain))
    if as_json:
        print_json({**row, "items": due})
        return
    click.echo(f"the breaker of {domain} is {row['phase']}; {due} deferred items are due now")


async def _breaker(backend: BreakerBackend, domain: str) -> BreakerState:
    known = await backend.all()
    if domain not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise BadOption("DOMAIN", f"{domain!r} has no breaker; known domains: {listed}")
    return known[domain]


def _breaker_row(domain: str, state: BreakerState) -> dict[str, Any]:
    row = asdict(status_of_breaker(state, BreakerPolicy(), SystemClock().now()))
    history = [{**change, "at": iso_time(change["at"])} for change in row.pop("history")]
    times = {name: iso_time(row[name]) for name in ("opened_at", "until")}
    return {"domain": domain, **row, **times, "history": history}
