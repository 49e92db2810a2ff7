"""longline robots: whether robots.txt lets us ask for an address, and why."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.format import echo_line
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock, utc_datetime
from longline.core.errors import BadOption
from longline.http.address_policy import AddressMiddleware, AddressPolicy
from longline.http.messages import origin_of
from longline.http.middleware.robots import RobotsCheck, RobotsReader
from longline.http.robots import robots_agent
from longline.http.transports.aiohttp import HttpOptions, HttpTransport, Resolver
from longline.wiring import open_limit_backends, user_agent_of

_NOT_ALLOWED = 4


@click.command("robots")
@click.argument("url")
@click.option("--agent", help="Who asks.  [default: the first name in our User-Agent]")
@click.option("--fresh", is_flag=True, help="Read robots.txt now, even when a copy is kept.")
@home_option
@json_option
def command(url: str, *, agent: str | None, fresh: bool, home: Path | None, as_json: bool) -> None:
    """Explain whether robots.txt allows URL; exit with 4 when it does not."""
    scheme, host = origin_of(url)
    if scheme not in {"http", "https"} or not host:
        raise BadOption("URL", f"must be a whole address, like https://example.org/a, not {url!r}")
    settings = settings_of(home)
    agent = agent or robots_agent(user_agent_of(settings))
    verdict = asyncio.run(_judge(settings, url, agent, is_fresh=fresh))
    if as_json:
        print_json(_as_json(verdict))
    else:
        click.echo(f"{url} is {'' if verdict.is_allowed else 'not '}allowed for {agent}")
        for name, value in _facts(verdict).items():
            echo_line(f"  {name:12} {value}")
    sys.exit(0 if verdict.is_allowed else _NOT_ALLOWED)


async def _judge(settings: Settings, url: str, agent: str, *, is_fresh: bool) -> RobotsCheck:
    prepare_home(settings)
    clock = SystemClock()
    options = HttpOptions(
        timeout=settings.timeout, user_agent=user_agent_of(settings), ca_file=settings.ca_file
    )
    async with open_limit_backends(settings, clock) as backends:
        resolver = Resolver()
        addresses = AddressPolicy(settings.private_hosts, resolver=resolver)
        http = HttpTransport(options, clock, addresses, resolver)
        try:
            reader = RobotsReader(AddressMiddleware(http, addresses), clock, backends.robots)
            return await reader.check(url, agent=agent, is_fresh=is_fresh)
        finally:
            await http.close()


def _as_json(verdict: RobotsCheck) -> dict[str, Any]:
    found, why = verdict.found, verdict.explanation
    return {
        "is_allowed": verdict.is_allowed,
        **(asdict(why) if why else {}),
        "status": found and found.status,
        "fetched_at": found and utc_datetime(found.fetched_at).isoformat(timespec="seconds"),
        "is_kept": verdict.is_kept,
        "problem": verdict.problem,
    }


def _facts(verdict: RobotsCheck) -> dict[str, str]:
    """Return what is to be told beside the verdict, by name; what there is not is left out."""
    facts = {}
    if verdict.problem:
        facts["trouble"] = verdict.problem
    if (found := verdict.found) is None or (why := verdict.explanation) is None:
        return {**facts, "meaning": "nobody knows the rules, so nothing of this host is asked for"}
    read = f"{utc_datetime(found.fetched_at):%Y-%m-%d %H:%M:%S} UTC"
    facts["robots.txt"] = (
        f"status {found.status}, {'kept since' if verdict.is_kept else 'read'} {read}"
    )
    facts["group"] = why.group or "none applies"
    line = f"line {why.line}: " if why.line else ""
    facts["rule"] = f"{line}{why.rule}" if why.rule else "none matches"
    if why.crawl_delay:
        facts["crawl delay"] = f"{why.crawl_delay:g} s"
    if why.rate:
        facts["pace"] = f"at most {why.rate:.3g} requests a second"
    for number, sitemap in enumerate(why.sitemaps, 1):
        facts[f"sitemap {number}"] = sitemap
    return facts
