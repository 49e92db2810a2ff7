"""longline limits, breakers, robots, cache, archive: the stored state of sites."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import check_url, common_options, settings_of
from longline.cli.output import (
    TextTable,
    iso_time,
    print_facts,
    print_line,
    print_result,
    time_text,
)
from longline.cli.queries import with_opened, with_store
from longline.config.settings import prepare_home
from longline.core.clock import SystemClock
from longline.core.output import count_text, size_text
from longline.http.robots import RobotsCheck, robots_agent
from longline.limits import learning
from longline.limits.breaker import BreakerPolicy, BreakerState, status_of_breaker
from longline.limits.learning import Learned
from longline.services import domains
from longline.storage.store import Store
from longline.wiring import (
    DomainStates,
    LimitBackends,
    open_archive,
    open_cache,
    open_domain_states,
    open_limit_backends,
    open_robots_reader,
    user_agent_of,
)

T = TypeVar("T")

# ---------------- limits


@click.group("limits", invoke_without_command=True)
@common_options
@click.pass_context
def limits_command(context: click.Context) -> None:
    """List the rate limits of domains; pin or forget one."""
    if context.invoked_subcommand is None:
        _print_limits(_with_limit_backends(lambda backends: backends.limits.all()))


@limits_command.command("pin")
@click.argument("domain")
@click.option("--rate", type=float, required=True, metavar="N", help="Maximum requests per second.")
@click.option(
    "--burst",
    type=int,
    default=1,
    metavar="N",
    help="Maximum requests in a burst; longline raises it at high rates.",
)
@common_options
def pin_limit(domain: str, *, rate: float, burst: int) -> None:
    """Set the rate limit of DOMAIN; learning does not change it."""

    async def change(states: DomainStates, store: Store) -> tuple[str, Learned]:
        return await domains.pin_limit(store, states, SystemClock(), domain, rate=rate, burst=burst)

    name, state = _with_states(change)
    _print_limits({name: state})


@limits_command.command("forget")
@click.argument("domain")
@common_options
def forget_limit(domain: str) -> None:
    """Forget the rate limit of DOMAIN, pinned or learned."""

    async def forget(states: DomainStates, store: Store) -> str:
        return await domains.forget_limit(store, states, SystemClock(), domain)

    name = _with_states(forget)
    print_result({"forgotten": name}, lambda: click.echo(f"forgot the limit of {name}"))


def _with_limit_backends(use: Callable[[LimitBackends], Awaitable[T]]) -> T:
    return with_opened(lambda settings: open_limit_backends(settings, SystemClock()), use)


def _with_states(use: Callable[[DomainStates, Store], Awaitable[T]]) -> T:
    """Open the shared state of domains, and the database for the event of its change."""

    async def opened(store: Store) -> T:
        async with open_domain_states(settings_of(), SystemClock(), store) as states:
            return await use(states, store)

    return with_store(opened)


def _print_limits(limits: Mapping[str, Learned]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "domain": name,
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
        for name, state in limits.items()
    ]
    columns = ("domain", "rate", "burst", "origin", "proven", "refusals", "ceiling")
    drop = ("changed (UTC)", "ceiling", "refusals", "proven")
    table = TextTable(*columns, "changed (UTC)", drop=drop)
    for row in rows:
        rate, proven, ceiling = (
            None if row[name] is None else f"{row[name]:.3g}/s"
            for name in ("rate", "proven", "ceiling")
        )
        cells = (row["domain"], rate, row["burst"], row["known"], proven, row["refusals"], ceiling)
        table.add(*cells, (row["changed_at"] or "")[:16])
    print_result(rows, lambda: table.print("no limits are known yet"))


# ---------------- circuit breakers


@click.group("breakers", invoke_without_command=True)
@common_options
@click.pass_context
def breakers_command(context: click.Context) -> None:
    """List circuit breakers and reset them."""
    if context.invoked_subcommand is not None:
        return
    known = _with_limit_backends(lambda backends: backends.breakers.all())
    rows = [_breaker_row(domain, state) for domain, state in sorted(known.items())]
    columns = ("domain", "phase", "failures", "failure rate", "trips", "until (UTC)", "reason")
    table = TextTable(*columns, note="reason")
    for row in rows:
        until = (row["until"] or "")[:19]
        phase = f"{row['phase']}{' (banned)' if row['is_ban'] and until else ''}"
        rate = None if row["rate"] is None else f"{row['rate']:.0%}"
        cells = (row["domain"], phase, row["failures"], rate, row["trips"])
        table.add(*cells, until, row["reason"])
    print_result(rows, lambda: table.print("no circuit breakers yet"))


@breakers_command.command("show")
@click.argument("domain")
@common_options
def show_breaker(domain: str) -> None:
    """Show the circuit breaker of DOMAIN and its recent changes."""
    state = _with_states(lambda states, _store: domains.find_breaker(states, domain))
    row = _breaker_row(domain, state)
    print_result(row, lambda: _print_breaker(row))


@breakers_command.command("reset")
@click.argument("domain")
@common_options
def reset_breaker(domain: str) -> None:
    """Close the circuit breaker of DOMAIN.

    Its deferred items become due immediately.
    """

    async def reset(states: DomainStates, store: Store) -> tuple[BreakerState, int]:
        return await domains.reset_breaker(store, states, SystemClock(), domain)

    state, due = _with_states(reset)
    row = _breaker_row(domain, state)
    text = f"the breaker of {domain} is {row['phase']}; {due} deferred items are due now"
    print_result({**row, "items": due}, lambda: click.echo(text))


def _breaker_row(domain: str, state: BreakerState) -> dict[str, Any]:
    row = asdict(status_of_breaker(state, BreakerPolicy(), SystemClock().now()))
    history = [{**change, "at": iso_time(change["at"])} for change in row.pop("history")]
    times = {name: iso_time(row[name]) for name in ("opened_at", "until")}
    return {"domain": domain, **row, **times, "history": history}


def _print_breaker(row: dict[str, Any]) -> None:
    facts = {name: "" if value is None else value for name, value in row.items()}
    del facts["history"]
    print_facts(facts, width=10)
    for change in row["history"]:
        print_line(f"  {change['at']}  {change['old']} -> {change['new']}  {change['reason']}")


# ---------------- robots


@click.command("robots")
@click.argument("url")
@click.option("--agent", metavar="NAME", help="User agent to evaluate; longline's own by default.")
@click.option("--fresh", is_flag=True, help="Fetch robots.txt even if a copy is stored.")
@common_options
def robots_command(url: str, *, agent: str | None, fresh: bool) -> None:
    """Explain whether robots.txt allows URL.

    Exits with 4 if it does not.
    """
    check_url(url)
    name = agent or robots_agent(user_agent_of(settings_of()))
    check = with_opened(
        open_robots_reader, lambda reader: reader.check(url, agent=name, is_fresh=fresh)
    )
    found, why = check.found, check.explanation
    values = {
        "is_allowed": check.is_allowed,
        **(asdict(why) if why else {}),
        "status": found and found.status,
        "fetched_at": found and iso_time(found.fetched_at),
        "is_kept": check.is_kept,
        "problem": check.problem,
    }
    print_result(values, lambda: _print_robots(url, name, check))
    sys.exit(ExitCode.OK if check.is_allowed else ExitCode.PAUSED)


def _print_robots(url: str, agent: str, check: RobotsCheck) -> None:
    click.echo(f"{url} is {'' if check.is_allowed else 'not '}allowed for {agent}")
    facts = {"problem": check.problem} if check.problem else {}
    if check.found is None or (why := check.explanation) is None:
        facts["meaning"] = "the rules are unknown, so no URL of this host is requested"
    else:
        read = f"{time_text(check.found.fetched_at, seconds=True)} UTC"
        stored = "stored" if check.is_kept else "fetched"
        facts["robots.txt"] = f"status {check.found.status}, {stored} {read}"
        facts["group"] = why.group or "none applies"
        line = f"line {why.line}: " if why.line else ""
        facts["rule"] = f"{line}{why.rule}" if why.rule else "none matches"
        if why.crawl_delay:
            facts["crawl delay"] = f"{why.crawl_delay:g} s"
        if why.rate:
            facts["rate"] = f"at most {why.rate:.3g} requests per second"
        facts |= {f"sitemap {place}": sitemap for place, sitemap in enumerate(why.sitemaps, 1)}
    print_facts(facts, width=12, indent="  ")


# ---------------- cache


@click.group("cache")
def cache_command() -> None:
    """Inspect or clear the HTTP cache."""


@cache_command.command("stats")
@common_options
def cache_statistics() -> None:
    """Show the number, size and age of cached responses."""
    with open_cache(settings_of()) as cache:
        found = cache.stats()
    size = f"{size_text(found.size_bytes)}, {found.size_bytes / found.limit_bytes:.0%} of the limit"
    text = f"{count_text(found.entries, 'response')}, {size}"
    if found.oldest is not None and found.newest is not None:
        oldest, newest = (time_text(at, seconds=True) for at in (found.oldest, found.newest))
        text += f"\nstored from {oldest} to {newest} UTC"
    print_result(asdict(found), lambda: click.echo(text))


@cache_command.command("clear")
@click.argument("domain", required=False)
@common_options
def clear_cache(domain: str | None) -> None:
    """Remove all cached responses, or those of DOMAIN."""
    settings = settings_of()
    if settings.cache_file.exists():
        prepare_home(settings)
    with open_cache(settings) as cache:
        removed = cache.clear(domain)
    of = f" of {domain}" if domain else ""
    text = f"{count_text(removed.entries, 'response')}{of}, {size_text(removed.size_bytes)}"
    print_result(asdict(removed), lambda: click.echo(f"removed {text}"))


# ---------------- archive


@click.group("archive")
def archive_command() -> None:
    """Inspect and verify archived responses."""


@archive_command.command("stats")
@common_options
def archive_statistics() -> None:
    """Show the number and size of archived responses."""
    totals = asdict(with_opened(open_archive, lambda archive: archive.totals()))
    labels = {"size_bytes": "bytes", "answers": "responses", "bodies": "unique bodies"}
    facts = {labels.get(name, name): f"{value:,}" for name, value in totals.items()}
    print_result(totals, lambda: print_facts(facts, width=13))


@archive_command.command("verify")
@common_options
def verify_archive() -> None:
    """Check the digest of every archived response.

    Exits with 3 if one is damaged or missing. Missing responses are reported until you delete
    index.sqlite, which is then rebuilt from the files.
    """
    found = with_opened(open_archive, lambda archive: archive.verify())
    lines = found.problems or ("all archived responses are intact",)
    text = "\n".join([*lines, *(f"note: {note}" for note in found.notes)])
    print_result(asdict(found), lambda: click.echo(text))
    sys.exit(ExitCode.PARTIAL if found.problems else ExitCode.OK)
