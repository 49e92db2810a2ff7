"""longline cache: the HTTP cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import count_text, print_json, size_text, time_text
from longline.config.settings import prepare_home
from longline.wiring import open_cache


@click.group("cache")
def command() -> None:
    """Inspect or clear the HTTP cache."""


@command.command("stats")
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


@command.command("clear")
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
