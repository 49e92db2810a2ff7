"""longline breakers: which sites are left alone, why, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.table import Table

from longline.cli.format import echo_line, plain_console
from longline.cli.opening import with_store
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.config.settings import prepare_home
from longline.core.clock import SystemClock, utc_datetime
from longline.core.errors import BadOption
from longline.limits.breaker import (
    BreakerBackend,
    BreakerPolicy,
    BreakerState,
    status_of_breaker,
)
from longline.wiring import open_limit_backends

T = TypeVar("T")


@click.group("breakers", invoke_without_command=True)
@home_option
@json_option
@click.pass_context
def command(context: click.Context, *, home: Path | None, as_json: bool) -> None:
    """Show which sites are left alone, why and until when, or ask one again now."""
    if context.invoked_subcommand is not None:
        return
    rows = [_row(*one) for one in sorted(_with_breakers(home, _all).items())]
    if as_json:
        print_json(rows)
        return
    table = Table("domain", "phase", "failures", "rate", "trips", "until (UTC)", "reason", box=None)
    for row in rows:
        table.add_row(*_words(row))
    plain_console().print(table if rows else "no site has failed so far")


@command.command("show")
@click.argument("domain")
@home_option
@json_option
def show(domain: str, *, home: Path | None, as_json: bool) -> None:
    """Show how the breaker of DOMAIN stands, and its last changes."""
    row = _row(domain, _with_breakers(home, lambda backend: _one(backend, domain)))
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        if name != "history":
            echo_line(f"{name:10} {'' if value is None else value}")
    for change in row["history"]:
        echo_line(f"  {change['at']}  {change['old']} -> {change['new']}  {change['reason']}")


@command.command("reset")
@click.argument("domain")
@home_option
@json_option
def reset(domain: str, *, home: Path | None, as_json: bool) -> None:
    """Close the breaker of DOMAIN by hand, so that it is asked again."""

    async def closed(backend: BreakerBackend) -> BreakerState:
        await _one(backend, domain)
        return await backend.reset(domain)

    row = _row(domain, _with_breakers(home, closed))
    hurried = with_store(home, lambda store: store.queue.hurry(domain))
    if as_json:
        print_json({**row, "items": hurried})
        return
    click.echo(f"{domain} is {row['phase']} and asked again; {hurried} parked items are due now")


def _with_breakers(home: Path | None, use: Callable[[BreakerBackend], Awaitable[T]]) -> T:
    settings = settings_of(home)
    prepare_home(settings)

    async def look() -> T:
        async with open_limit_backends(settings, SystemClock()) as backends:
            return await use(backends.breakers)

    return asyncio.run(look())


async def _all(backend: BreakerBackend) -> dict[str, BreakerState]:
    return await backend.all()


async def _one(backend: BreakerBackend, domain: str) -> BreakerState:
    known = await backend.all()
    if domain not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise BadOption("DOMAIN", f"nothing is known of {domain!r}; known are: {listed}")
    return known[domain]


def _row(domain: str, state: BreakerState) -> dict[str, Any]:
    told = asdict(status_of_breaker(state, BreakerPolicy(), SystemClock().now()))
    history = [{**change, "at": _moment(change["at"])} for change in told.pop("history")]
    moments = {name: _moment(told[name]) for name in ("opened_at", "until")}
    return {"domain": domain, **told, **moments, "history": history}


def _moment(at: float | None) -> str | None:
    return None if at is None else utc_datetime(at).isoformat(timespec="seconds")


def _words(row: dict[str, Any]) -> list[str]:
    rate = "" if row["rate"] is None else f"{row['rate']:.0%}"
    until = (row["until"] or "")[:19]
    phase = f"{row['phase']}{' (banned)' if row['is_ban'] and until else ''}"
    trips = str(row["trips"])
    return [row["domain"], phase, str(row["failures"]), rate, trips, until, row["reason"]]
