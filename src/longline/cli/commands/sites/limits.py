"""longline limits: rate limits of domains, pinned, published or learned."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import iso_time, print_json
from longline.cli.table import TextTable
from longline.config.settings import prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.http.messages import origin_of
from longline.limits import learning
from longline.limits.learning import Learned
from longline.wiring import LimitBackends, open_limit_backends

T = TypeVar("T")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|\w([\w.-]*\w)?\.?)(:[0-9]{1,5})?")


@click.group("limits", invoke_without_command=True)
@home_option
@json_option
@click.pass_context
def command(context: click.Context, *, home: Path | None, as_json: bool) -> None:
    """List the rate limits of domains; pin or forget one."""
    context.obj = home
    if context.invoked_subcommand is None:
        known = with_limit_backends(home, lambda backends: backends.limits.all())
        _print_limits({name: _limit_row(state) for name, state in known.items()}, as_json=as_json)


@command.command("pin")
@click.argument("domain")
@click.option("--rate", type=float, required=True, metavar="N", help="Maximum requests per second.")
@click.option(
    "--burst",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Requests in a burst; raised at high rates.",
)
@home_option
@json_option
@click.pass_obj
def pin(
    outer: Path | None, *, domain: str, rate: float, burst: int, home: Path | None, as_json: bool
) -> None:
    """Set the rate limit of DOMAIN; learning does not change it."""

    def step(state: Learned | None, now: float) -> tuple[Learned, Learned]:
        pinned = learning.pin(state, rate, burst, now)
        return pinned, pinned

    name = _parse_domain(domain)
    if not _HOST.fullmatch(name):
        raise BadOption("DOMAIN", f"must be a host like shop.example:8080, not {domain!r}")
    learning.pin(None, rate, burst, 0.0)  # refuses numbers that make no sense
    state = with_limit_backends(home or outer, lambda backends: backends.limits.change(name, step))
    _print_limits({name: _limit_row(state)}, as_json=as_json)


@command.command("forget")
@click.argument("domain")
@home_option
@json_option
@click.pass_obj
def forget(outer: Path | None, *, domain: str, home: Path | None, as_json: bool) -> None:
    """Forget the rate limit of DOMAIN, pinned or learned."""
    name = _parse_domain(domain)
    if not with_limit_backends(home or outer, lambda backends: backends.limits.forget(name)):
        raise BadOption("DOMAIN", f"no limit of {name} is known")
    if as_json:
        print_json({"forgotten": name})
    else:
        click.echo(f"forgot the limit of {name}")


def with_limit_backends(home: Path | None, use: Callable[[LimitBackends], Awaitable[T]]) -> T:
    """Open the shared state of limits and breakers of a home, use it, close it."""
    settings = settings_of(home)
    prepare_home(settings)

    async def opened() -> T:
        async with open_limit_backends(settings, SystemClock()) as backends:
            return await use(backends)

    return asyncio.run(opened())


def _parse_domain(text: str) -> str:
    """Return host and port of a domain or a URL."""
    return origin_of(text if "://" in text else f"http://{text}")[1]


def _limit_row(state: Learned) -> dict[str, Any]:
    return {
        "rate": learning.displayed_rate(state),
        "burst": learning.limit_of(state).capacity,
        "known": state.origin,
        "proven": state.proven or None,
        "refusals": state.refusals,
        "ceiling": state.ceiling,
        "published": state.published,
        "robots": state.restraint,
        "changed_at": iso_time(state.changed_at or None),
    }


def _print_limits(rows: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json([{"domain": name, **row} for name, row in rows.items()])
        return
    if not rows:
        click.echo("no limits are known yet")
        return
    numbers = ("rate", "burst", "proven", "refusals", "ceiling")
    table = TextTable(
        "domain",
        "rate",
        "burst",
        "origin",
        "proven",
        "refusals",
        "ceiling",
        "changed (UTC)",
        right=numbers,
        drop=("changed (UTC)", "ceiling", "refusals", "proven"),
        wrap=("domain",),
    )
    for name, row in rows.items():
        table.add(
            name,
            _per_second(row["rate"]),
            row["burst"],
            row["known"],
            _per_second(row["proven"]),
            row["refusals"],
            _per_second(row["ceiling"]),
            (row["changed_at"] or "")[:16],
        )
    table.print()


def _per_second(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}/s"
