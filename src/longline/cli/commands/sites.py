"""longline limits, breakers, robots, cache, archive: the stored state of sites."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import (
    TextTable,
    count_text,
    iso_time,
    print_json,
    print_line,
    size_text,
    time_text,
)
from longline.cli.queries import with_store
from longline.config.settings import Settings, prepare_home
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.http.address_policy import AddressMiddleware, AddressPolicy
from longline.http.archive.warc import Archive
from longline.http.messages import origin_of
from longline.http.robots import RobotsCheck, RobotsReader, robots_agent
from longline.http.transport import HttpOptions, HttpTransport, Resolver
from longline.limits import learning
from longline.limits.breaker import BreakerBackend, BreakerPolicy, BreakerState, status_of_breaker
from longline.limits.learning import Learned
from longline.wiring import (
    LimitBackends,
    open_archive,
    open_cache,
    open_limit_backends,
    user_agent_of,
)

T = TypeVar("T")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|\w([\w.-]*\w)?\.?)(:[0-9]{1,5})?")


@click.group("limits", invoke_without_command=True)
@home_option
@json_option
@click.pass_context
def limits_command(context: click.Context, *, home: Path | None, as_json: bool) -> None:
    """List the rate limits of domains; pin or forget one."""
    context.obj = home
    if context.invoked_subcommand is None:
        known = with_limit_backends(home, lambda backends: backends.limits.all())
        _print_limits({name: _limit_row(state) for name, state in known.items()}, as_json=as_json)


@limits_command.command("pin")
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


@limits_command.command("forget")
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


# ---------------- longline breakers: circuit breakers of domains


@click.group("breakers", invoke_without_command=True)
@home_option
@json_option
@click.pass_context
def breakers_command(context: click.Context, *, home: Path | None, as_json: bool) -> None:
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


@breakers_command.command("show")
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


@breakers_command.command("reset")
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


# ---------------- longline robots: whether robots.txt allows a URL, and why


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
def robots_command(
    url: str, *, agent: str | None, fresh: bool, home: Path | None, as_json: bool
) -> None:
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
        for name, value in _robots_facts(verdict).items():
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


def _robots_facts(verdict: RobotsCheck) -> dict[str, str]:
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


# ---------------- longline cache: the HTTP cache


@click.group("cache")
def cache_command() -> None:
    """Inspect or clear the HTTP cache."""


@cache_command.command("stats")
@home_option
@json_option
def cache_statistics(*, home: Path | None, as_json: bool) -> None:
    """Show the number, size and age of cached responses."""
    with open_cache(settings_of(home)) as cache:
        found = cache.stats()
    if as_json:
        print_json(asdict(found))
        return
    share = found.size_bytes / found.limit_bytes
    size = f"{size_text(found.size_bytes)}, {share:.0%} of the limit"
    click.echo(f"{count_text(found.entries, 'response')}, {size}")
    if found.oldest is not None and found.newest is not None:
        oldest, newest = (time_text(at, seconds=True) for at in (found.oldest, found.newest))
        click.echo(f"stored from {oldest} to {newest} UTC")


@cache_command.command("clear")
@click.argument("domain", required=False)
@home_option
@json_option
def clear(domain: str | None, *, home: Path | None, as_json: bool) -> None:
    """Remove all cached responses, or those of DOMAIN."""
    settings = settings_of(home)
    if settings.cache_file.exists():
        prepare_home(settings)
    with open_cache(settings) as cache:
        removed = cache.clear(domain)
    if as_json:
        print_json(asdict(removed))
        return
    of = f" of {domain}" if domain else ""
    size = size_text(removed.size_bytes)
    click.echo(f"removed {count_text(removed.entries, 'response')}{of}, {size}")


# ---------------- longline archive: responses that jobs have archived

_LABELS = {"size_bytes": "bytes", "answers": "responses", "bodies": "unique bodies"}


@click.group("archive")
def archive_command() -> None:
    """Inspect and verify archived responses."""


@archive_command.command("stats")
@home_option
@json_option
def archive_statistics(*, home: Path | None, as_json: bool) -> None:
    """Show the number and size of archived responses."""
    totals = asdict(_with_archive(home, lambda archive: archive.totals()))
    if as_json:
        print_json(totals)
        return
    for name, value in totals.items():
        click.echo(f"{_LABELS.get(name, name):13} {value:,}")


@archive_command.command("verify")
@home_option
@json_option
def verify(*, home: Path | None, as_json: bool) -> None:
    """Check the digest of every archived response.

    Exits with 3 if one is damaged or missing. Missing responses are reported until index.sqlite is
    deleted; it is then rebuilt from the files.
    """
    found = _with_archive(home, lambda archive: archive.verify())
    if as_json:
        print_json(asdict(found))
    else:
        lines = found.problems or ("all archived responses are intact",)
        click.echo("\n".join([*lines, *(f"note: {note}" for note in found.notes)]))
    sys.exit(ExitCode.PARTIAL if found.problems else ExitCode.OK)


def _with_archive(home: Path | None, use: Callable[[Archive], Awaitable[T]]) -> T:
    settings = settings_of(home)
    prepare_home(settings)

    async def opened() -> T:
        async with open_archive(settings) as archive:
            return await use(archive)

    return asyncio.run(opened())
