"""longline proxies: list, add, remove, check and refresh the proxies of a home."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import common_options, number, settings_of, wants_json
from longline.cli.output import (
    TextTable,
    duration_text,
    iso_time,
    print_facts,
    print_line,
    print_note,
    print_result,
    time_text,
)
from longline.cli.queries import uses_store
from longline.config.secrets import SecretRef
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.output import count_text
from longline.http.proxies.configuration import CheckOptions, read_proxy_settings
from longline.http.proxies.proxy import DEFAULT_TIER
from longline.services import proxies
from longline.services.proxies import ProxyOptions, ProxyOverview
from longline.storage.proxy_refresh import Refresh
from longline.storage.store import Store

_IPV6 = re.compile(r"\[[^\]]*\]")
_STATES = ("alive", "unchecked", "quarantined", "dead")


@click.group("proxies")
def proxies_command() -> None:
    """List, add, check and refresh proxies.

    User names and passwords are never printed.
    """


@proxies_command.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only proxies in this state.")
@click.option("--domain", metavar="HOST", help="Scores at this domain, instead of all together.")
@common_options
@uses_store
async def list_proxies(store: Store, *, state: str | None, domain: str | None) -> None:
    """List the proxies with their last check and score."""
    found = await proxies.read_overview(settings_of(), store, SystemClock(), _domain(domain))
    rows = [
        row
        for row in map(_with_times, proxies.proxies_json(found))
        if state in (None, row["state"])
    ]
    none = "no proxies yet; add some with `longline proxies add` or `longline proxies refresh`"
    empty = none if state is None or not found.pool.total else f"no proxy is {state}"
    print_result(rows, lambda: _print_list(rows, empty))
    _note_problem(found)


@proxies_command.command("add")
@click.argument("addresses", nargs=-1, metavar="[PROXY]...")
@click.option("--file", type=click.Path(path_type=Path), help="File with one proxy per line.")
@click.option("--tier", default=DEFAULT_TIER, metavar="NAME", help="Tier of the proxies.")
@click.option("--country", metavar="CODE", help="Country of the proxies: two letters, such as BG.")
@click.option(
    "--credentials",
    metavar="REFERENCE",
    help="Where user:password is: env:NAME, file:PATH or keyring:SERVICE/NAME.",
)
@click.option("--rotating", is_flag=True, help="Each is a gateway that changes its exit itself.")
@common_options
@uses_store
async def add_proxies(
    store: Store,
    addresses: tuple[str, ...],
    *,
    file: Path | None,
    tier: str,
    country: str | None,
    credentials: str | None,
    rotating: bool,
) -> None:
    """Add proxies, written as scheme://host:port, to the pool.

    They are used before their first check; `longline proxies check` checks them. Known
    proxies are replaced, with their tier, country and credentials.
    """
    for one in addresses:
        if "@" in one or _IPV6.sub("", one).count(":") > 2:  # noqa: PLR2004  # scheme, host and port
            problem = "others can read passwords of a command line; use --credentials or --file"
            raise BadOption("PROXY", problem)
    options = ProxyOptions(tier, country, _reference(credentials), rotating)
    parsed = proxies.parse_lines(addresses, options)
    if file is not None:
        parsed += proxies.parse_lines(proxies.read_lines(file), options, f"{file}, line")
    if not parsed:
        raise BadOption("PROXY", "give proxies such as socks5://10.0.0.1:1080, or --file")
    added = await proxies.add_proxies(settings_of(), store, SystemClock(), parsed)
    known = len({one.proxy.address for one in parsed}) - len(added)
    text = f"added {count_text(len(added), 'proxy', 'proxies')}"
    text += f"; replaced {known} known" if known else ""
    print_result({"added": added, "known": known}, lambda: print_line(text))


@proxies_command.command("remove")
@click.argument("addresses", nargs=-1, required=True, metavar="PROXY...")
@common_options
@uses_store
async def remove_proxies(store: Store, addresses: tuple[str, ...]) -> None:
    """Remove proxies from the pool, with their scores and credentials."""
    removed = await proxies.remove_proxies(settings_of(), store, SystemClock(), addresses)
    text = f"removed {', '.join(removed)}"
    print_result({"removed": removed}, lambda: print_line(text))


@proxies_command.command("check")
@click.argument("addresses", nargs=-1, metavar="[PROXY]...")
@click.option("--judge", metavar="URL", help="Judge that echoes requests.")
@click.option("--page", metavar="URL", help="Page that must respond with status 200.")
@click.option("--word", metavar="TEXT", help="Text that the page must contain.")
@click.option("--timeout", type=number(float, 0.1, 300), help="Response timeout in seconds.")
@common_options
@uses_store
async def check_proxies(store: Store, addresses: tuple[str, ...], **given: Any) -> None:
    """Check proxies of the pool, by default all.

    Exits with 3 if one is dead, and with 1 if all are.
    """
    stated = {name: value for name, value in given.items() if value is not None}
    options = _check_options(stated)
    settings, clock = settings_of(), SystemClock()
    checked = await proxies.check_proxies(settings, store, clock, addresses, options=options)
    rows = [
        {"address": proxy.address, **asdict(result), "checked_at": iso_time(result.checked_at)}
        for proxy, result in sorted(checked.results, key=lambda one: one[0].address)
    ]
    rows += [{"address": one.address, "is_alive": None} for one in checked.unchecked]
    alive = checked.alive
    print_result(rows, lambda: _print_checked(rows, alive))
    is_whole = alive == len(rows)
    sys.exit(ExitCode.OK if is_whole else ExitCode.PARTIAL if alive else ExitCode.FAILED)


@proxies_command.command("refresh")
@click.option("--detach", is_flag=True, help="Leave the refresh to `longline serve`.")
@common_options
@uses_store
async def refresh_pool(store: Store, *, detach: bool) -> None:
    """Collect candidates, check them, and replace the pool.

    An interrupted refresh is continued. Exits with 3 if fewer proxies than the minimum are usable
    afterwards.
    """
    settings, clock = settings_of(), SystemClock()
    if detach:
        begun = await proxies.start_refresh(settings, store, clock)
        text = f"refresh {begun.number} has begun; `longline serve` runs it"
        print_result(_refresh_json(begun), lambda: print_line(text))
        return
    shown: list[str] = []

    def report(refresh: Refresh) -> None:
        line = _progress_text(refresh)
        if not wants_json() and shown[-1:] != [line]:
            print_note(line)
            shown.append(line)

    ended = await proxies.refresh_proxies(settings, store, clock, on_progress=report)
    found = await proxies.read_overview(settings, store, clock)
    values = {**_refresh_json(ended), "usable": found.summary.usable}
    print_result(values, lambda: _print_refreshed(ended, found))
    sys.exit(ExitCode.PARTIAL if found.summary.is_low or not ended.alive else ExitCode.OK)


@proxies_command.command("stats")
@click.option("--domain", metavar="HOST", help="Scores at this domain, instead of all together.")
@common_options
@uses_store
async def show_statistics(store: Store, *, domain: str | None) -> None:
    """Show how many proxies are in each state, and the last refresh."""
    found = await proxies.read_overview(settings_of(), store, SystemClock(), _domain(domain))
    use = found.use.values()
    tiers: dict[str, int] = {}
    for one in found.pool.proxies:
        tiers[one.pooled.proxy.tier] = tiers.get(one.pooled.proxy.tier, 0) + 1
    values = {
        "total": found.pool.total,
        **found.summary.states,
        "usable": found.summary.usable,
        "minimum": found.summary.minimum,
        "tiers": tiers,
        "requests": sum(one.requests for one in use),
        "failed": sum(one.failed for one in use),
        "bans": sum(one.bans for one in use),
        "refresh": None if found.refresh is None else _refresh_json(found.refresh),
    }
    print_result(values, lambda: _print_statistics(values, found.refresh))
    _note_problem(found)


def _domain(text: str | None) -> str | None:
    if text is not None and (not text or "/" in text or any(map(str.isspace, text))):
        raise BadOption(
            "--domain", "write a host, such as shop.example, with its port if it has one"
        )
    return None if text is None else text.lower()


def _reference(text: str | None) -> SecretRef | None:
    try:
        return None if text is None else SecretRef.parse(text)
    except ValueError as error:
        raise BadOption("--credentials", str(error)) from None


def _check_options(stated: Mapping[str, Any]) -> CheckOptions:
    known = read_proxy_settings().check
    if not stated:
        return known
    if "page" in stated and "word" not in stated:
        known = known.model_copy(update={"word": None})
    for name in ("judge", "page"):
        if not stated.get(name, "http://").startswith(("http://", "https://")):
            raise BadOption(f"--{name}", "write a URL that begins with http:// or https://")
    options = known.model_copy(update=dict(stated))
    if options.word is not None and options.page is None:
        raise BadOption("--word", "is searched on a page; add --page")
    if options.lacks_judge:
        problem = "only a judge sees the anonymity that the settings want; add --judge"
        raise BadOption("--page", problem)
    return options


# ---------------- Output


def _with_times(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, **{name: iso_time(row[name]) for name in ("checked_at", "quarantined_until")}}


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} s"


def _print_list(rows: list[dict[str, Any]], empty: str) -> None:
    names = ("proxy", "state", "tier", "country", "latency", "anonymity", "requests", "failed")
    drop = ("problem", "anonymity", "tier", "country", "bans")
    table = TextTable(*names, "bans", "problem", drop=drop)
    for row in rows:
        table.add(
            *(row["address"], row["state"], row["tier"], row["country"]),
            *(_seconds(row["latency"]), row["anonymity"], row["requests"], row["failed"]),
            *(row["bans"], row["reason"] or row["problem"]),
        )
    table.print(empty)


def _print_checked(rows: list[dict[str, Any]], alive: int) -> None:
    table = TextTable("proxy", "state", "latency", "anonymity", "exit", "problem", note="problem")
    for row in rows:
        state = {True: "alive", False: "dead", None: "not checked"}[row["is_alive"]]
        latency = _seconds(row.get("latency"))
        table.add(
            *(row["address"], state, latency, row.get("anonymity"), row.get("exit_address")),
            row.get("problem"),
        )
    table.print("no proxies to check")
    if rows:
        print_line(f"{alive} of {count_text(len(rows), 'proxy', 'proxies')} alive")


def _progress_text(refresh: Refresh) -> str:
    if refresh.step == "collect":
        return f"refresh {refresh.number}: collecting candidates"
    return (
        f"refresh {refresh.number}: checked {refresh.checked} of {refresh.chunks} chunks, "
        f"{refresh.alive} alive"
    )


def _refresh_json(refresh: Refresh) -> dict[str, Any]:
    values = asdict(refresh)
    del values["plan"]
    times = {name: iso_time(values[name]) for name in ("started_at", "ended_at")}
    return {**values, **times, "step": refresh.step.value if refresh.is_open else None}


def _print_refreshed(ended: Refresh, found: ProxyOverview) -> None:
    seconds = duration_text(max(0.0, (ended.ended_at or 0.0) - ended.started_at))
    print_line(
        f"{ended.alive} of {count_text(ended.candidates, 'candidate')} alive after {seconds}; "
        f"{found.summary.usable} proxies are usable"
    )
    for name, problem in ended.problems.items():
        print_line(f"  {name}: {problem}")
    if found.summary.is_low:
        print_line(f"  fewer than the minimum of {found.summary.minimum}")


def _print_statistics(values: Mapping[str, Any], refresh: Refresh | None) -> None:
    facts = {name: values[name] for name in ("total", *_STATES, "usable")}
    if values["minimum"] is not None:
        facts["minimum"] = values["minimum"]
    facts["tiers"] = (
        ", ".join(f"{name} {count}" for name, count in values["tiers"].items()) or "none"
    )
    facts |= {name: f"{values[name]:,}" for name in ("requests", "failed", "bans")}
    print_facts(facts, width=12)
    if refresh is not None:
        when = time_text(refresh.started_at)
        state = "open" if refresh.is_open else "ended"
        text = f"{state}, began {when} UTC ({refresh.reason}), {refresh.alive} alive of "
        print_line(f"{'refresh':12} {text}{count_text(refresh.candidates, 'candidate')}")
        for name, problem in refresh.problems.items():
            print_line(f"{'':12} {name}: {problem}")


def _note_problem(found: ProxyOverview) -> None:
    if found.problem is not None:
        print_note(f"the settings of proxies are not applied: {found.problem}")
