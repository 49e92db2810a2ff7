"""longline limits: how fast each domain may be asked, and who says so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.table import Table

from longline.cli.format import plain_console
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.config.settings import prepare_home
from longline.core.clock import SystemClock, utc_datetime
from longline.core.errors import BadOption
from longline.http.messages import origin_of
from longline.limits import learning
from longline.limits.backends.base import StateBackend
from longline.limits.learning import Learned
from longline.wiring import open_limit_backends

T = TypeVar("T")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|\w([\w.-]*\w)?\.?)(:[0-9]{1,5})?")


@click.group("limits", invoke_without_command=True)
@home_option
@json_option
@click.pass_context
def command(context: click.Context, *, home: Path | None, as_json: bool) -> None:
    """List the limits that are known of domains; pin one, or forget it."""
    context.obj = home
    if context.invoked_subcommand is None:
        known = _with_limits(home, lambda limits: limits.all())
        _show({name: _row(state) for name, state in known.items()}, as_json=as_json)


@command.command("pin")
@click.argument("domain")
@click.option("--rate", type=float, required=True, help="Requests a second.")
@click.option("--burst", type=int, default=1, show_default=True, help="Requests at once.")
@home_option
@json_option
@click.pass_obj
def pin(
    outer: Path | None, *, domain: str, rate: float, burst: int, home: Path | None, as_json: bool
) -> None:
    """Have DOMAIN asked at exactly this pace; nothing is learned over it."""

    def step(state: Learned | None, now: float) -> tuple[Learned, Learned]:
        pinned = learning.pin(state, rate, burst, now)
        return pinned, pinned

    name = _domain(domain)
    if not _HOST.fullmatch(name):
        raise BadOption("DOMAIN", f"must be a host like shop.example:8080, not {domain!r}")
    learning.pin(None, rate, burst, 0.0)  # a figure that makes no sense is refused here
    state = _with_limits(home or outer, lambda limits: limits.change(name, step))
    _show({name: _row(state)}, as_json=as_json)


@command.command("forget")
@click.argument("domain")
@home_option
@json_option
@click.pass_obj
def forget(outer: Path | None, *, domain: str, home: Path | None, as_json: bool) -> None:
    """Forget what is known of DOMAIN, a pin included; it is learned anew."""
    name = _domain(domain)
    if not _with_limits(home or outer, lambda limits: limits.forget(name)):
        raise BadOption("DOMAIN", f"no limit of {name} is known")
    if as_json:
        print_json({"forgotten": name})
    else:
        click.echo(f"the limit of {name} is forgotten")


def _with_limits(home: Path | None, use: Callable[[StateBackend[Learned]], Awaitable[T]]) -> T:
    settings = settings_of(home)
    prepare_home(settings)

    async def look() -> T:
        async with open_limit_backends(settings, SystemClock()) as backends:
            return await use(backends.limits)

    return asyncio.run(look())


def _domain(text: str) -> str:
    """Return host and port as requests name them; a whole address will do."""
    return origin_of(text if "://" in text else f"http://{text}")[1]


def _row(state: Learned) -> dict[str, Any]:
    changed = (
        utc_datetime(state.changed_at).isoformat(timespec="seconds") if state.changed_at else None
    )
    return {
        "rate": learning.displayed_rate(state),
        "burst": learning.limit_of(state).capacity,
        "known": state.origin,
        "proven": state.proven or None,
        "refusals": state.refusals,
        "ceiling": state.ceiling,
        "published": state.published,
        "robots": state.restraint,
        "changed_at": changed,
    }


def _show(rows: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json([{"domain": name, **row} for name, row in rows.items()])
        return
    table = Table(
        "domain",
        "rate",
        "burst",
        "known",
        "proven",
        "refusals",
        "ceiling",
        "changed (UTC)",
        box=None,
    )
    for name, row in rows.items():
        table.add_row(
            name,
            _figure(row["rate"]),
            str(row["burst"]),
            row["known"],
            _figure(row["proven"]),
            str(row["refusals"]),
            _figure(row["ceiling"]),
            (row["changed_at"] or "")[:16],
        )
    plain_console().print(table if rows else "no limits are known yet")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}/s"
