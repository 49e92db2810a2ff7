"""longline robots: whether robots.txt allows a URL, and why."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import iso_time, print_json, print_line, time_text
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.http.address_policy import AddressMiddleware, AddressPolicy
from longline.http.messages import origin_of
from longline.http.middleware.robots import RobotsCheck, RobotsReader
from longline.http.robots import robots_agent
from longline.http.transports.aiohttp import HttpOptions, HttpTransport, Resolver
from longline.wiring import open_limit_backends, user_agent_of


@click.command("robots")
@click.argument("url")
@click.option(
    "--agent",
    metavar="NAME",
    help="User agent to evaluate; longline's own by default.",
)
@click.option("--fresh", is_flag=True, help="Fetch robots.txt even if a copy is stored.")
@home_option
@json_option
def command(url: str, *, agent: str | None, fresh: bool, home: Path | None, as_json: bool) -> None:
    """Explain whether robots.txt allows URL.

    Exits with 4 if it does not.
    """
    scheme, host = origin_of(url)
    if scheme not in {"http", "https"} or not host:
        raise BadOption("URL", f"must be a full URL like https://example.org/a, not {url!r}")
    settings = settings_of(home)
    agent = agent or robots_agent(user_agent_of(settings))
    verdict = asyncio.run(_judge(settings, url, agent, is_fresh=fresh))
    if as_json:
        print_json(_verdict_json(verdict))
    else:
        click.echo(f"{url} is {'' if verdict.is_allowed else 'not '}allowed for {agent}")
        for name, value in _facts(verdict).items():
            print_line(f"  {name:12} {value}")
    sys.exit(ExitCode.OK if verdict.is_allowed else ExitCode.PAUSED)


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


def _verdict_json(verdict: RobotsCheck) -> dict[str, Any]:
    found, why = verdict.found, verdict.explanation
    return {
        "is_allowed": verdict.is_allowed,
        **(asdict(why) if why else {}),
        "status": found and found.status,
        "fetched_at": found and iso_time(found.fetched_at),
        "is_kept": verdict.is_kept,
        "problem": verdict.problem,
    }


def _facts(verdict: RobotsCheck) -> dict[str, str]:
    facts = {"problem": verdict.problem} if verdict.problem else {}
    if (found := verdict.found) is None or (why := verdict.explanation) is None:
        return {**facts, "meaning": "the rules are unknown, so no URL of this host is requested"}
    read = f"{time_text(found.fetched_at, seconds=True)} UTC"
    facts["robots.txt"] = (
        f"status {found.status}, {'stored' if verdict.is_kept else 'fetched'} {read}"
    )
    facts["group"] = why.group or "none applies"
    line = f"line {why.line}: " if why.line else ""
    facts["rule"] = f"{line}{why.rule}" if why.rule else "none matches"
    if why.crawl_delay:
        facts["crawl delay"] = f"{why.crawl_delay:g} s"
    if why.rate:
        facts["rate"] = f"at most {why.rate:.3g} requests per second"
    for number, sitemap in enumerate(why.sitemaps, 1):
        facts[f"sitemap {number}"] = sitemap
    return facts
