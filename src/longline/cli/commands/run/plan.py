"""longline plan: what a run would take, before it is run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from longline.cli.format import echo_line
from longline.cli.options import (
    COUNT,
    home_option,
    ignore_robots_option,
    json_option,
    print_json,
    settings_of,
    source_options,
    values_of,
)
from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.devtools.plan import MAX_SAMPLES, REQUESTS, Certainty, Plan, make_plan
from longline.devtools.session import open_session, session_spec

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


@click.command("plan")
@click.argument("source")
@click.option("--limit", type=COUNT, help="Plan for at most this many items.")
@source_options
@click.option(
    "--requests",
    type=COUNT,
    default=REQUESTS,
    show_default=True,
    help="Maximum requests to discover items.",
)
@click.option(
    "--samples",
    type=COUNT,
    default=MAX_SAMPLES,
    show_default=True,
    help="Maximum items to run as samples.",
)
@ignore_robots_option
@home_option
@json_option
def command(
    source: str,
    *,
    requests: int,
    samples: int,
    home: Path | None,
    as_json: bool,
    options: tuple[tuple[str, str], ...],
    params: tuple[tuple[str, str], ...],
    **given: Any,
) -> None:
    """Say what a run of SOURCE would take: requests, pace, time; store nothing.

    A few requests look for the items (sitemap or first pages), and some items are tried, until
    what one costs is known to 8 %, or half of them were. What is only estimated says so.
    """
    values = {name: value for name, value in given.items() if value not in (None, ())}
    spec = session_spec(source, {**values, "set": dict(options), "params": values_of(params)})
    plan = asyncio.run(_plan(settings_of(home), spec, requests, samples))
    if as_json:
        print_json(plan.as_dict())
    else:
        _tell(plan)


async def _plan(settings: Settings, spec: JobSpec, requests: int, samples: int) -> Plan:
    clock = SystemClock()
    async with open_session(settings, spec, clock) as session:
        return await make_plan(session, settings, clock, requests=requests, samples=samples)


def _tell(plan: Plan) -> None:
    word = "" if plan.certainty is Certainty.KNOWN else f"{plan.certainty.value} "
    error = f" (± {plan.error:.0%}: items may differ)" if plan.error >= 0.01 else ""  # noqa: PLR2004
    each = f"{plan.requests_per_item:.3g} an item, as {plan.samples} of them took"
    if plan.fewest_per_item != plan.most_per_item:
        each += f" ({plan.fewest_per_item} to {plan.most_per_item})"
    click.echo(f"{plan.source}: {word}{duration(plan.seconds)}, estimated{error}")
    click.echo(f"  items     {word}{plan.items:,}")
    found = f"{plan.discovery_requests:,} to find the items"
    click.echo(f"  requests  {word}{plan.requests:,}: {found}, {each}")
    for one in plan.domains:
        rate = "" if one.rate is None else f"{one.rate:.3g} per second, burst {one.burst}, "
        click.echo(f"  rate      {one.domain}: {rate}{one.rate_origin}")
    click.echo(f"  waits for {plan.bound}")
    click.echo(f"  this plan took {plan.spent} requests")
    for note in plan.notes:
        echo_line(f"  note: {note}")


def duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 10:  # noqa: PLR2004  # below, tenths matter
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.1f} days"
