"""longline plan: estimate a run before it starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from longline.cli.options import (
    COUNT,
    given_values,
    home_option,
    ignore_robots_option,
    json_option,
    settings_of,
    source_options,
    typed_values,
)
from longline.cli.output import duration_text, print_json, print_line
from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.devtools.plan import MAX_SAMPLES, REQUESTS, Certainty, Plan, make_plan
from longline.devtools.session import open_session, session_spec

_ERROR_SHOWN = 0.01


@click.command("plan")
@click.argument("source")
@click.option("--limit", type=COUNT, help="Maximum number of items to plan for.")
@source_options
@click.option(
    "--requests",
    type=COUNT,
    default=REQUESTS,
    show_default=True,
    help="Maximum number of requests for discovery.",
)
@click.option(
    "--samples",
    type=COUNT,
    default=MAX_SAMPLES,
    show_default=True,
    help="Maximum number of items to fetch as a sample.",
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
    """Estimate the requests and the duration of a run of SOURCE.

    Sends a few requests to discover items (sitemap or first pages) and fetches a sample of them,
    until the cost of an item is known to within 8% or half of the items were fetched. Stores
    nothing.
    """
    values = {"set": dict(options), "params": typed_values(params)}
    spec = session_spec(source, {**given_values(given), **values})
    plan = asyncio.run(_plan(settings_of(home), spec, requests, samples))
    if as_json:
        print_json(plan.as_dict())
    else:
        _print_plan(plan)


async def _plan(settings: Settings, spec: JobSpec, requests: int, samples: int) -> Plan:
    clock = SystemClock()
    async with open_session(settings, spec, clock) as bench:
        return await make_plan(bench, settings, clock, requests=requests, samples=samples)


def _print_plan(plan: Plan) -> None:
    bound = "" if plan.certainty is Certainty.KNOWN else f"{plan.certainty.value} "
    error = f" ± {plan.error:.0%}" if plan.error >= _ERROR_SHOWN else ""
    each = f"{plan.requests_per_item:.3g} per item in a sample of {plan.samples}"
    if plan.fewest_per_item != plan.most_per_item:
        each += f" ({plan.fewest_per_item} to {plan.most_per_item})"
    click.echo(f"{plan.source}: estimated {bound}{duration_text(plan.seconds)}{error}")
    click.echo(f"  items     {bound}{plan.items:,}")
    click.echo(
        f"  requests  {bound}{plan.requests:,}: {plan.discovery_requests:,} for discovery, {each}"
    )
    for one in plan.domains:
        limit = "" if one.rate is None else f"{one.rate:.3g} per second, burst {one.burst}, "
        click.echo(f"  rate      {one.domain}: {limit}{one.rate_origin}")
    click.echo(f"  limited by {plan.bound}")
    click.echo(f"  this plan sent {plan.spent} requests")
    for note in plan.notes:
        print_line(f"  note: {note}")
